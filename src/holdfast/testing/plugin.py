"""Fixtures for pytest, for tests of services that stand on Holdfast: `pytest_plugins = ["holdfast.testing.plugin"]`."""

from collections.abc import Iterator
from dataclasses import dataclass

try:
    import pytest
except ImportError as error:
    raise ImportError(
        "holdfast.testing.plugin needs pytest, which Holdfast does not bring: pip install pytest"
    ) from error

from holdfast.testing.calls import Faults, RecordedEvents, instant_calls, recorded_events
from holdfast.testing.clock import FakeClock


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsUnderTest:
    """The calls of this process, in the hands of one test."""

    clock: FakeClock
    """Moved by sleeps, and by `advance`."""
    faults: Faults
    """`faults.on("pricing").fail(ConnectionResetError, times=2)`"""
    events: RecordedEvents
    """All that happened, to every dependency, in order; `events.of(Retrying)` for one class of them."""

    @property
    def sleeps(self) -> list[float]:
        """The seconds of every wait so far, in order."""
        return list(self.clock.sleeps)


@pytest.fixture
def holdfast_calls() -> Iterator[CallsUnderTest]:
    """Calls do not wait, fail on demand, and tell what happens; every dependency begins the test anew."""
    with instant_calls() as instant, Faults() as faults, recorded_events() as events:
        yield CallsUnderTest(clock=instant.clock, faults=faults, events=events)

"""Fixtures for pytest, for tests of services that use Holdfast: `pytest_plugins = ["holdfast.testing.plugin"]`."""

from collections.abc import Iterator
from dataclasses import dataclass

try:
    import pytest
except ImportError as error:
    raise ImportError(
        "holdfast.testing.plugin needs pytest, which Holdfast does not install: pip install pytest"
    ) from error

from holdfast.testing.calls import Faults, RecordedEvents, instant_calls, recorded_events
from holdfast.testing.clock import FakeClock


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsUnderTest:
    """Control over the calls of this process, for one test."""

    clock: FakeClock
    """Advanced by sleeps, and by `advance`."""
    faults: Faults
    """`faults.on("pricing").fail(ConnectionResetError, times=2)`"""
    events: RecordedEvents
    """All events of every dependency, in order; `events.of(Retrying)` for those of one class."""

    @property
    def sleeps(self) -> list[float]:
        """The seconds of every sleep so far, in order."""
        return list(self.clock.sleeps)


@pytest.fixture
def holdfast_calls() -> Iterator[CallsUnderTest]:
    """Provide calls that do not wait, fail on demand, and record their events. Reset every dependency for the test."""
    with instant_calls() as instant, Faults() as faults, recorded_events() as events:
        yield CallsUnderTest(clock=instant.clock, faults=faults, events=events)

"""The conformance tests of queue backends, to be inherited.

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def backend(self, clock: FakeClock) -> Iterator[Backend]:
            with MyBackend(..., clock) as backend:
                yield backend

Needs pytest and hypothesis. Each test begins with an empty backend. If a backend uses a server's time instead of the
clock, override the fixture `advance_time` as well. Start reading at `probe.py`; each kind of promise has a module.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from holdfast.testing.queue.groups import GroupSuite, TopicSuite  # noqa: E402 - after their asserts are registered
from holdfast.testing.queue.inspecting import DeadLetterSuite, InspectSuite  # noqa: E402
from holdfast.testing.queue.leasing import LeaseSuite  # noqa: E402
from holdfast.testing.queue.limits import LimitSuite  # noqa: E402
from holdfast.testing.queue.model import ModelSuite  # noqa: E402
from holdfast.testing.queue.order import AgeSuite, TurnSuite  # noqa: E402
from holdfast.testing.queue.probe import Probe  # noqa: E402
from holdfast.testing.queue.sending import KeySuite, SendSuite, WakeSuite  # noqa: E402

__all__ = ["BackendConformance", "Probe"]


class BackendConformance(
    SendSuite,
    LeaseSuite,
    WakeSuite,
    DeadLetterSuite,
    GroupSuite,
    KeySuite,
    AgeSuite,
    TurnSuite,
    LimitSuite,
    TopicSuite,
    InspectSuite,
    ModelSuite,
):
    """Tests the promises of `holdfast.queue.backend.Backend`. Override the fixture `backend`."""

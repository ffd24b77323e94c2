"""What every backend of a queue must do, as tests to inherit.

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def backend(self, clock: FakeClock) -> Iterator[Backend]:
            with MyBackend(..., clock) as backend:
                yield backend

Needs pytest and hypothesis. Each test begins with a backend that holds nothing. Where a backend goes by a server's time
and not by the clock, override the fixture `elapse` as well. Start reading at `probe.py`; there is a module for each
promise.
"""

import pytest

_PARTS: tuple[str, ...] = (
    "ages",
    "groups",
    "keys",
    "lanes",
    "leasing",
    "letters",
    "limits",
    "looking",
    "model",
    "probe",
    "sending",
)
_PARTS += ("topics", "turns")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from holdfast.testing.queue.ages import Ages  # noqa: E402 - after what they need is registered
from holdfast.testing.queue.groups import Groups  # noqa: E402
from holdfast.testing.queue.keys import Keys  # noqa: E402
from holdfast.testing.queue.lanes import Lanes  # noqa: E402
from holdfast.testing.queue.leasing import Leasing  # noqa: E402
from holdfast.testing.queue.letters import Letters  # noqa: E402
from holdfast.testing.queue.limits import Limited  # noqa: E402
from holdfast.testing.queue.looking import Looking  # noqa: E402
from holdfast.testing.queue.model import Modelled  # noqa: E402
from holdfast.testing.queue.probe import Probe  # noqa: E402
from holdfast.testing.queue.sending import Sending  # noqa: E402
from holdfast.testing.queue.topics import Topics  # noqa: E402
from holdfast.testing.queue.turns import Turns  # noqa: E402

__all__ = ["BackendConformance", "Probe"]


class BackendConformance(
    Sending, Leasing, Letters, Groups, Keys, Ages, Turns, Lanes, Limited, Topics, Looking, Modelled
):
    """The promises of `holdfast.queue.Backend`. Override the fixture `backend`."""

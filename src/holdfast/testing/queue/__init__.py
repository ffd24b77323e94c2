"""What every backend of a queue must do, as tests to inherit.

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def backend(self, clock: FakeClock) -> Iterator[Backend]:
            with MyBackend(..., clock) as backend:
                yield backend

Needs pytest and hypothesis. Each test begins with a backend that holds nothing. Where a backend goes by a server's time
and not by the clock, override the fixture `elapse` as well. Start reading at `probe.py`; there is a module for each
kind of promise.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from holdfast.testing.queue.groups import Groups, Topics  # noqa: E402 - after their asserts are registered
from holdfast.testing.queue.leasing import Leasing  # noqa: E402
from holdfast.testing.queue.limits import Limited  # noqa: E402
from holdfast.testing.queue.looking import Letters, Looking  # noqa: E402
from holdfast.testing.queue.model import Modelled  # noqa: E402
from holdfast.testing.queue.order import Ages, Turns  # noqa: E402
from holdfast.testing.queue.probe import Probe  # noqa: E402
from holdfast.testing.queue.sending import Keys, Sending, Waking  # noqa: E402

__all__ = ["BackendConformance", "Probe"]


class BackendConformance(
    Sending, Leasing, Waking, Letters, Groups, Keys, Ages, Turns, Limited, Topics, Looking, Modelled
):
    """The promises of `holdfast.queue.backend.Backend`. Override the fixture `backend`."""

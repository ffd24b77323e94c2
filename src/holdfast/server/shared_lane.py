"""A lane that all tenants go through, and none of them alone."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable
from holdfast._log_gate import LogGate
from holdfast.server.lane import Lane

Result = TypeVar("Result")

logger = logging.getLogger("holdfast.server")


class SharedLane:
    """Runs work in threads of its own, `most` works at a time; one tenant may have `share` of them under way.

    It may slow itself down then, and does not keep everybody else out. A work counts until it is done, also if whoever
    asked for it has gone away. What is refused is logged, once a second at the most. For one event loop.
    """

    def __init__(self, name: str, *, threads: int, most: int, share: int, clock: Clock | None = None) -> None:
        self._name = name
        self._lane = Lane(name, threads=threads, most=most)
        self._most = most
        self._share = share
        self._clock = clock or SystemClock()
        self._inside = 0
        self._of_tenants: Counter[str] = Counter()
        self._gate = LogGate(1, 1.0)

    async def run(self, work: Callable[[], Result], tenant: str | None = None) -> Result:
        """What `work`, which a tenant or nobody in particular has asked for, returns; it is ended in any case.

        Raises EngineUnavailable if too many are under way.
        """
        if tenant is not None and self._of_tenants[tenant] >= self._share:
            raise self._refused(f"{self._share} requests of tenant {tenant}")
        if self._inside >= self._most:
            raise self._refused(f"{self._most} of {self._name}")
        self._inside += 1
        if tenant is not None:
            self._of_tenants[tenant] += 1

        def leave(done: "asyncio.Task[Result]") -> None:
            self._inside -= 1
            if tenant is not None:
                self._of_tenants[tenant] -= 1
                if not self._of_tenants[tenant]:
                    del self._of_tenants[tenant]  # there may be very many tenants
            if not done.cancelled():
                done.exception()  # also if nobody waits for it any more, it was looked at

        doing = asyncio.ensure_future(self._lane.run(work))
        doing.add_done_callback(leave)
        return await asyncio.shield(doing)

    def _refused(self, what: str) -> EngineUnavailable:
        left_out = self._gate.admit("", self._clock.monotonic())
        if left_out is not None:
            more = f" ({left_out} more were refused before)" if left_out else ""
            logger.warning("a request is refused: %s are under way and take long%s", what, more)
        return EngineUnavailable(f"{what} are under way and take long: try again later")

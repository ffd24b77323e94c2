"""Threads for one kind of work, so that work that hangs delays no other kind, and no tenant takes all of them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable
from holdfast._log_gate import LogGate

Result = TypeVar("Result")

logger = logging.getLogger("holdfast.server")


class BoundedExecutor:
    """Runs work in threads of its own, at most `most` at a time, and refuses more instead of queueing it.

    One tenant may have `share` of them under way. Work counts until it is done, also if the caller has gone away.
    Refusals are logged, at most once a second. For one event loop.
    """

    def __init__(
        self, name: str, *, threads: int = 4, most: int = 16, share: int | None = None, clock: Clock | None = None
    ) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._share = most if share is None else share
        self._clock = clock or SystemClock()
        self._running = 0
        self._of_tenants: Counter[str] = Counter()
        self._gate = LogGate(1, 1.0)

    async def run(self, work: Callable[[], Result], tenant: str | None = None) -> Result:
        """Return what `work` returns; `tenant` asked for it, or nobody in particular.

        Work that was begun goes on if the caller goes away. Raises EngineUnavailable if too much is under way.
        """
        if tenant is not None and self._of_tenants[tenant] >= self._share:
            raise self._refused(f"{self._share} requests of tenant {tenant}")
        if self._running >= self._most:
            raise self._refused(f"{self._most} of {self._name}")
        self._running += 1
        if tenant is not None:
            self._of_tenants[tenant] += 1

        def leave(done: "asyncio.Future[Result]") -> None:
            self._running -= 1
            if tenant is not None:
                self._of_tenants[tenant] -= 1
                if not self._of_tenants[tenant]:
                    del self._of_tenants[tenant]  # there may be very many tenants
            if not done.cancelled():
                done.exception()  # marks it as seen, in case nobody waits for it any more

        doing = asyncio.get_running_loop().run_in_executor(self._threads, work)
        doing.add_done_callback(leave)
        return await asyncio.shield(doing)

    def _refused(self, what: str) -> EngineUnavailable:
        left_out = self._gate.admit("", self._clock.monotonic())
        if left_out is not None:
            more = f" ({left_out} more were refused before)" if left_out else ""
            logger.warning("a request is refused: %s are under way and take long%s", what, more)
        return EngineUnavailable(f"{what} are under way and take long: try again later")

"""Separate threads for each kind of work: hanging work delays no other kind, and no tenant takes all threads."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable
from holdfast._log_limiter import LogLimiter
from holdfast._names import format_count

Result = TypeVar("Result")

logger = logging.getLogger("holdfast.server")


class BoundedExecutor:
    """An executor with its own threads that admits at most `max_running` functions, and refuses further ones.

    Each tenant may have `max_per_tenant` of them. A function counts until it ends, even if its caller has disconnected.
    Refusals are logged at most once a second. For use in one event loop.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int = 4,
        max_running: int = 16,
        max_per_tenant: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._max_running = max_running
        self._max_per_tenant = max_running if max_per_tenant is None else max_per_tenant
        self._clock = clock or SystemClock()
        self._running = 0
        self._running_by_tenant: Counter[str] = Counter()
        self._log_limiter = LogLimiter(1, 1.0)

    async def run(self, work: Callable[[], Result], tenant: str | None = None) -> Result:
        """Run `work` in a thread for `tenant` (None: for no tenant), and return its result.

        `work` continues if the caller is cancelled. Raise EngineUnavailable if a limit is reached.
        """
        if tenant is not None and self._running_by_tenant[tenant] >= self._max_per_tenant:
            raise self._refuse(f"{format_count(self._max_per_tenant, 'request')} of tenant {tenant}")
        if self._running >= self._max_running:
            raise self._refuse(f"{format_count(self._max_running, 'request')} of {self._name}")
        self._running += 1
        if tenant is not None:
            self._running_by_tenant[tenant] += 1

        def finish(done: "asyncio.Future[Result]") -> None:
            self._running -= 1
            if tenant is not None:
                self._running_by_tenant[tenant] -= 1
                if not self._running_by_tenant[tenant]:
                    del self._running_by_tenant[tenant]  # there may be many tenants
            if not done.cancelled():
                done.exception()  # marks it as retrieved, in case the caller has disconnected

        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(finish)
        return await asyncio.shield(future)

    def _refuse(self, what: str) -> EngineUnavailable:
        suppressed = self._log_limiter.admit("", self._clock.monotonic())
        if suppressed is not None:
            more = f" ({suppressed} more were refused before)" if suppressed else ""
            logger.warning("request refused: too many in progress (%s)%s", what, more)
        return EngineUnavailable(f"too many requests in progress ({what}): try again later")

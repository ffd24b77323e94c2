"""The queues behind the API: their store is opened when it is first needed, and never waited for in the event loop."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable
from holdfast.queue import Backend, Outgoing, Refused, Sent
from holdfast.server.lane import Lane

Result = TypeVar("Result")

THREADS = 16
"""What is sent at the same time shares a commit: about so many messages get one where a disk is slow."""
MOST = 256
"""Requests to send that may be under way: a second of work for a slow disk."""
SHARE = MOST // 4
"""Those of one tenant among them: it may slow itself down, not keep everybody else out."""


class Queues:
    """Sends to queues and asks about them, from the event loop; a server that does neither opens nothing.

    `open_backend` opens the store, `list_names` lists the queues in it; both may block.
    """

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        list_names: Callable[[], Sequence[str]],
        *,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._open_backend = open_backend
        self._list_names = list_names
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._sending = Lane("holdfast-sending", threads=THREADS, most=MOST)
        self._asking = Lane("holdfast-queues", threads=4, most=32)
        self._senders: Counter[str] = Counter()

    async def send(self, queue: str, tenant: str, messages: Sequence[Outgoing]) -> Sequence[Sent | Refused]:
        """What became of each message of one tenant. Raises EngineUnavailable where the tenant has too many under way.

        What was begun is ended also if the caller goes away.
        """
        if self._senders[tenant] >= SHARE:
            raise EngineUnavailable(f"{SHARE} requests of tenant {tenant} are under way and take long: try again later")
        self._senders[tenant] += 1

        def send() -> Sequence[Sent | Refused]:
            return self.open().send(queue, messages)

        try:
            return await self._sending.run(send)
        finally:
            self._senders[tenant] -= 1
            if not self._senders[tenant]:
                del self._senders[tenant]  # there may be very many tenants

    async def ask(self, work: Callable[[Backend], Result]) -> Result:
        """What `work` makes of the store; in threads of their own, so that what takes long holds up no message."""
        return await self._asking.run(lambda: work(self.open()))

    async def names(self) -> Sequence[str]:
        """The names of all queues, in order."""
        return await self.ask(lambda _: self._list_names())

    def open(self) -> Backend:
        """The store. Blocks when it is opened; what failed is tried again the next time."""
        backend = self._backend
        if backend is None:
            with self._lock:
                backend = self._backend = self._backend or self._open_backend()
        return backend

    def close(self) -> None:
        """Let go of the store, if it was opened. May be repeated."""
        with self._lock:
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

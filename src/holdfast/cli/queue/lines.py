"""Sending many messages for one tenant as fast as it may, and no faster."""

from collections.abc import Callable, Sequence

import msgspec

from holdfast._clock import Clock
from holdfast.queue import Outgoing, Refused, Sent
from holdfast.queue.backend import Backend
from holdfast.queue.queue import refused

SHORTEST_WAIT = 0.05
"""Seconds: so that many small waits do not become a busy loop."""


class Told(msgspec.Struct, kw_only=True):
    """What became of the messages so far."""

    queue: str
    sent: int = 0
    duplicates: int = 0
    spilled: int = 0


class Sender:
    """Sends batches in their order; what is refused is sent again when the queue says so, before anything else.

    Raises Backpressure when nothing at all was kept for `patience` seconds.
    """

    def __init__(self, backend: Backend, queue: str, clock: Clock, patience: float) -> None:
        self.told = Told(queue=queue)
        self._backend = backend
        self._clock = clock
        self._patience = patience

    def send(self, messages: Sequence[Outgoing], waiting: Callable[[float], None]) -> None:
        """Send all of them; `waiting` is called with the seconds of every pause before it."""
        begun = self._clock.monotonic()
        while messages:
            results = self._backend.send(self.told.queue, messages)
            left = [message for message, result in zip(messages, results, strict=True) if isinstance(result, Refused)]
            self._count([result for result in results if isinstance(result, Sent)])
            now = self._clock.monotonic()
            if len(left) < len(messages):
                begun = now
            messages = left
            if messages:
                first = next(result for result in results if isinstance(result, Refused))
                pause = max(SHORTEST_WAIT, first.retry_after)
                if now + pause - begun > self._patience:
                    raise refused(self.told.queue, first)
                waiting(pause)
                self._clock.sleep(pause)

    def _count(self, results: Sequence[Sent]) -> None:
        self.told.sent += len(results)
        self.told.duplicates += sum(result.is_duplicate for result in results)
        self.told.spilled += sum(result.is_spilled and not result.is_duplicate for result in results)

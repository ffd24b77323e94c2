"""One message for several queues."""

from collections.abc import Sequence
from typing import Self

from holdfast._clock import Clock, SystemClock
from holdfast._names import queue_of
from holdfast.queue.backend import Backend, Change
from holdfast.queue.message import Outgoing, Refused, Sent
from holdfast.queue.open import Opening
from holdfast.queue.queue import Queue
from holdfast.queue.stamp import stamped


class Topic:
    """A name under which messages are sent to every queue that subscribes to it.

    `at` is the address, or the backend, of these queues: all of them are in one place. Thread-safe.
    """

    def __init__(self, name: str, at: Backend | str, *, clock: Clock | None = None) -> None:
        self.name = queue_of(name, "topic")
        self._clock = clock or SystemClock()
        self._opening = Opening(at, clock)

    def subscribe(self, queue: Queue) -> None:
        """Let a queue have what is published from now on. Raises NotFound for one that is kept elsewhere."""
        queue.open()
        self._opening.get().change(queue.name, Change(subscribe=[self.name]))

    def unsubscribe(self, queue: Queue) -> None:
        """End that; what it has already stays there."""
        queue.open()
        self._opening.get().change(queue.name, Change(unsubscribe=[self.name]))

    def publish(self, messages: Sequence[Outgoing]) -> Sequence[Sent | Refused]:
        """Send messages to all subscribers in one step: for each message what became of it in every queue."""
        return self._opening.get().send(self.name, stamped(messages, self._clock), topic=True)

    async def publish_async(self, messages: Sequence[Outgoing]) -> Sequence[Sent | Refused]:
        """The same, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.publish, messages)

    def close(self) -> None:
        """Let go of what was opened. May be repeated."""
        self._opening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

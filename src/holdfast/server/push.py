"""Pushing events to whoever listens, without ever waiting for a slow listener."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

BACKLOG = 256
"""Events that a listener may be behind. Past that it is cut off: it reconnects and reads the current state instead."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: a name, a JSON text, and a number that grows by one with every event of this run."""

    number: int
    name: str
    data: str


class Hub:
    """Hands every event to every listener. Lives in one event loop, except for the methods that say otherwise."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._number = 0
        self._open = True
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def start(self) -> None:
        """Remember the event loop in which this is called: the one in which listeners live."""
        self._loop = asyncio.get_running_loop()

    def publish(self, name: str, data: str) -> None:
        """Queue an event for every listener; one whose queue is full is cut off."""
        self._number += 1
        event = Event(self._number, name, data)
        for listener in list(self._listeners):
            if listener.qsize() >= BACKLOG:
                self._dismiss(listener)
            else:
                listener.put_nowait(event)

    def publish_threadsafe(self, name: str, data: str) -> None:
        """The same from any thread. Before `start` and after `close` nobody listens, and it does nothing."""
        if self._loop is not None and self._open:
            self._loop.call_soon_threadsafe(self.publish, name, data)

    async def listen(self, quiet: float) -> AsyncIterator[Event | None]:
        """None as soon as it listens, every event from then on, and None after every `quiet` seconds without one.

        Ends when the hub is closed, or when the listener is too far behind.
        """
        if not self._open:
            return
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield None
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), quiet)
                except TimeoutError:
                    yield None
                    continue
                if event is None:
                    return
                yield event
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """End every stream, and refuse new ones. May be repeated."""
        self._open = False
        for listener in list(self._listeners):
            self._dismiss(listener)

    def close_threadsafe(self) -> None:
        """The same from any thread, or from a signal handler."""
        self._open = False
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.close)

    def _dismiss(self, listener: "asyncio.Queue[Event | None]") -> None:
        self._listeners.discard(listener)
        listener.put_nowait(None)

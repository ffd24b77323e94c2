"""Pushing events to whoever listens: ten thousand of them at once, without ever waiting for a slow one."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

KEPT_EVENTS = 256
"""Events that are kept for listeners who come back. One who missed more begins again with what is."""
KEEPALIVE_SECONDS = 15
"""Between two signs of life of a quiet stream: proxies commonly cut one that is silent for 30 to 60 s."""
BATCH_LISTENERS = 250
"""Listeners that are told before others get their turn: a few milliseconds of work."""
KEEPALIVE = b": still here\n\n"


@dataclass(frozen=True)
class StreamEvent:
    """Something that happened: the run and the number of it, a name, and JSON without line breaks.

    Each of its two forms is made once for all listeners.
    """

    id: str
    name: str
    data: bytes

    @cached_property
    def sse_bytes(self) -> bytes:
        """The event in a stream of server-sent events."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.id.encode(), self.name.encode(), self.data)

    @cached_property
    def websocket_text(self) -> str:
        """The event as one message of a WebSocket."""
        return msgspec.json.encode({"id": self.id, "event": self.name, "data": msgspec.Raw(self.data)}).decode()


Write: TypeAlias = Callable[[StreamEvent | None], Coroutine[Any, Any, None]]
"""Sends an event, or (None) a sign of life."""


@dataclass(slots=True, eq=False)
class _Listener:
    write: Write
    keepalive_second: int
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    is_ready: bool = False
    is_disconnected: bool = False


class EventHub:
    """Hands every event to every listener. Lives in one event loop, except for the methods that say otherwise.

    Events are numbered from 1, and `run` tells the numbers of this hub from those of the one before a restart.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self._listeners: dict[_Listener, None] = {}
        self._kept: deque[StreamEvent] = deque(maxlen=KEPT_EVENTS)
        self._due: deque[tuple[StreamEvent, list[_Listener]]] = deque()
        self._number = 0
        self._listener_number = 0
        self._second = 0
        self._open = True
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def listener_count(self) -> int:
        return len(self._listeners)

    @property
    def last_id(self) -> str:
        """The id of the latest event."""
        return f"{self.run}-{self._number}"

    def start(self) -> None:
        """Remember the event loop in which this is called: the one in which listeners live."""
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(1.0, self._send_keepalives)

    def publish(self, name: str, data: bytes) -> None:
        """Tell everybody who listens now, soon and in order."""
        self._number += 1
        event = StreamEvent(self.last_id, name, data)
        self._kept.append(event)
        if not self._listeners or self._loop is None:
            return
        self._due.append((event, list(self._listeners)))
        if len(self._due) == 1:
            self._loop.call_soon(self._send_batches)

    def publish_threadsafe(self, name: str, data: bytes) -> None:
        """The same from any thread. Before `start` and after `close` nobody listens, and it does nothing."""
        if self._loop is not None and self._open:
            with suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(self.publish, name, data)

    def find_missed(self, last: str) -> Sequence[StreamEvent] | None:
        """What was published after the event with this id; None if that is not known any more, or never was."""
        run, _, number = last.partition("-")
        if run != self.run or not number.isascii() or not number.isdigit() or len(number) > len(str(self._number)):
            return None
        count = self._number - int(number)
        return None if not 0 <= count <= len(self._kept) else [*self._kept][len(self._kept) - count :]

    async def serve_listener(
        self,
        write: Write,
        wait_until_gone: Callable[[], Coroutine[Any, Any, None]],
        get_first_events: Callable[[], Sequence[StreamEvent]],
    ) -> None:
        """Serve one listener until `wait_until_gone` returns, it is too slow, or the hub is closed.

        `get_first_events` returns what to send first. Everything that is published after that call follows.
        """
        if not self._open:
            return
        self._listener_number += 1
        listener = _Listener(write, self._listener_number % KEEPALIVE_SECONDS)
        try:
            greeting = get_first_events()
            self._listeners[listener] = None
            for event in greeting:
                await write(event)
            listener.is_ready = True
            await wait_until_gone()
        except asyncio.CancelledError:
            assert listener.task is not None
            if not listener.is_disconnected or listener.task.uncancel() > 0:  # somebody else wants the task to end, too
                raise
        finally:
            self._listeners.pop(listener, None)

    def close(self) -> None:
        """End every stream, after what was published before, and refuse new ones. May be repeated."""
        self._open = False
        while self._due:
            self._send_batch()
        for listener in list(self._listeners):
            self._disconnect(listener)

    def close_threadsafe(self) -> None:
        """The same from any thread, or from a signal handler."""
        self._open = False
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.close)

    def _send_batches(self) -> None:
        assert self._loop is not None
        if self._due:  # nothing is, if the hub was closed meanwhile
            self._send_batch()
        if self._due:
            self._loop.call_soon(self._send_batches)

    def _send_batch(self) -> None:
        event, listeners = self._due[0]
        for listener in listeners[-BATCH_LISTENERS:]:
            self._send_to(listener, event)
        del listeners[-BATCH_LISTENERS:]
        if not listeners:
            self._due.popleft()

    def _send_keepalives(self) -> None:
        """A fifteenth of the listeners hear every second that the stream lives: never all of them at once."""
        if self._loop is None or not self._open:
            return
        self._second += 1
        for listener in [each for each in self._listeners if each.keepalive_second == self._second % KEEPALIVE_SECONDS]:
            self._send_to(listener, None)
        self._loop.call_later(1.0, self._send_keepalives)

    def _send_to(self, listener: _Listener, event: StreamEvent | None) -> None:
        """Send without waiting. Whoever would have to be waited for is behind by all that buffers hold: cut off.

        Instead of ten thousand tasks that wake up, one runs the first step of each send, which is also the last one
        while the connection takes what it is given.
        """
        if listener not in self._listeners:
            return
        if listener.is_ready:
            sending = listener.write(event)
            try:
                sending.send(None)
            except StopIteration:
                return
            except Exception:  # noqa: BLE001, S110 - a connection that broke; its own task learns why
                pass
            else:
                sending.close()
        self._disconnect(listener)

    def _disconnect(self, listener: _Listener) -> None:
        self._listeners.pop(listener, None)
        listener.is_disconnected = True
        assert listener.task is not None
        listener.task.cancel()

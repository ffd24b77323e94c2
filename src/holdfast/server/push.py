"""Push events to ten thousand concurrent listeners, without ever waiting for a slow one."""

import asyncio
import secrets
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

KEPT_EVENTS = 256
"""Events kept for listeners that reconnect. A listener that missed more gets a snapshot."""
KEEPALIVE_SECONDS = 15
"""Between two keep-alives of a quiet stream: proxies commonly close one after 30 to 60 s without data."""
BATCH_LISTENERS = 250
"""Listeners that get an event before other tasks run: a few milliseconds of work."""


@dataclass(frozen=True)
class StreamEvent:
    """An event with an id (the hub's run and a number), a name, and JSON without line breaks.

    Each of its two encodings is made once for all listeners.
    """

    id: str
    name: str
    data: bytes

    @cached_property
    def sse_bytes(self) -> bytes:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.id.encode(), self.name.encode(), self.data)

    @cached_property
    def websocket_text(self) -> str:
        return msgspec.json.encode({"id": self.id, "event": self.name, "data": msgspec.Raw(self.data)}).decode()


KEEPALIVE = StreamEvent("", "keepalive", b"")
"""Sent instead of an event when a stream has been quiet."""
KEEPALIVE_BYTES = b": still here\n\n"  # a comment in a stream of server-sent events
Write: TypeAlias = Callable[[StreamEvent], Coroutine[Any, Any, None]]
"""Sends an event, or KEEPALIVE, to one listener."""


@dataclass(slots=True, eq=False)
class _Listener:
    write: Write
    keepalive_second: int
    credential_id: str | None
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    is_ready: bool = False
    is_disconnected: bool = False
    is_revoked: bool = False


class EventHub:
    """A hub that sends every event to every listener. Not thread-safe, except for methods ending in `_threadsafe`.

    Events are numbered from 1; `run` distinguishes their ids from those before a restart. The hub is full once
    `max_anonymous` listeners have sent no credential; the caller refuses further ones.
    """

    def __init__(self, *, max_anonymous: int = sys.maxsize) -> None:
        self._max_anonymous = max_anonymous
        self._anonymous_count = 0
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
    def is_full(self) -> bool:
        """Whether a listener without a credential must be refused."""
        return self._anonymous_count >= self._max_anonymous

    @property
    def last_id(self) -> str:
        return f"{self.run}-{self._number}"

    def start(self) -> None:
        """Store the running event loop, in which listeners are served, and start sending keep-alives."""
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(1.0, self._send_keepalives)

    def publish(self, name: str, data: bytes) -> None:
        """Send an event to all current listeners, soon and in order."""
        self._number += 1
        event = StreamEvent(self.last_id, name, data)
        self._kept.append(event)
        if not self._listeners or self._loop is None:
            return
        self._due.append((event, list(self._listeners)))
        if len(self._due) == 1:
            self._loop.call_soon(self._send_batches)

    def publish_threadsafe(self, name: str, data: bytes) -> None:
        """Publish an event from any thread. Does nothing before `start` and after `close`."""
        if self._loop is not None and self._open:
            with suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(self.publish, name, data)

    def find_missed(self, last: str) -> Sequence[StreamEvent] | None:
        """Return the events after the one with id `last`, or None if that id is unknown or too old."""
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
        credential_id: str | None = None,
    ) -> bool:
        """Serve one listener until `wait_until_gone` returns, it is too slow, or the hub is closed.

        `get_first_events` returns the events to send first. A listener that takes too long for them is disconnected.
        Return whether the stream ended because the credential was revoked.
        """
        if not self._open:
            return False
        self._listener_number += 1
        listener = _Listener(write, self._listener_number % KEEPALIVE_SECONDS, credential_id)
        self._anonymous_count += credential_id is None
        try:
            first_events = get_first_events()
            self._listeners[listener] = None
            for event in first_events:
                await write(event)
            listener.is_ready = True
            await wait_until_gone()
        except asyncio.CancelledError:
            assert listener.task is not None
            if not listener.is_disconnected or listener.task.uncancel() > 0:  # the task was cancelled by others, too
                raise
        finally:
            self._listeners.pop(listener, None)
            self._anonymous_count -= credential_id is None
        return listener.is_revoked

    def list_credential_ids_threadsafe(self) -> frozenset[str]:
        """Return the ids of the credentials that listeners have sent. May be called from any thread."""
        listeners = list(self._listeners)  # one step, which the event loop cannot interrupt
        return frozenset(each.credential_id for each in listeners if each.credential_id is not None)

    def disconnect_revoked(self, credential_ids: Set[str]) -> None:
        """End the streams of these credentials."""
        for listener in [each for each in self._listeners if each.credential_id in credential_ids]:
            listener.is_revoked = True
            self._disconnect(listener)

    def disconnect_revoked_threadsafe(self, credential_ids: Set[str]) -> None:
        """End the streams of these credentials, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.disconnect_revoked, credential_ids)

    def close(self) -> None:
        """End every stream after sending what was published before, and refuse new listeners. May be repeated."""
        self._open = False
        while self._due:
            self._send_batch()
        for listener in list(self._listeners):
            self._disconnect(listener)

    def close_threadsafe(self) -> None:
        """Close the hub from any thread or a signal handler."""
        self._open = False
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.close)

    def _send_batches(self) -> None:
        assert self._loop is not None
        if self._due:  # empty if the hub was closed meanwhile
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
        """Send a keep-alive to a fifteenth of the listeners every second, never to all at the same time."""
        if self._loop is None or not self._open:
            return
        self._second += 1
        for listener in [each for each in self._listeners if each.keepalive_second == self._second % KEEPALIVE_SECONDS]:
            self._send_to(listener, KEEPALIVE)
        self._loop.call_later(1.0, self._send_keepalives)

    def _send_to(self, listener: _Listener, event: StreamEvent) -> None:
        """Send without waiting. A listener whose buffers are full is too slow, and is disconnected.

        Instead of waking ten thousand tasks, one task runs the first step of each send, which is also the last step
        while the connection accepts data.
        """
        if listener not in self._listeners:
            return
        if listener.is_ready:
            sending = listener.write(event)
            try:
                sending.send(None)
            except StopIteration:
                return
            except Exception:  # noqa: BLE001, S110 - a broken connection; its own task gets the error
                pass
            else:
                sending.close()
        self._disconnect(listener)

    def _disconnect(self, listener: _Listener) -> None:
        self._listeners.pop(listener, None)
        listener.is_disconnected = True
        assert listener.task is not None
        listener.task.cancel()

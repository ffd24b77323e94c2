"""Wake workers when messages are sent, so that messages do not wait for the next poll."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # each imports a driver
    from holdfast.engines.postgres.connection import NotificationListener
    from holdfast.engines.sqlite.connection import ChangeCounter

GLANCES = ((0.1, 0.0005), (2.0, 0.002), (60.0, 0.01))
"""Poll intervals for a SQLite file: (up to this many seconds after the last message was found, interval in seconds)."""
SLOWEST_GLANCE = 0.02
DEAF_SECONDS = 0.5
"""Seconds between polls while notifications cannot be received."""
HEAR_SECONDS = 0.2
"""Seconds that the listener waits for notifications before it checks whether it must stop."""


class Bell(Protocol):
    """Notifies workers that a queue may have messages."""

    def heard(self, queue: str) -> object:
        """Return the current position of the notifications, for a worker that is about to poll. Later ones are new."""

    def mark(self, queue: str, heard: object) -> None:
        """Record that a worker has polled at position `heard` and left nothing behind."""

    def ring(self, queues: Iterable[str]) -> None:
        """Notify workers: this process has sent messages to these queues."""

    def wait(self, queue: str, seconds: float) -> bool:
        """Block until there may be messages since the mark, at most `seconds`. Return whether there may be."""

    def close(self) -> None:
        """Release all resources, and end all waits."""


class _Rings:
    """Counts the notifications of each queue in this process, and up to which its workers have polled."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_open = True
        self._rung: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def heard(self, queue: str) -> int:
        with self.changed:
            return self._rung.get(queue, 0)

    def mark(self, queue: str, heard: int) -> None:
        with self.changed:
            self._seen[queue] = heard

    def ring(self, queues: Iterable[str]) -> None:
        with self.changed:
            for queue in queues:
                self._rung[queue] = self._rung.get(queue, 0) + 1
            self.changed.notify_all()

    def wait(self, queue: str, seconds: float) -> bool:
        """Block until the queue is notified after the mark, at most `seconds`. Return whether it was."""
        with self.changed:
            return self.changed.wait_for(lambda: self._is_new(queue), seconds)

    def _is_new(self, queue: str) -> bool:
        return not self.is_open or self._rung.get(queue, 0) != self._seen.get(queue, 0)

    def close(self) -> None:
        with self.changed:
            self.is_open = False
            self.changed.notify_all()


class SqliteBell:
    """Polls the change counter of a shared file; `has_something` tells whether a change concerns a queue."""

    def __init__(self, counter: "ChangeCounter", has_something: Callable[[str], bool]) -> None:
        self._counter = counter
        self._has_something = has_something
        self._rings = _Rings()
        self._versions: dict[str, int | None] = {}
        self._last_found_at: dict[str, float] = {}

    def heard(self, queue: str) -> tuple[int, int | None]:
        return self._rings.heard(queue), self._counter.read()

    def mark(self, queue: str, heard: object) -> None:
        assert isinstance(heard, tuple)
        rung, self._versions[queue] = heard
        self._rings.mark(queue, rung)

    def ring(self, queues: Iterable[str]) -> None:
        self._rings.ring(queues)

    def wait(self, queue: str, seconds: float) -> bool:
        began = time.monotonic()
        # Kept across calls, because a waiting worker calls often.
        last_found_at = self._last_found_at.setdefault(queue, began)
        known = self._versions.get(queue)
        while True:
            version = self._counter.read()
            if version != known and self._has_something(queue):
                break
            known = version
            now = time.monotonic()
            waited = now - began
            pause = DEAF_SECONDS if version is None else _glance(now - last_found_at)
            if self._rings.wait(queue, max(0.0, min(pause, seconds - waited))):
                break
            if waited >= seconds:
                return False
        self._last_found_at[queue] = time.monotonic()
        return True

    def close(self) -> None:
        self._rings.close()
        self._counter.close()


def _glance(waited: float) -> float:
    return next((pause for until, pause in GLANCES if waited < until), SLOWEST_GLANCE)


class PostgresBell:
    """Listens in one thread for all workers of this process, from the first wait on."""

    def __init__(self, listener: "NotificationListener") -> None:
        self._listener = listener
        self._rings = _Rings()
        self._queues: set[str] = set()
        self._thread: threading.Thread | None = None

    def heard(self, queue: str) -> int:
        return self._rings.heard(queue)

    def mark(self, queue: str, heard: object) -> None:
        assert isinstance(heard, int)
        self._rings.mark(queue, heard)

    def ring(self, queues: Iterable[str]) -> None:
        self._rings.ring(queues)

    def wait(self, queue: str, seconds: float) -> bool:
        with self._rings.changed:
            self._queues.add(queue)
            if self._thread is None and self._rings.is_open:
                self._thread = threading.Thread(target=self._listen, name="holdfast-queue-listener", daemon=True)
                self._thread.start()
        return self._rings.wait(queue, seconds)

    def close(self) -> None:
        self._rings.close()
        if self._thread is not None:
            self._thread.join()
        self._listener.close()

    def _listen(self) -> None:
        while self._rings.is_open:
            heard = self._listener.wait_for_notifications(HEAR_SECONDS)
            if heard is not None:
                self._rings.ring(heard)
                continue
            # It was not listening: any queue may have messages.
            with self._rings.changed:
                queues = list(self._queues)
            self._rings.ring(queues)
            with self._rings.changed:
                self._rings.changed.wait_for(lambda: not self._rings.is_open, HEAR_SECONDS)

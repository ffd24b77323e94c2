"""Bringing the latest state somewhere: one at a time, in order, until it has arrived or is old."""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.agent.state import State
from holdfast.status.sources.rhythm import pauses

logger = logging.getLogger("holdfast.agent")


class Receiver(Protocol):
    """Where states are brought."""

    def take(self, state: State, stopping: threading.Event) -> bool:
        """Take a state in; false if that failed, and it should be brought again. Ends soon after `stopping` is set."""


class Courier:
    """Brings states to one receiver, from a thread of its own. What was superseded meanwhile is never brought.

    What failed is brought again, after pauses that grow, until it arrives or the state has changed.
    """

    def __init__(self, receiver: Receiver, name: str, waits: Callable[[], Iterator[float]] | None = None) -> None:
        self._receiver = receiver
        self._waits = waits or (lambda: pauses(random.Random()))  # noqa: S311 - spreads load, hides nothing
        self._latest: State | None = None
        self._known: State | None = None
        """What arrived, or was brought last, arrived or not."""
        self._has_brought = False
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._bring, name=name, daemon=True)

    def start(self, arrived: State) -> None:
        """Begin; `arrived` needs not be brought."""
        with self._changed:
            self._known = arrived
            self._latest = self._latest or arrived
        self._thread.start()

    def submit(self, state: State) -> None:
        """Bring this next. Returns at once; also before `start`."""
        with self._changed:
            self._latest = state
            self._changed.notify()

    def bring_once(self) -> None:
        """Bring the latest state although it had arrived at `start`; nothing if one was brought since."""
        with self._changed:
            if not self._has_brought:
                self._known = None
                self._changed.notify()

    def stop(self) -> None:
        """Bring nothing more. May be repeated."""
        self._stopping.set()
        with self._changed:
            self._changed.notify()

    def join(self, within: float) -> None:
        """Wait, after `stop`, until what was under way has ended."""
        if self._thread.is_alive():
            self._thread.join(within)

    def _bring(self) -> None:
        waits = self._waits()
        last, pause = None, None
        while (state := self._next(pause)) is not None:
            if state != last:
                waits = self._waits()
            pause = None if self._take(state) else next(waits)
            last = state

    def _next(self, pause: float | None) -> State | None:
        """The state to bring: another than the known one, or after a pause that one again. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self._latest != self._known, pause)
            if self._stopping.is_set():
                return None
            self._known, self._has_brought = self._latest, True
            return self._latest

    def _take(self, state: State) -> bool:
        try:
            return self._receiver.take(state, self._stopping)
        except Exception:
            logger.exception("telling the host failed")
            return False

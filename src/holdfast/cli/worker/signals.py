"""Being told to stop: SIGTERM and SIGINT gracefully, a second SIGINT at once."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

INTERRUPTED = 130
"""The exit code of whoever was told twice; that of every interrupted command, which is not imported here."""


class Stop:
    """Whether somebody has asked to stop. Not an event: what a signal interrupts may hold its lock."""

    __slots__ = ("is_asked",)

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self) -> None:
        """From any thread, and from a signal handler."""
        self.is_asked = True


class Signals:
    """Calls `stop` at the first SIGTERM or SIGINT, and `leave` at a second SIGINT, while it is open."""

    def __init__(self, stop: Callable[[], None], leave: Callable[[], None]) -> None:
        self._stop = stop
        self._leave = leave
        self._interrupts = 0
        self._kept: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._kept[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._kept:
            signal.signal(*self._kept.popitem())

    def _heard(self, number: int, _: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._leave()
        else:
            self._stop()

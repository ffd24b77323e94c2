"""Waiting in a terminal for somebody to press q."""

import os
import select
import sys
import time
from typing import Any, Self

_QUIT = (b"q", b"Q", b"")
"""Also the end of the input: nobody is there any more."""


class Keys:
    """What is pressed, at once and unseen, while it is open; nothing where there is no terminal to press keys on."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._kept: list[Any] = []

    def __enter__(self) -> Self:
        try:
            file = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # closed, or not a file
            return self
        if os.isatty(file):
            import termios
            import tty

            self._file, self._kept = file, termios.tcgetattr(file)
            tty.setcbreak(file)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            import termios

            termios.tcsetattr(self._file, termios.TCSADRAIN, self._kept)
            self._file = None

    def is_quit_within(self, seconds: float) -> bool:
        """Wait so long; true, and at once, when somebody wants no more."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._file is None:
                time.sleep(left)
            elif select.select([self._file], [], [], left)[0] and os.read(self._file, 1) in _QUIT:
                return True
        return False

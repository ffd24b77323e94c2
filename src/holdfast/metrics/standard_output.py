"""Lines on standard output, which several worker processes and their handlers share."""

import fcntl
import logging
import os
import threading
from contextlib import suppress
from queue import Full, Queue
from typing import Self

logger = logging.getLogger("holdfast.metrics")

STANDARD_OUTPUT = 1
MAX_LINES = 1000
"""Lines that wait to be written, while nobody reads."""
CLOSE_SECONDS = 3.0
"""Seconds for which the end waits until they are written."""


class StandardOutput:
    """Writes lines that stay in one piece, also where others who do so write to the same pipe, while it is open.

    Whoever has a line does not wait until somebody reads it: a thread writes, and what does not fit is left out. Not
    through `sys.stdout`, in which handlers may have left half a line. Thread-safe.
    """

    def __init__(self, file: int = STANDARD_OUTPUT) -> None:
        self._file = file
        self._lines: Queue[str | None] = Queue(MAX_LINES)
        # A daemon: whoever does not read must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="holdfast-output", daemon=True)
        self._has_partial_line = False

    def write(self, line: str) -> None:
        """Have a line written, with its end. Raises OSError if so many wait already that it is left out."""
        try:
            self._lines.put_nowait(line)
        except Full:
            raise OSError(f"nobody reads standard output: {MAX_LINES} lines wait to be written") from None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _write_all(self) -> None:
        has_failed = False
        while (line := self._lines.get()) is not None:
            try:
                self._write(line)
            except OSError as error:
                if not has_failed:  # one that nobody reads any more stays so
                    logger.warning("standard output cannot be written to, lines are lost: %s", error)
                has_failed = True

    def _write(self, line: str) -> None:
        begin = "\n" if self._has_partial_line else ""
        rest = f"{begin}{line}\n".encode()
        # Others must not write meanwhile: what is longer than PIPE_BUF, 4096 bytes, is not written at one go.
        with suppress(OSError):  # not every system locks every kind of file
            fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            while rest:
                self._has_partial_line = True  # until all of it is written
                rest = rest[os.write(self._file, rest) :]
            self._has_partial_line = False
        finally:
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN)

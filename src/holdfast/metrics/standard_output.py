"""Write lines to standard output and to files, which several worker processes and their handlers share."""

import fcntl
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Full, Queue
from typing import Self

logger = logging.getLogger("holdfast.metrics")

STANDARD_OUTPUT = 1
MAX_LINES = 1000
"""Lines that may wait while standard output is not read."""
CLOSE_SECONDS = 3.0
"""How long closing waits until waiting lines are written."""


class LineWriter:
    """A writer of whole lines, even if other processes with this class write to the same file. Not thread-safe."""

    def __init__(self, file: int, *, has_partial_line: bool = False) -> None:
        self._file = file
        self._has_partial_line = has_partial_line

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines, adding their line ends. Return how many were written: fewer if the file takes no more.

        Raise OSError if not even one was. If a line was cut short, the next call ends it first.
        """
        begin = b"\n" if self._has_partial_line else b""
        data = memoryview(b"".join((begin, *(line + b"\n" for line in lines))))
        written, failure = 0, None
        # Lock out other processes: more than PIPE_BUF, 4096 bytes, is not written atomically.
        with suppress(OSError):  # not every system locks every kind of file
            fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            failure = error
        finally:
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        whole, end = 0, len(begin)
        while whole < len(lines) and end + len(lines[whole]) + 1 <= written:
            end += len(lines[whole]) + 1
            whole += 1
        if written:
            self._has_partial_line = written > end
        if failure is not None and not whole:
            raise failure
        return whole


class StandardOutput:
    """A writer of whole lines, even if other processes with this class write to the same pipe. Thread-safe.

    `write` does not block when the reader is slow: a thread writes, and lines above MAX_LINES are dropped. Bypasses
    `sys.stdout`, in which handlers may have left half a line.
    """

    def __init__(self, file: int = STANDARD_OUTPUT) -> None:
        self._writer = LineWriter(file)
        self._lines: Queue[str | None] = Queue(MAX_LINES)
        # A daemon: a reader that has stopped reading must not prevent the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="holdfast-output", daemon=True)

    def write(self, line: str) -> None:
        """Queue a line, without its line end. Raise OSError if the buffer is full; then the line is dropped."""
        try:
            self._lines.put_nowait(line)
        except Full:
            raise OSError(f"standard output is not being read: {MAX_LINES} lines are waiting") from None

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
                self._writer.write([line.encode()])
            except OSError as error:
                if not has_failed:  # log only once: the cause usually lasts
                    logger.warning("cannot write to standard output, lines are lost: %s", error)
                has_failed = True

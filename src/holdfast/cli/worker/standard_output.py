"""Lines on standard output, which several worker processes and their handlers share."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STANDARD_OUTPUT = 1


class StandardOutput:
    """Writes lines that stay in one piece, also where others who do so write to the same pipe. Thread-safe.

    Not through `sys.stdout`, in which handlers may have left half a line. Raises OSError if nobody reads any more.
    """

    def __init__(self, file: int = STANDARD_OUTPUT) -> None:
        self._file = file
        self._lock = threading.Lock()  # the one of the system is between processes only

    def write(self, line: str) -> None:
        """Write a line, and its end; returns when all of it is written."""
        rest = f"{line}\n".encode()
        with self._lock, self._alone():
            while rest:
                rest = rest[os.write(self._file, rest) :]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process writes: what is longer than PIPE_BUF, 4096 bytes, is not written at one go."""
        with suppress(OSError):  # not every system locks every kind of file
            fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN)

"""Write telemetry to standard output or a file, one line of embedded metric format each, for a collector to read."""

import os
import time
from os import PathLike
from pathlib import Path

from holdfast.metrics.standard_output import STANDARD_OUTPUT, LineWriter
from holdfast.telemetry.sinks.buffered import Batch, BufferedSink

__all__ = ["FileSink", "StandardOutputSink"]

_MODE = 0o640
"""Permissions of a new file. Lines have paths and trace ids, which are not for every user of the machine."""
_WRITE_SECONDS = 0.2
"""Seconds in which another process that has written a part of a line has surely written more."""


class StandardOutputSink(BufferedSink):
    """A sink that writes lines to standard output, as AWS Lambda and most collectors of containers read them.

    Lines stay whole if several processes share the output. See BufferedSink.
    """

    def __init__(self) -> None:
        super().__init__(action="write telemetry to standard output")

    def _reset(self) -> None:
        super()._reset()
        self._writer = LineWriter(STANDARD_OUTPUT)

    def _disconnect(self) -> None:
        """Do nothing: standard output belongs to the process."""

    def _write(self, batch: Batch) -> None:
        while batch.lines:
            self._count_sent(batch, self._writer.write(batch.lines))


class FileSink(BufferedSink):
    """A sink that appends lines to a file, which several processes may share. See BufferedSink.

    It creates the file if it is missing, and opens it again after it was renamed or removed, so that any tool can
    rotate it. On a full disk it holds lines up to the bound and tries again. A line that was cut short by a full disk
    ends with a line break, and is written again as a whole.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__(action=f"write telemetry to {self._path}")

    def _reset(self) -> None:
        super()._reset()
        self._file: int | None = None
        self._writer: LineWriter | None = None

    def _disconnect(self) -> None:
        file, self._file, self._writer = self._file, None, None
        if file is not None:
            os.close(file)

    def _write(self, batch: Batch) -> None:
        writer = self._open()
        while batch.lines:
            self._count_sent(batch, writer.write(batch.lines))

    def _open(self) -> LineWriter:
        """Return a writer for the file that is at the path now."""
        if self._file is not None and not self._is_current(self._file):
            self._disconnect()
        if self._file is None or self._writer is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
            self._writer = LineWriter(self._file, has_partial_line=_has_partial_line(self._file))
        return self._writer

    def _is_current(self, file: int) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(file)
        return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _has_partial_line(file: int) -> bool:
    """Return whether a write was cut short, by a full disk or the end of a process.

    If the file still grows, another process is just writing its last line.
    """
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return False
    time.sleep(_WRITE_SECONDS)
    return os.fstat(file).st_size == size

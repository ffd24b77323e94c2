"""Follow files that grow and are rotated, by polling: `read` returns the lines that were added since the last call.

| event | outcome |
|---|---|
| renamed, and a new file is created | the old file is read to its end, then the new one from its start |
| copied and truncated, or replaced by a smaller file | read again from the start |
| deleted | read to its end; a new file of this name is read from its start |
| does not exist yet, or cannot be read | tried again at each call; `problems` has the reason |
| the last line has no end yet | returned when it is complete |
| a line is too long | skipped and counted |

As with every follower, lines are lost if a file is truncated and grows beyond its old size between two calls.
"""

import errno
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import msgspec

from holdfast._errors import InvalidValue

MAX_LINE_BYTES = 1_048_576
"""Longest line that is returned: the maximum of a log event of CloudWatch."""
MAX_READ_BYTES = 4 * 1_048_576
"""Maximum bytes that one call reads from one file, so that it returns quickly and no file delays the others."""
MAX_TOTAL_BYTES = 4 * MAX_READ_BYTES
"""Bytes of lines after which a call reads no further file, so that many files with a backlog fill no memory."""
MAX_FILES = 1_000
"""Maximum number of open files, below the usual limit of a process. The others are tried again at each call."""
_IDLE_READS = 5
"""A file that was renamed or deleted is closed after this many calls without a new line: its writer has moved on."""


class FilePosition(msgspec.Struct, frozen=True, array_like=True):
    """The position up to which a file was read. A file keeps its device and inode when it is renamed."""

    device: int
    inode: int
    offset: int


class FileFollower:
    """Follows files. `paths` may contain patterns such as `/var/log/shop/*.log`. Not thread-safe; close it at the end.

    `state` is that of an earlier follower: this one continues where it ended. Without it, files that exist at the first
    `read` are followed from there, and files that appear later from their start. With `from_start`, all are.
    """

    def __init__(self, paths: Iterable[str], *, state: str = "", from_start: bool = False) -> None:
        self._paths = tuple(paths)
        positions = _parse_state(state)
        self._positions = {(position.device, position.inode): position.offset for position in positions}
        self._from_start = from_start or bool(positions)
        self._files: dict[str, _OpenFile] = {}
        self._rotated: list[_OpenFile] = []
        self.overlong_lines = 0
        """Number of lines that were skipped because they were too long."""
        self.problems: dict[str, str] = {}
        """The reason for each file that cannot be read at present."""

    @property
    def state(self) -> str:
        """The position in each open file after the last line that was returned."""
        return msgspec.json.encode([file.position for file in self._files.values()]).decode()

    def read(self) -> list[bytes]:
        """Return the complete lines that were added since the last call, without their ends."""
        lines: list[bytes] = []
        self.problems = {}
        paths = self._find_paths()
        for path in [path for path in self._files if path not in paths]:
            self._rotated.append(self._files.pop(path))
        for path in paths:
            with self._noting_problem(path):
                self._open(path)
        self._from_start = True  # files that appear later are new
        size = 0
        for file in [*self._rotated, *self._files.values()]:
            if size >= MAX_TOTAL_BYTES:
                break
            with self._noting_problem(file.path):
                found = file.read()
                size += sum(map(len, found))
                lines += found
            self.overlong_lines += file.lines.overlong_lines
            file.lines.overlong_lines = 0
        for file in [file for file in self._rotated if file.idle_reads >= _IDLE_READS]:
            self._rotated.remove(file)
            lines += file.lines.finish()
            file.close()
        return lines

    def close(self) -> None:
        """Close all files. May be repeated."""
        while self._rotated:
            self._rotated.pop().close()
        while self._files:
            self._files.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _noting_problem(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problems[path] = error.strerror or str(error)

    def _find_paths(self) -> list[str]:
        found: dict[str, None] = {}
        for path in self._paths:
            matches = sorted(glob.glob(path)) if glob.has_magic(path) else [path]  # noqa: PTH207 - also absolute patterns
            found |= dict.fromkeys(matches)
        return list(found)

    def _open(self, path: str) -> None:
        """Open a file if it is not open. If it is open, and another file has its name now, open that one."""
        known = self._files.pop(path, None)
        try:
            status = os.stat(path)  # noqa: PTH116 - paths are texts, which may also be patterns
        except OSError:
            if known is not None:
                self._rotated.append(known)
            raise
        if known is not None and known.number != _number(status):
            self._rotated.append(known)
            known = None
        if known is None:
            known = next((file for file in self._rotated if file.number == _number(status)), None)
            if known is not None:  # a pattern matches its new name, too
                self._rotated.remove(known)
        if known is not None:
            self._files[path] = known
        elif not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        elif all(file.number != _number(status) for file in self._files.values()):  # else two names of one file
            if len(self._files) + len(self._rotated) >= MAX_FILES:
                raise OSError(errno.EMFILE, f"more than {MAX_FILES:,} files to follow")
            offset = self._positions.pop(_number(status), 0 if self._from_start else None)
            self._files[path] = _OpenFile(path, offset)


class LineSplitter:
    """Splits data that arrives in parts into complete lines, and skips lines that are too long."""

    def __init__(self) -> None:
        self.partial = b""
        """The start of a line that is not complete yet."""
        self.overlong_lines = 0
        self._is_skipping = False

    def split(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ends."""
        *lines, self.partial = (self.partial + data).split(b"\n")
        if lines and self._is_skipping:
            del lines[0]
            self._is_skipping = False
        if len(self.partial) > MAX_LINE_BYTES and not self._is_skipping:
            self._is_skipping = True
            self.overlong_lines += 1
        if self._is_skipping:
            self.partial = b""
        complete = [line for line in lines if len(line) <= MAX_LINE_BYTES]
        self.overlong_lines += len(lines) - len(complete)
        return complete

    def finish(self) -> list[bytes]:
        """Return the last line if it has no end."""
        last, self.partial = self.partial, b""
        return [last] if last else []


class _OpenFile:
    """One open file."""

    def __init__(self, path: str, offset: int | None) -> None:
        """Open a file at an offset; None means at its last line. Begin at 0 if no line starts there."""
        self.path = path
        self.idle_reads = 0
        """Number of calls of `read` since the last one that found data."""
        self.lines = LineSplitter()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        self.number = _number(status)
        self._offset = self._find_last_line(status.st_size) if offset is None else offset
        if self._offset and os.pread(self._descriptor, 1, self._offset - 1) != b"\n":
            self._offset = 0  # another file got the number of the one that the position is of

    @property
    def position(self) -> FilePosition:
        """The position after the last complete line."""
        return FilePosition(*self.number, self._offset - len(self.lines.partial))

    def read(self) -> list[bytes]:
        """Return the next complete lines."""
        if os.fstat(self._descriptor).st_size < self._offset:
            self._offset, self.lines = 0, LineSplitter()
        data = os.pread(self._descriptor, MAX_READ_BYTES, self._offset)
        self.idle_reads = 0 if data else self.idle_reads + 1
        self._offset += len(data)
        return self.lines.split(data)

    def close(self) -> None:
        os.close(self._descriptor)

    def _find_last_line(self, size: int) -> int:
        start = max(0, size - MAX_LINE_BYTES)
        return start + os.pread(self._descriptor, size - start, start).rfind(b"\n") + 1


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _parse_state(state: str) -> list[FilePosition]:
    try:
        return msgspec.json.decode(state or "[]", type=list[FilePosition])
    except msgspec.DecodeError as error:
        raise InvalidValue(f"the saved position in followed files cannot be read: {error}") from error

"""What the processes of the demonstration wrote down while it ran: one JSON object a line, read back at the end."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the client saw it."""

    at: float
    zone: str
    address: str
    status: int
    """0 when there was no answer."""
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the caller got nothing useful."""
        return self.status == 0 or self.status >= 500


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of the shop began to fail, by its own word."""

    at: float
    instance: str
    zone: str
    errors: float
    delay: float


class RecordFile:
    """A file that records are appended to. Thread-safe; a line is written whole."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def write(self, record: Any) -> None:
        """Append one record."""
        line = msgspec.json.encode(record) + b"\n"
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        self._file.close()


def read_records(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """The records of a file, oldest first; an unfinished last line (the writer was killed) is left out."""
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)

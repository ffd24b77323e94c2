"""Records that the processes of the demonstration write, one JSON object per line, for the summary at the end."""

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
    """0 if there was no answer."""
    seconds: float

    @property
    def ended_at(self) -> float:
        return self.at + self.seconds

    @property
    def failed(self) -> bool:
        """True if there was no answer, or an error of the server."""
        return self.status == 0 or self.status >= 500


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that an instance of the shop has recorded at its start."""

    at: float
    instance: str
    zone: str
    errors: float
    delay: float


class RecordFile:
    """A file to which records are appended, each in one write. Thread-safe."""

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
    """Yield the records of a file, oldest first. Skip an incomplete last line, whose writer was killed."""
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)

"""What producers and workers write down, so that it is known what they did when they are dead.

A line is one system call: of a process that is killed it is there whole, or not at all, or without its end and not
counted. Producers write `try NUMBER...`, then `kept NUMBER:ID...` (synced, before anything counts as acknowledged) or
`failed ERROR NUMBER...`; workers write a line for every attempt to handle a message, before the handler returns.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

UNKNOWN = "OutcomeUnknown"


class Ledger:
    """A file that lines are added to. Several threads may write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, line: str, *, sync: bool = False) -> None:
        os.write(self._file, f"{line}\n".encode())
        if sync:
            os.fsync(self._file)


def now() -> int:
    """Microseconds on a clock that all processes of the machine share."""
    return time.monotonic_ns() // 1000


class Tail:
    """Reads what was added to a file since the last time, whole lines only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(whole) + len(newline)
        return whole.decode().split("\n") if newline else []


class Handling(NamedTuple):
    """One attempt to handle a message, as its worker wrote it down."""

    number: int
    id: int
    tries: int
    leased: int
    began: int
    ended: int
    outcome: str
    worker: str

    @classmethod
    def read(cls, line: str, worker: str) -> "Handling":
        *numbers, outcome = line.split()
        number, id_, tries, leased, began, ended = map(int, numbers)
        return cls(number, id_, tries, leased, began, ended, outcome, worker)

    def line(self) -> str:
        return f"{self.number} {self.id} {self.tries} {self.leased} {self.began} {self.ended} {self.outcome}"


@dataclass(slots=True)
class Account:
    """Everything that was written down."""

    directory: Path
    tried: Counter[int] = field(default_factory=Counter)
    """How often each number was sent and may have been kept, as far as its producers could tell."""
    kept: dict[int, set[int]] = field(default_factory=dict)
    """The ids by which numbers were acknowledged."""
    errors: Counter[str] = field(default_factory=Counter)
    """Sends, of one message or many, by what they failed with."""
    handlings: list[Handling] = field(default_factory=list)
    handled: set[int] = field(default_factory=set)
    """Numbers that came to their end: done, or given up as they should be."""
    _tails: dict[str, Tail] = field(default_factory=dict)

    def read(self) -> None:
        """Take in what is new."""
        for path in sorted(self.directory.glob("*.ledger")):
            tail = self._tails.setdefault(path.name, Tail(path))
            if path.name.startswith("producer"):
                self._read_sends(tail.lines())
            else:
                self._read_handlings(tail.lines(), path.stem)

    def _read_sends(self, lines: Iterable[str]) -> None:
        for what, words in split(lines):
            if what == "try":
                self.tried.update(map(int, words))
            elif what == "kept":
                for word in words:
                    number, _, id_ = word.partition(":")
                    self.kept.setdefault(int(number), set()).add(int(id_))
            else:
                error, *numbers = words
                self.errors[error] += 1
                if error != UNKNOWN:  # every other error says that nothing was written
                    self.tried.subtract(map(int, numbers))

    def _read_handlings(self, lines: Iterable[str], worker: str) -> None:
        for line in lines:
            handling = Handling.read(line, worker)
            self.handlings.append(handling)
            if handling.outcome in ("done", "rejected", "hopeless"):
                self.handled.add(handling.number)


def split(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The first word of each line, and the others."""
    for line in lines:
        what, *words = line.split()
        yield what, words

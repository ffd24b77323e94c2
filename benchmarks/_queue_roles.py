"""What every system of the queue benchmark has: one that sends, one that works, and a tally of what was handled.

A system's module has a `Sender` and a `Runner`, which the child processes make (`_queue_child.py`). Their jobs are
those of the tally, by name, each with one number: the number of the message, or when it was sent.
"""

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

BATCH = 100
"""Messages that are sent in one step, by those that can."""
NAP = 0.005
"""Seconds that a job of the noise takes."""
CONCURRENCY = 8
"""Jobs at a time, in the noise."""


class Sender(Protocol):
    """A producer."""

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        """Send a message for each number, one after the other of the tenants; durable when it returns."""

    def send_one(self, job: str, number: float, tenant: str) -> None:
        """Send one message."""

    def close(self) -> None: ...


class Runner(Protocol):
    """A worker."""

    def start(self) -> None:
        """Begin to work, in the background."""

    def is_settled(self) -> bool:
        """Whether nothing is left: what was handled is acknowledged, too."""

    def stop(self) -> None: ...


class Tally:
    """What the jobs of a worker have done. The jobs may run in threads."""

    def __init__(self) -> None:
        self.jobs: Mapping[str, Callable[[float], None]] = {
            "nothing": self._nothing,
            "nap": self._nap,
            "victim": self._victim,
            "fresh": self._fresh,
        }
        self.expect(1 << 62, 0)

    def expect(self, target: int, numbers: int) -> None:
        """Count from 0: so many jobs in all, and those that have numbers below that once each."""
        self._seen = bytearray(numbers)
        self._count = count(1)
        self._target = target
        self._reached = threading.Event()
        self.handled = 0
        self.ended = 0.0
        """When the last of them had been done."""
        self._waited = array("d")  # and no tuples: what is measured is the worker's memory, not that of the measurement

    def wait(self, seconds: float) -> bool:
        return self._reached.wait(seconds)

    @property
    def latencies(self) -> list[tuple[float, float]]:
        """When each message was sent whose waiting is measured, and how long it waited."""
        waited = self._waited[:]
        return list(zip(waited[::2], waited[1::2], strict=True))

    @property
    def distinct(self) -> int:
        return sum(self._seen)

    def _nothing(self, number: float) -> None:
        if self._seen:
            self._seen[int(number)] = 1
        self._one_more()

    def _nap(self, number: float) -> None:
        time.sleep(NAP)
        self._nothing(number)

    def _victim(self, sent: float) -> None:
        self._waited.extend((sent, time.monotonic() - sent))
        time.sleep(NAP)
        self._one_more()

    def _fresh(self, sent: float) -> None:
        self._waited.extend((sent, time.monotonic() - sent))
        self._one_more()

    def _one_more(self) -> None:
        self.handled = now = next(self._count)  # one step of the interpreter: no lock is needed
        if now == self._target:
            self.ended = time.monotonic()
            self._reached.set()


Options = Mapping[str, Any]

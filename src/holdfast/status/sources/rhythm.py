"""Doing something again and again, from a thread, at times that no two processes share."""

import logging
import random
import threading
from collections.abc import Callable, Iterator

logger = logging.getLogger("holdfast.status")

PERIOD_SECONDS = 5.0
"""Between two pulls: with push beside it, the longest that a change stays unknown when push is broken."""
SPREAD = 0.2
"""The share by which each pause differs, up or down: ten thousand processes that start together drift apart."""
POKED_SECONDS = 0.5
"""A push that reaches everybody makes everybody pull: within this time, not all at once."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Bounds of the pauses before connecting again. The first is that long because everybody loses a server at once."""


class Rhythm:
    """Calls `work` at once and then about every `period` seconds, until it is closed."""

    def __init__(self, period: float, name: str, randomness: random.Random | None = None) -> None:
        self._period = period
        self._randomness = randomness or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._name = name
        self._poked = threading.Event()
        self._stopping = threading.Event()

    def start(self, work: Callable[[], None]) -> None:
        """Begin, in a thread."""

        def run() -> None:
            is_failing = False
            while not self._stopping.is_set():
                try:
                    work()
                except Exception:
                    if not is_failing:
                        logger.exception("%s failed in a way that nobody foresaw, and goes on", self._name)
                    is_failing = True
                else:
                    is_failing = False
                if self._poked.wait(self._period * self._randomness.uniform(1 - SPREAD, 1 + SPREAD)):
                    self._stopping.wait(self._randomness.uniform(0, POKED_SECONDS))
                    self._poked.clear()

        threading.Thread(target=run, name=self._name, daemon=True).start()

    def poke(self) -> None:
        """Do it soon."""
        self._poked.set()

    def close(self) -> None:
        """Do it no more. May be repeated."""
        self._stopping.set()
        self._poked.set()


def pauses(randomness: random.Random) -> Iterator[float]:
    """Seconds to wait before each further attempt: growing bounds, anywhere below them.

    Full jitter: of all ways to spread them, the one that leaves the fewest at the same time.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    bound = FIRST_PAUSE
    while True:
        yield randomness.uniform(0, bound)
        bound = min(bound * 2, LONGEST_PAUSE)

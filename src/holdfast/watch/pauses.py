"""Notice the times in which this process did not run, because the machine slept or the process was stopped.

A process that does not run receives nothing. So zones that seem to be silent in that time may be well.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock

logger = logging.getLogger("holdfast.watch")

BEAT_SECONDS = 1.0
"""Seconds between two notes of the background thread that the process runs."""
MIN_PAUSE = 5.0
"""Longest gap in seconds that is no pause. Busy machines have such gaps. The shortest step of alarms has 10 s."""
KEPT_PAUSES = 100
"""Maximum number of pauses to remember. Alarms need only those of the last minutes."""


class Pause(NamedTuple):
    """A time in which the process did not run, by the wall clock. A clock that is set ahead looks the same."""

    start: float
    end: float


class PauseMeter:
    """Measures pauses of this process. Thread-safe.

    A thread of its own notes the time, because the detection loop may wait for a database while telemetry is received.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock.wall()
        self._pauses: deque[Pause] = deque(maxlen=KEPT_PAUSES)
        self._loop = BackgroundLoop(
            "holdfast-pauses",
            self._step,
            action="notice pauses of this process",
            logger=logger,
            backoff=constant_backoff(BEAT_SECONDS),
        )

    def start(self) -> None:
        """Start the background thread. May be repeated."""
        self._loop.start()

    def close(self) -> None:
        """Stop the background thread. May be repeated."""
        self._loop.stop(timeout=None)

    def beat(self) -> None:
        """Note that the process runs now."""
        with self._lock:
            now, last = self._clock.wall(), self._last
            self._last = now
            if now - last <= MIN_PAUSE:
                return
            self._pauses.append(Pause(last, now))
        logger.warning("this process did not run for %.0f s: silence in that time is no missing data", now - last)

    def list_pauses(self) -> list[Pause]:
        """Return the latest pauses, oldest first."""
        with self._lock:
            return list(self._pauses)

    def _step(self) -> float:
        self.beat()
        return BEAT_SECONDS


def is_mostly_paused(start: float, end: float, pauses: Iterable[Pause]) -> bool:
    """Return whether the process ran for less than half of a time."""
    paused = sum(max(0.0, min(end, pause.end) - max(start, pause.start)) for pause in pauses)
    return 2 * paused > end - start

"""Versions for stores that forget: one that removes a status keeps nothing to count on from."""

import threading

from holdfast._clock import Clock


class Versions:
    """Versions of keys that grow with every write, also when what had the last one is gone. Thread-safe.

    They are milliseconds of the wall clock, or one more than the highest that was seen here. So a removed status comes
    back with a smaller version only if it was never seen here, and was written by a machine whose clock is ahead by
    more than has passed since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}

    def see(self, key: str, version: int) -> None:
        """Take note of a version that was read."""
        with self._lock:
            self._highest[key] = max(version, self._highest.get(key, 0))

    def next(self, key: str, expected: int) -> int:
        """A version greater than `expected`, and than all that were seen or handed out."""
        with self._lock:
            version = max(expected + 1, self._highest.get(key, 0) + 1, int(self._clock.wall() * 1000))
            self._highest[key] = version
            return version

"""Common parts of the stores in AWS: growing versions, and warnings of invalid statuses."""

import logging
import threading

from holdfast._clock import Clock
from holdfast._errors import InvalidValue

logger = logging.getLogger("holdfast.status")


class Versions:
    """Versions that grow with every write of a key, even after the status was deleted. Thread-safe.

    A version is the wall clock in milliseconds, or one more than the highest version seen in this process, if that is
    greater. So a deleted status can return with a smaller version only if this process never saw it, and the clock of
    its writer was ahead by more than the time since then.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}

    def observe(self, key: str, version: int) -> None:
        """Record a version that was read."""
        with self._lock:
            self._highest[key] = max(version, self._highest.get(key, 0))

    def next(self, key: str, expected: int) -> int:
        """Return a version greater than `expected` and all versions recorded or returned for `key`."""
        with self._lock:
            version = max(expected + 1, self._highest.get(key, 0) + 1, int(self._clock.wall() * 1000))
            self._highest[key] = version
            return version


class AwsStatusStore:
    """Base of stores in one AWS service. `resource` is the table or bucket, for messages."""

    def __init__(self, resource: str, clock: Clock) -> None:
        self._resource = resource
        self._versions = Versions(clock)
        self._warned_keys: set[str] = set()
        """Keys already warned about: the store is read twice a second."""

    def _warn(self, key: str, error: InvalidValue) -> None:
        if key not in self._warned_keys:
            self._warned_keys.add(key)
            logger.warning("ignoring %s of %s, which is not a valid zone status: %s", key, self._resource, error)

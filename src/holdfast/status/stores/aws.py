"""What the stores in AWS share: versions that grow, and writes whose reply was lost or whose condition failed."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from holdfast._clock import Clock
from holdfast._errors import HoldfastError, InvalidValue, OutcomeUnknown
from holdfast.engines.aws import AwsSession

logger = logging.getLogger("holdfast.status")


class Versions:
    """Versions of keys that grow with every write, also when the status that had the last one was removed. Thread-safe.

    They are milliseconds of the wall clock, or one more than the highest that was seen here. So a removed status comes
    back with a smaller version only if it was never seen here, and was written by a machine whose clock is ahead by
    more than has passed since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}

    def observe(self, key: str, version: int) -> None:
        """Take note of a version that was read."""
        with self._lock:
            self._highest[key] = max(version, self._highest.get(key, 0))

    def next(self, key: str, expected: int) -> int:
        """Return a version greater than `expected`, and than all that were seen or returned."""
        with self._lock:
            version = max(expected + 1, self._highest.get(key, 0) + 1, int(self._clock.wall() * 1000))
            self._highest[key] = version
            return version


class ConditionFailed(Exception):
    """The status is not as it was when it was read, perhaps by an earlier, unheard attempt of the same call."""

    def __init__(self, error: Any) -> None:
        super().__init__()
        self.was_retried = bool(error.response["ResponseMetadata"].get("RetryAttempts", 0))


class AwsStatusStore(ABC):
    """A store of one AWS service. `resource` is the table or the bucket, for messages."""

    def __init__(self, session: AwsSession, service: str, resource: str, clock: Clock) -> None:
        self._session = session
        self._service = service
        self._resource = resource
        self._versions = Versions(clock)
        self._warned_keys: set[str] = set()
        """Keys that were warned of already: the store is read twice a second."""

    @property
    def _client(self) -> Any:
        return self._session.client(self._service)

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Translate errors of the service; a condition that does not hold raises ConditionFailed."""

    @abstractmethod
    def _find(self, key: str) -> Any:
        """Return what is stored at a key; None if there is nothing."""

    def _write_conditionally(self, request: Callable[[], object], is_written: Callable[[Any], bool], key: str) -> bool:
        """Send a conditional write; return whether it was done.

        After a lost reply, `is_written` tells by what is stored.
        """
        try:
            with self._translate_errors():
                request()
        except OutcomeUnknown:
            if not is_written(self._read_back(key)):
                raise
        except ConditionFailed as error:
            return error.was_retried and is_written(self._read_back(key))
        return True

    def _read_back(self, key: str) -> Any:
        try:
            return self._find(key)
        except HoldfastError as error:  # the caller asked for the write: its outcome counts, not that of the read
            raise OutcomeUnknown(f"{key} of {self._resource} may or may not have been written: {error}") from error

    def _warn(self, key: str, error: InvalidValue) -> None:
        if key not in self._warned_keys:
            self._warned_keys.add(key)
            logger.warning("%s of %s is no zone status: %s", key, self._resource, error)

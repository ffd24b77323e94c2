"""Common parts of the stores in AWS: growing versions, and writes whose reply was lost or whose condition failed."""

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


class ConditionFailed(Exception):
    """The status has changed since it was read, perhaps by an earlier attempt of the same call whose reply was lost."""

    def __init__(self, error: Any) -> None:
        super().__init__()
        self.was_retried = bool(error.response["ResponseMetadata"].get("RetryAttempts", 0))


class AwsStatusStore(ABC):
    """Base of stores in one AWS service. `resource` is the table or bucket, for messages."""

    def __init__(self, session: AwsSession, service: str, resource: str, clock: Clock) -> None:
        self._session = session
        self._service = service
        self._resource = resource
        self._versions = Versions(clock)
        self._warned_keys: set[str] = set()
        """Keys already warned about: the store is read twice a second."""

    @property
    def _client(self) -> Any:
        return self._session.client(self._service)

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Translate the service's errors into Holdfast's; a failed condition raises ConditionFailed."""

    @abstractmethod
    def _find(self, key: str) -> Any:
        """Return the stored entry of `key`, or None."""

    def _write_conditionally(self, request: Callable[[], object], is_written: Callable[[Any], bool], key: str) -> bool:
        """Send a conditional write; return whether it took effect.

        After a lost reply, the entry is read again, and `is_written` decides.
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
        except HoldfastError as error:  # the caller asked for a write: report that its outcome is unknown
            raise OutcomeUnknown(f"{key} of {self._resource} may or may not have been written: {error}") from error

    def _warn(self, key: str, error: InvalidValue) -> None:
        if key not in self._warned_keys:
            self._warned_keys.add(key)
            logger.warning("ignoring %s of %s, which is not a valid zone status: %s", key, self._resource, error)

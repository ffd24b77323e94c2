"""The interface of a source, and two simple ones: a store that is polled, and a source fed by calls of `push`."""

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from http.client import HTTPException
from typing import Protocol

import msgspec

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._backoff import Chance
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast._types import StatusStore, Zone, ZoneStatus

logger = logging.getLogger("holdfast.status")

POLL_SECONDS = 5.0
"""Seconds between two polls: the longest time for which a change stays unknown while push is broken."""
SPREAD = 0.2
"""Share by which each pause varies, up or down, so that processes that start together drift apart."""
REFRESH_SPREAD_SECONDS = 0.5
"""A push that reaches all processes makes all of them poll: this spreads the polls."""

EXPECTED_ERRORS = (HoldfastError, OSError, HTTPException, ValueError, LookupError, msgspec.MsgspecError)
"""Errors of a source that is unavailable, or that sends an invalid answer."""


class StatusListener(Protocol):
    """A receiver of the statuses of one source."""

    def receive(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        """Receive all statuses of the source. `at` is the source's clock when it read them.

        `zones` are the zones that the source reports on; None means all.
        """


class StatusSource(Protocol):
    """A source that delivers zone statuses to a listener, from its own threads and without blocking the caller."""

    @property
    def name(self) -> str:
        """Name of the source, unique within a tracker, for logs."""

    def start(self, listener: StatusListener) -> None:
        """Start delivering, in background threads."""

    def refresh(self) -> None:
        """Read again soon, because something has probably changed."""

    def close(self) -> None:
        """Stop delivering. May be repeated."""


class PolledSource(ABC):
    """A source that reads immediately, then about every `poll_interval` seconds, with jitter."""

    def __init__(self, name: str, thread: str, poll_interval: float, chance: Chance = random.random) -> None:
        self.name = name
        self._listener: StatusListener | None = None
        self._poll_interval = poll_interval
        self._polling = BackgroundLoop(
            thread,
            self._step,
            action=f"read zone statuses from {name}",
            logger=logger,
            backoff=constant_backoff(poll_interval),
            spread=SPREAD,
            wake_spread=REFRESH_SPREAD_SECONDS,
            chance=chance,
            expected=EXPECTED_ERRORS,
        )

    def start(self, listener: StatusListener) -> None:
        self._listener = listener
        self._polling.start()

    def refresh(self) -> None:
        self._polling.wake()

    def close(self) -> None:
        self._polling.stop()

    @abstractmethod
    def _poll(self) -> None:
        """Read the statuses and report them. Raise if the source does not answer."""

    def _step(self) -> float:
        self._poll()
        return self._poll_interval

    def _report(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        if self._listener is not None:
            self._listener.receive(statuses, at, zones)


class StoreSource(PolledSource):
    """A source that polls a StatusStore (DynamoDB, S3, a database) directly: needs no server."""

    def __init__(
        self,
        store: StatusStore,
        *,
        name: str = "store",
        poll_interval: float = POLL_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, f"holdfast-{name}", poll_interval)
        self._store = store
        self._clock = clock or SystemClock()

    def _poll(self) -> None:
        self._report(self._store.read(), self._clock.wall())


class PushedSource(PolledSource):
    """A source fed by calls of `push`, for push-only channels such as SNS. Never becomes stale."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        super().__init__(name, f"holdfast-{name}", POLL_SECONDS)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}

    def push(self, status: ZoneStatus) -> None:
        """Report a changed status."""
        with self._lock:
            self._known[status.zone, status.workload] = status
        self._poll()

    def refresh(self) -> None:
        """Do nothing: there is nothing to poll."""

    def _poll(self) -> None:
        with self._lock:
            self._report(list(self._known.values()), self._clock.wall())

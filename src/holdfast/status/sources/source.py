"""What a source is, and the two simple ones: a store that is read, and one that is told."""

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
"""Between two pulls: with push beside it, the longest that a change stays unknown when push is broken."""
SPREAD = 0.2
"""The share by which each pause differs, up or down: ten thousand processes that start together drift apart."""
REFRESH_SPREAD_SECONDS = 0.5
"""A push that reaches everybody makes everybody pull: within this time, not all at once."""

EXPECTED_ERRORS = (HoldfastError, OSError, HTTPException, ValueError, LookupError, msgspec.MsgspecError)
"""What a source may raise that is away, or that answers nonsense."""


class StatusListener(Protocol):
    """Who wants to know."""

    def receive(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        """Take all statuses of the source, and the wall time there; `zones` are its zones, if it does not know all."""


class StatusSource(Protocol):
    """One voice about zones. It speaks from threads of its own, and whoever listens is never held up."""

    @property
    def name(self) -> str:
        """How people tell it from others."""

    def start(self, listener: StatusListener) -> None:
        """Begin to speak, in threads."""

    def refresh(self) -> None:
        """Look anew, soon: something has probably changed."""

    def close(self) -> None:
        """Say no more. May be repeated."""


class PolledSource(ABC):
    """A source that reads immediately and then about every `poll_interval` seconds, with jitter."""

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
        """Find out what is so, and say it. Raises if there is no answer."""

    def _step(self) -> float:
        self._poll()
        return self._poll_interval

    def _report(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        if self._listener is not None:
            self._listener.receive(statuses, at, zones)


class StoreSource(PolledSource):
    """Reads a StatusStore (DynamoDB, S3, a database) itself: nothing but the store has to work."""

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
    """Says what it is told with `push`, for channels that only push, such as SNS. Never goes stale by itself."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        super().__init__(name, f"holdfast-{name}", POLL_SECONDS)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}

    def push(self, status: ZoneStatus) -> None:
        """Take a change."""
        with self._lock:
            self._known[status.zone, status.workload] = status
        self._poll()

    def refresh(self) -> None:
        """Do nothing: there is nowhere to look."""

    def _poll(self) -> None:
        with self._lock:
            self._report(list(self._known.values()), self._clock.wall())

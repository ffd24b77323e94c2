"""What a source is, and the two simple ones: a store that is read, and one that is told."""

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from http.client import HTTPException
from typing import Protocol

import msgspec

from holdfast._background import BackgroundLoop, steady
from holdfast._backoff import Chance
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast._types import StatusStore, Zone, ZoneStatus

logger = logging.getLogger("holdfast.status")

PERIOD_SECONDS = 5.0
"""Between two pulls: with push beside it, the longest that a change stays unknown when push is broken."""
SPREAD = 0.2
"""The share by which each pause differs, up or down: ten thousand processes that start together drift apart."""
POKED_SECONDS = 0.5
"""A push that reaches everybody makes everybody pull: within this time, not all at once."""

NO_ANSWER = (HoldfastError, OSError, HTTPException, ValueError, LookupError, msgspec.MsgspecError)
"""What a source may raise that is away, or that answers nonsense."""


class Listener(Protocol):
    """Who wants to know."""

    def hear(self, statuses: Iterable[ZoneStatus], at: float, about: frozenset[Zone] | None = None) -> None:
        """Take all statuses of the source, and the wall time there; `about` are its zones, if it does not know all."""


class Source(Protocol):
    """One voice about zones. It speaks from threads of its own, and whoever listens is never held up."""

    @property
    def name(self) -> str:
        """How people tell it from others."""

    def start(self, listener: Listener) -> None:
        """Begin to speak, in threads."""

    def poke(self) -> None:
        """Look anew, soon: something has probably changed."""

    def close(self) -> None:
        """Say no more. May be repeated."""


class PolledSource(ABC):
    """A source that looks at once and then about every `period` seconds, at times that no two processes share."""

    def __init__(self, name: str, thread: str, period: float, chance: Chance = random.random) -> None:
        self.name = name
        self._listener: Listener | None = None
        self._period = period
        self._polling = BackgroundLoop(
            thread,
            self._step,
            doing=f"read zone statuses from {name}",
            logger=logger,
            backoff=steady(period),
            spread=SPREAD,
            wake_spread=POKED_SECONDS,
            chance=chance,
            expected=NO_ANSWER,
        )

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._polling.start()

    def poke(self) -> None:
        self._polling.wake()

    def close(self) -> None:
        self._polling.stop()

    @abstractmethod
    def _look(self) -> None:
        """Find out what is so, and say it. Raises if there is no answer."""

    def _step(self) -> float:
        self._look()
        return self._period

    def _say(self, statuses: Iterable[ZoneStatus], at: float, about: frozenset[Zone] | None = None) -> None:
        if self._listener is not None:
            self._listener.hear(statuses, at, about)


class StoreSource(PolledSource):
    """Reads a StatusStore (DynamoDB, S3, a database) itself: nothing but the store has to work."""

    def __init__(
        self, store: StatusStore, *, name: str = "store", period: float = PERIOD_SECONDS, clock: Clock | None = None
    ) -> None:
        super().__init__(name, f"holdfast-{name}", period)
        self._store = store
        self._clock = clock or SystemClock()

    def _look(self) -> None:
        self._say(self._store.read(), self._clock.wall())


class PushedSource(PolledSource):
    """Says what it is told with `tell`, for channels that only push, such as SNS. Never goes stale by itself."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        super().__init__(name, f"holdfast-{name}", PERIOD_SECONDS)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}

    def tell(self, status: ZoneStatus) -> None:
        """Take a change."""
        with self._lock:
            self._known[status.zone, status.workload] = status
        self._look()

    def poke(self) -> None:
        """Do nothing: there is nowhere to look."""

    def _look(self) -> None:
        with self._lock:
            self._say(list(self._known.values()), self._clock.wall())

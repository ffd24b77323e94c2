"""What a source is, and the two simple ones: a store that is read, and somebody who tells."""

import logging
import threading
from collections.abc import Iterable
from typing import Protocol

from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast._types import StatusStore, Zone, ZoneStatus
from holdfast.status.sources.rhythm import PERIOD_SECONDS, Rhythm

logger = logging.getLogger("holdfast.status")


class Listener(Protocol):
    """Who wants to know."""

    def hear(self, statuses: Iterable[ZoneStatus], at: float, about: frozenset[Zone] | None = None) -> None:
        """Take everything that the source holds to be so, and the wall time there.

        `about` are the zones that it was asked about, if it was not about all.
        """


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


class StoreSource:
    """Reads a StatusStore (DynamoDB, S3, a database) itself: nothing but the store has to work."""

    def __init__(
        self, store: StatusStore, *, name: str = "store", period: float = PERIOD_SECONDS, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock or SystemClock()
        self._rhythm = Rhythm(period, f"holdfast-{name}")

    @property
    def name(self) -> str:
        return self._name

    def start(self, listener: Listener) -> None:
        def look() -> None:
            try:
                listener.hear(self._store.read(), self._clock.wall())
            except HoldfastError as error:
                logger.warning("%s is silent: %s", self._name, error)

        self._rhythm.start(look)

    def poke(self) -> None:
        self._rhythm.poke()

    def close(self) -> None:
        self._rhythm.close()


class PushedSource:
    """Says what it is told with `tell`, for channels that only push, such as SNS. Never goes stale by itself."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}
        self._rhythm = Rhythm(PERIOD_SECONDS, f"holdfast-{name}")
        self._listener: Listener | None = None

    @property
    def name(self) -> str:
        return self._name

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._rhythm.start(self._say)

    def tell(self, status: ZoneStatus) -> None:
        """Take a change."""
        with self._lock:
            self._known[status.zone, status.workload] = status
        self._say()

    def poke(self) -> None:
        """There is nowhere to look."""

    def close(self) -> None:
        self._rhythm.close()

    def _say(self) -> None:
        if self._listener is not None:
            with self._lock:
                self._listener.hear(list(self._known.values()), self._clock.wall())

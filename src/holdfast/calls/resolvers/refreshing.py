"""Endpoints that are asked for again and again, and always known at once."""

import logging
import math
import random
import threading
from typing import Self

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, EngineUnavailable, HoldfastError, InvalidValue
from holdfast._forks import renew_after_fork
from holdfast.calls.periodic import spread
from holdfast.calls.resolvers.resolver import ByZone, Resolver, tidy

logger = logging.getLogger("holdfast.calls")

PERIOD_SECONDS = 30.0
"""Between two look-ups. Instances come and go in minutes; in the meantime a retry finds another one."""
SPREAD = 0.2
"""The share by which each pause differs, so that processes that start together drift apart."""
LONGEST_SLEEP = 1.0
"""Seconds after which the thread of a list that was stopped has noticed."""


class Refreshing:
    """Asks a resolver about every 30 s, and keeps what it said: a Directory. Thread-safe; a context manager.

    A thread of its own asks, so that no call ever waits for a look-up, and none finds the list of an hour ago after an
    idle hour. Only the first `start` waits, because nothing is known before, and raises what the resolver raises;
    with `known`, the endpoints to begin with, it does neither.

    What was last known stays when the resolver fails, and also when it finds nobody: an empty list is rather a mistake
    of whoever keeps it, and calls that may fail are better than calls that must. A zone that disappears while others
    stay is gone. A forked child knows what its parent knew, and asks by itself if its parent did.
    """

    def __init__(
        self,
        resolver: Resolver,
        every: float = PERIOD_SECONDS,
        *,
        known: ByZone | None = None,
        name: str = "a service",
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        if not 0 < every < math.inf:
            raise InvalidValue(f"every is {every}: expected seconds, more than 0")
        self._resolver = resolver
        self._every = every
        self._name = name
        self._clock = clock or SystemClock()
        self._randomness = randomness
        self._known = None if known is None else tidy(known)
        self._refreshed: float | None = None
        self._is_failing = False
        self._stopping: threading.Event | None = None
        self._unlock()
        renew_after_fork(self)

    def _unlock(self) -> None:
        self._lifecycle = threading.Lock()
        self._asking = threading.Lock()  # one look-up at a time: an old answer must not replace a new one

    def renew(self) -> None:
        """Go on asking in the child of a fork, which has none of its parent's threads."""
        self._unlock()
        if self._stopping is not None:
            self._begin(is_late=self._refreshed is None)

    def current(self) -> ByZone:
        """What is known, at once. Raises EngineError before the first `start`, if nothing is."""
        if self._known is None:
            raise EngineError(
                f"the endpoints of {self._name} are not known yet: start it, or use it in a with statement"
            )
        return self._known

    @property
    def age(self) -> float | None:
        """Seconds since the resolver last found somebody; None before the first time."""
        return None if self._refreshed is None else self._clock.monotonic() - self._refreshed

    def start(self) -> Self:
        """Begin to ask, in a thread. May be repeated, also after `stop`."""
        with self._lifecycle:
            if self._stopping is None:
                is_late = self._known is not None
                if not is_late:
                    with self._asking:
                        self._take(self._resolver.resolve())
                self._begin(is_late=is_late)
        return self

    def _begin(self, *, is_late: bool) -> None:
        stopping = self._stopping = threading.Event()
        name = f"holdfast-endpoints-{self._name}"
        threading.Thread(target=self._run, args=(stopping, is_late), name=name, daemon=True).start()

    def stop(self) -> None:
        """Ask no more; what is known stays. Does not wait for a look-up that has begun. May be repeated."""
        with self._lifecycle:
            if self._stopping is not None:
                self._stopping.set()
                self._stopping = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def refresh(self) -> bool:
        """Ask now, in the calling thread. False if that failed, which is in the log; then what is known stays."""
        return self._refresh(threading.Event())

    def _refresh(self, stopping: threading.Event) -> bool:
        with self._asking:
            try:
                found = self._resolver.resolve()
                if stopping.is_set():
                    return False
                self._take(found)
            except (HoldfastError, OSError) as error:
                if self._begins_to_fail(stopping):
                    logger.warning("endpoints of %s cannot be looked up, and stay as they are: %s", self._name, error)
                return False
            except Exception:
                if self._begins_to_fail(stopping):
                    logger.exception("looking up endpoints of %s failed in a way that nobody foresaw", self._name)
                return False
            if self._is_failing:
                logger.info("endpoints of %s can be looked up again", self._name)
            self._is_failing = False
            return True

    def _take(self, found: ByZone) -> None:
        found = tidy(found)
        if not found:
            raise EngineUnavailable("nobody is listed in any zone")
        self._refreshed = self._clock.monotonic()
        if self._known is None or _pairs(found) != _pairs(self._known):
            before = _pairs(self._known or {})
            self._known = found  # one assignment: readers see the old or the new, never half
            after = _pairs(found)
            logger.info(
                "endpoints of %s: %d; new: %s; gone: %s",
                *(self._name, len(after), _list(after - before), _list(before - after)),
            )

    def _begins_to_fail(self, stopping: threading.Event) -> bool:
        """Whether somebody should be told. Once stopped, what it asks may well be closed."""
        if self._is_failing or stopping.is_set():
            return False
        self._is_failing = True
        return True

    def _run(self, stopping: threading.Event, is_late: bool) -> None:
        due = self._clock.monotonic() if is_late else self._next()
        while not stopping.is_set():
            left = due - self._clock.monotonic()
            if left > 0:
                self._clock.sleep(min(left, LONGEST_SLEEP))
                continue
            self._refresh(stopping)
            due = self._next()

    def _next(self) -> float:
        return self._clock.monotonic() + spread(self._every, SPREAD, self._randomness)


def _pairs(by_zone: ByZone) -> frozenset[tuple[str, str]]:
    return frozenset((zone, address) for zone, addresses in by_zone.items() for address in addresses)


def _list(pairs: frozenset[tuple[str, str]]) -> str:
    return ", ".join(f"{address} in {zone}" for zone, address in sorted(pairs)) or "none"

"""A cache of endpoints, refreshed in the background."""

import logging
import math
import random
import threading
from typing import Self

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._backoff import Chance
from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, EngineUnavailable, InvalidValue
from holdfast._forks import register_after_fork
from holdfast.calls.resolvers.resolver import AddressesByZone, Resolver, normalize

logger = logging.getLogger("holdfast.calls")

INTERVAL = 30.0
"""Seconds between two look-ups. Instances change within minutes; until then, a retry reaches another one."""
SPREAD = 0.2
"""Fraction by which each pause varies, so that processes that start together do not look up together."""


class RefreshingEndpointCache:
    """An EndpointCache that asks a resolver every 30 s, in the background. Thread-safe; a context manager.

    A background thread calls the resolver, so that no call waits for a look-up, or uses an old list after an idle hour.
    Only the first `start` waits, and raises the resolver's errors; with `initial` endpoints it does neither.

    The last known endpoints stay when the resolver fails, and also when it returns none, which is probably an error:
    calls that may fail are better than calls that must. A zone that is missing while others remain is removed. A forked
    child starts with its parent's endpoints, and refreshes them if its parent did.
    """

    def __init__(
        self,
        resolver: Resolver,
        interval: float = INTERVAL,
        *,
        initial: AddressesByZone | None = None,
        name: str = "a service",
        clock: Clock | None = None,
        chance: Chance = random.random,
    ) -> None:
        if not 0 < interval < math.inf:
            raise InvalidValue(f"interval is {interval}: expected seconds, more than 0")
        self._resolver = resolver
        self._interval = interval
        self._name = name
        self._clock = clock or SystemClock()
        self._known = None if initial is None else normalize(initial)
        self._refreshed: float | None = None
        self.reset_after_fork()
        register_after_fork(self)  # before the loop: its thread in the child needs the new locks
        self._loop = BackgroundLoop(
            f"holdfast-endpoints-{name}",
            self._look_up,
            action=f"look up the endpoints of {name}",
            logger=logger,
            backoff=constant_backoff(interval),
            spread=SPREAD,
            chance=chance,
            continue_after_fork=True,
        )

    def reset_after_fork(self) -> None:
        """Replace the locks, in a forked child."""
        self._lifecycle = threading.Lock()
        self._asking = threading.RLock()  # one look-up at a time: an old answer must not replace a new one
        self._is_fresh = self._refreshed is not None
        """Whether the loop skips its first look-up, because `start` or the parent process has made one."""

    def current(self) -> AddressesByZone:
        """Return the known endpoints without waiting. Raise EngineError before the first `start` without `initial`."""
        if self._known is None:
            raise EngineError(f"the endpoints of {self._name} are not known yet: call start(), or use it in a `with`")
        return self._known

    @property
    def age(self) -> float | None:
        """Seconds since the resolver last returned endpoints; None before the first time."""
        return None if self._refreshed is None else self._clock.monotonic() - self._refreshed

    def start(self) -> Self:
        """Start the background thread. May be repeated, also after `stop`."""
        with self._lifecycle:
            if not self._loop.is_running:
                self._is_fresh = self._known is None
                if self._is_fresh:
                    with self._asking:
                        self._take(self._resolver.resolve())
                self._loop.start()
        return self

    def stop(self) -> None:
        """Stop refreshing and keep the known endpoints. Do not wait for a look-up in progress. May be repeated."""
        with self._lifecycle:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def refresh(self) -> bool:
        """Look up now, in the calling thread. On failure, log it, keep the known endpoints, and return False."""
        with self._asking:
            self._is_fresh = False
            self._loop.run_step()
            return not self._loop.is_failing

    def _look_up(self) -> float:
        with self._asking:
            if not self._is_fresh:
                found = self._resolver.resolve()
                if not self._loop.is_stopping:
                    self._take(found)
            self._is_fresh = False
            return self._interval

    def _take(self, found: AddressesByZone) -> None:
        found = normalize(found)
        if not found:
            raise EngineUnavailable("the resolver returned no endpoints")
        self._refreshed = self._clock.monotonic()
        if self._known is None or _pairs(found) != _pairs(self._known):
            before = _pairs(self._known or {})
            self._known = found  # one assignment: readers see the old mapping or the new one
            after = _pairs(found)
            logger.info(
                "endpoints of %s changed: now %d; added: %s; removed: %s",
                *(self._name, len(after), _list(after - before), _list(before - after)),
            )


def _pairs(by_zone: AddressesByZone) -> frozenset[tuple[str, str]]:
    return frozenset((zone, address) for zone, addresses in by_zone.items() for address in addresses)


def _list(pairs: frozenset[tuple[str, str]]) -> str:
    return ", ".join(f"{address} in {zone}" for zone, address in sorted(pairs)) or "none"

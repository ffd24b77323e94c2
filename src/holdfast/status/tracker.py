"""Track which zones are out, in memory. While the sources are unavailable, the last known state stays."""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from holdfast._background import BackgroundLoop
from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone, ZoneStatus
from holdfast.status.quorum import QuorumDecision, QuorumRules, SilencePolicy, Vote, count_votes
from holdfast.status.sources import StatusSource, build_source

logger = logging.getLogger("holdfast.status")

STALE_SECONDS = 15.0
"""Seconds without an answer after which a source no longer counts: three polls."""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """The name of a source and the seconds since its last answer, None if it never answered."""

    name: str
    age: float | None


class ZoneTracker:
    """A ZoneView fed by one or more sources. Thread-safe; start it, or use it as a context manager.

    A source is the address of a Holdfast server (`http://host:8470`), an address pattern that answers 200 or 500
    (`https://host/status/{zone}`, polled for the own `zone`), or any StatusSource. A zone is out when a majority of
    the sources report it out. While too few sources answer, zones keep their last known state by default. Reading the
    tracker never blocks.
    """

    def __init__(
        self,
        *sources: str | StatusSource,
        zone: Zone | None = None,
        when_silent: SilencePolicy | str = SilencePolicy.KEEP,
        stale_after: float = STALE_SECONDS,
        on_change: Callable[[Mapping[str | None, frozenset[Zone]]], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not sources:
            raise InvalidValue("no sources given: expected at least one, such as http://127.0.0.1:8470")
        if not 0 < stale_after < math.inf:
            raise InvalidValue(f"stale_after is {stale_after}: expected seconds, more than 0")
        when_silent = SilencePolicy(when_silent)
        if when_silent is SilencePolicy.OWN_ZONE_OUT and zone is None:
            raise InvalidValue("when_silent is own_zone_out: pass `zone` as well, the zone of this host")
        self._clock = clock or SystemClock()
        zones = () if zone is None else (parse_zone(zone),)
        self._sources = tuple(
            build_source(source, zones=zones) if isinstance(source, str) else source for source in sources
        )
        names = [source.name for source in self._sources]
        if len(set(names)) < len(names):
            raise InvalidValue(f"sources {', '.join(names)}: expected each only once, because each has one vote")
        self._rules = QuorumRules(
            sources=len(sources),
            stale_after=stale_after,
            when_silent=when_silent,
            own_zone=zone,
            started_at=self._clock.monotonic(),
        )
        self._votes: list[Vote | None] = [None] * len(sources)
        self._decision = QuorumDecision()
        self._on_change = on_change
        self._decided = threading.Event()
        self._loop = BackgroundLoop("holdfast-tracker", self.decide, action="decide which zones are out", logger=logger)

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        """Return the zones that are out or draining for `workload` or for all; None means only for all."""
        out = self._decision.zones_out
        return out[workload] if workload in out else out[None]  # faster than get() with a default

    def zones_out_for_any(self) -> frozenset[Zone]:
        """Return the zones that are out or draining for at least one workload."""
        return frozenset().union(*self._decision.zones_out.values())

    @property
    def age(self) -> float | None:
        """Seconds since a majority of the sources last answered; None if it never has."""
        answered = sorted((vote.answered_at for vote in self._votes if vote is not None), reverse=True)
        if len(answered) < self._rules.majority:
            return None
        return self._clock.monotonic() - answered[self._rules.majority - 1]

    def sources(self) -> list[SourceHealth]:
        """Return the name of each source, and the age of its last answer."""
        now = self._clock.monotonic()
        return [
            SourceHealth(source.name, None if vote is None else now - vote.answered_at)
            for source, vote in zip(self._sources, self._votes, strict=True)
        ]

    def start(self) -> Self:
        """Start following the sources, in background threads. May be repeated."""
        if not self._loop.is_running:
            self._loop.start()
            for index, source in enumerate(self._sources):
                source.start(_SourceListener(self, index))
        return self

    def wait(self, timeout: float) -> bool:
        """Wait until a majority of sources has answered once; return False after `timeout` seconds."""
        return self._decided.wait(timeout)

    def refresh(self) -> None:
        """Ask all sources again soon, because something has probably changed."""
        for source in self._sources:
            source.refresh()

    def close(self) -> None:
        """Stop following the sources. The last known state stays readable. May be repeated."""
        self._loop.stop()
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def receive(
        self, source_index: int, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None
    ) -> None:
        """Store all statuses of the source with this index. `at` is the source's clock when it read them.

        `zones` are the zones that the source reports on; None means all.
        """
        now = self._clock.monotonic()
        out = {
            (status.zone, status.workload): math.inf if status.expires is None else now + status.expires - at
            for status in statuses
            if status.is_out(at)
        }
        self._votes[source_index] = Vote(now, out, zones)
        self._loop.wake()

    def decide(self) -> float:
        """Decide again which zones are out. The tracker's own thread calls it; before `start`, call it yourself.

        Return the seconds after which the decision may change without a new answer.
        """
        before = self._decision.zones_out
        # One assignment: readers see the old or the new decision, never a mixture.
        self._decision = count_votes(tuple(self._votes), self._rules, self._decision, self._clock.monotonic())
        if self._decision.zones_out != before and self._on_change is not None:
            try:
                self._on_change(self._decision.zones_out)
            except Exception:
                logger.exception("the on_change callback of the zone tracker failed")
        if self._decision.answering_sources >= self._rules.majority:
            self._decided.set()
        return self._decision.review_at - self._clock.monotonic()


class _SourceListener:
    """The listener of one source, which passes its statuses to the tracker."""

    def __init__(self, tracker: ZoneTracker, index: int) -> None:
        self._tracker = tracker
        self._index = index

    def receive(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        self._tracker.receive(self._index, statuses, at, zones)

"""What a process knows about zones that are out: in memory, told by its sources, last known good when they are away."""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from holdfast._background import BackgroundLoop
from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._types import Zone, ZoneStatus
from holdfast.status.quorum import Decision, Rules, Vote, WhenSilent, decide
from holdfast.status.sources import Source, source_of

logger = logging.getLogger("holdfast.status")

STALE_SECONDS = 15.0
"""Silence after which a source no longer counts: three pulls."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One source, and the seconds since it was last heard; None if it never was."""

    name: str
    age: float | None


class Board:
    """A ZoneView over one or more sources. Thread-safe; start it, or use it as a context manager.

    A source is the address of a Holdfast server (`http://host:8470`), a pattern of addresses that answer 200 or 500
    (`https://host/status/{zone}`, asked about the own `zone`), or any Source. A zone is out when a majority of them say
    so. While sources are silent, zones stay by default as they were last known. Reading never waits for anything.
    """

    def __init__(
        self,
        *sources: str | Source,
        zone: Zone | None = None,
        when_silent: WhenSilent | str = WhenSilent.KEEP,
        stale_after: float = STALE_SECONDS,
        on_change: Callable[[Mapping[str | None, frozenset[Zone]]], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not sources:
            raise InvalidValue("a board without sources: expected at least one, such as http://127.0.0.1:8470")
        if not 0 < stale_after < math.inf:
            raise InvalidValue(f"stale_after is {stale_after}: expected seconds, more than 0")
        when_silent = WhenSilent(when_silent)
        if when_silent is WhenSilent.LEAVE and zone is None:
            raise InvalidValue("when_silent is leave: expected the own zone as well, to be left")
        self._clock = clock or SystemClock()
        zones = () if zone is None else (zone,)
        self._sources = tuple(
            source_of(source, zones=zones) if isinstance(source, str) else source for source in sources
        )
        names = [source.name for source in self._sources]
        if len(set(names)) < len(names):
            raise InvalidValue(f"sources {', '.join(names)}: expected each once, because each has one vote")
        self._rules = Rules(
            sources=len(sources),
            stale_after=stale_after,
            when_silent=when_silent,
            own_zone=zone,
            started=self._clock.monotonic(),
        )
        self._votes: list[Vote | None] = [None] * len(sources)
        self._decision = Decision()
        self._on_change = on_change
        self._decided = threading.Event()
        self._loop = BackgroundLoop("holdfast-board", self.review, doing="decide which zones are out", logger=logger)

    def out(self, workload: str | None = None) -> frozenset[Zone]:
        out = self._decision.out
        return out.get(workload, out[None])

    @property
    def age(self) -> float | None:
        """Seconds since enough sources were heard to decide anything; None before the first time."""
        heard = sorted((vote.heard for vote in self._votes if vote is not None), reverse=True)
        if len(heard) < self._rules.majority:
            return None
        return self._clock.monotonic() - heard[self._rules.majority - 1]

    def sources(self) -> list[Heard]:
        """Who is asked, and how long ago each was heard."""
        now = self._clock.monotonic()
        return [
            Heard(source.name, None if vote is None else now - vote.heard)
            for source, vote in zip(self._sources, self._votes, strict=True)
        ]

    def start(self) -> Self:
        """Begin to follow the sources, in threads. May be repeated."""
        if not self._loop.is_running:
            self._loop.start()
            for position, source in enumerate(self._sources):
                source.start(_Listener(self, position))
        return self

    def wait(self, seconds: float) -> bool:
        """Wait until enough sources were heard for the first time; false if that takes longer."""
        return self._decided.wait(seconds)

    def poke(self) -> None:
        """Ask all sources anew, soon: something has probably changed."""
        for source in self._sources:
            source.poke()

    def close(self) -> None:
        """Stop following; what is known stays. May be repeated."""
        self._loop.stop()
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def hear(
        self, position: int, statuses: Iterable[ZoneStatus], at: float, about: frozenset[Zone] | None = None
    ) -> None:
        """Take the statuses of the source at `position`, by its time `at`; `about` are its zones, None for all."""
        now = self._clock.monotonic()
        out = {
            (status.zone, status.workload): math.inf if status.expires is None else now + status.expires - at
            for status in statuses
            if status.is_out(at)
        }
        self._votes[position] = Vote(now, out, about)
        self._loop.wake()

    def review(self) -> float:
        """Decide anew, in the board's own thread; return the seconds until time alone may change the decision."""
        before = self._decision.out
        # One assignment: readers see the old or the new, never half.
        self._decision = decide(tuple(self._votes), self._rules, self._decision, self._clock.monotonic())
        if self._decision.out != before and self._on_change is not None:
            try:
                self._on_change(self._decision.out)
            except Exception:
                logger.exception("what was to be done about a change of zones failed")
        if self._decision.heard >= self._rules.majority:
            self._decided.set()
        return self._decision.review_at - self._clock.monotonic()


class _Listener:
    """Hands on what one source says."""

    def __init__(self, board: Board, position: int) -> None:
        self._board = board
        self._position = position

    def hear(self, statuses: Iterable[ZoneStatus], at: float, about: frozenset[Zone] | None = None) -> None:
        self._board.hear(self._position, statuses, at, about)

"""What alarms are decided by: a look at a queue, and what its workers did since the one before. Pure.

Whether new work is late is not told by how old messages are that are handed out: what is old, and the excess of noisy
tenants, waits by design while everybody else is served at once. So what counts is how long messages wait that are
fresh and not spilled, and one tenant is left out of it: whoever waits the most.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from holdfast.metrics.histogram import Histogram
from holdfast.metrics.names import Sketch
from holdfast.queue.alarms import Reading, What
from holdfast.queue.backend import Snapshot, Totals
from holdfast.queue.depth import age_at, age_of, is_first_attempt
from holdfast.queue.events import Polled
from holdfast.queue.message import Delivery
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.placement import is_own, priority_of

SHARE = 0.9
"""The share of first attempts whose age is told: what a tenth exceeds is trouble, one message that was stuck is not."""
NEARLY_ALL = 0.9
"""The share of what is wrong that one tenant must have to be named."""
AGING = 0.5
"""The share of the time for which messages are fresh: if a tenth waits as long as that, others get old meanwhile."""
TENANTS = 20
"""Tenants that are told apart when it is asked who waited long."""
CROWDS = 256
"""Tenants are told apart by so many values of a hash: who shares one with a noisy tenant is left out together with it,
which does not matter among many, and hardly ever happens among few."""
LOOKS = 6
"""Looks that are judged together, a minute: who is the only one to send for that long is not noisy, but alone."""


Crowd = dict[int, Histogram]
"""How long messages of tenants have waited, by the hash of the tenants' names."""


@dataclass(slots=True)
class Since:
    """The first attempts since a look."""

    fresh: Crowd = field(default_factory=dict)
    spilled: Crowd = field(default_factory=dict)
    everybody: set[int] = field(default_factory=set)
    has_reserve: bool = False

    def add(self, delivery: Delivery, age: float, *, is_fresh: bool) -> None:
        number = crc32(delivery.tenant.encode(errors="surrogatepass")) % CROWDS
        self.everybody.add(number)
        if delivery.lane < 0:
            self.spilled.setdefault(number, Histogram()).add(age)
        elif is_fresh:
            self.fresh.setdefault(number, Histogram()).add(age)
        self.has_reserve |= delivery.lane < 0 or not is_fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What workers did lately."""

    polls: int = 0
    empty: int = 0
    first_attempt_age: float | None = None
    """Seconds that nine of ten fresh messages did not exceed when they were handed out for the first time, without
    those of the tenant that waited the most; None: there were none."""
    spilled_age: float | None = None
    """The same for what is spilled, if most tenants have some of it; None: it is the business of a few."""
    has_reserve: bool = False
    """Whether something was handed out that comes after all that is fresh."""
    late_tenant: str | None = None
    """Who had nearly all of those that were late, if one tenant had."""
    was_heard: bool = False
    """Whether any poll was heard of, now or before: else workers may well do much, and nobody tells."""


class Recent:
    """Collects polls until they are looked at, in little room however many there are. Not thread-safe."""

    def __init__(self, late_from: float | None) -> None:
        self._late_from = late_from
        self._was_heard = False
        self._looks: deque[Since] = deque(maxlen=LOOKS)
        self.fresh_for = QueuePolicy().fresh_for
        """Seconds for which messages of this queue are fresh."""
        self._begin()

    def _begin(self) -> None:
        self._polls = self._empty = 0
        self._looks.append(Since())
        self._late = Sketch(TENANTS)

    def add(self, event: Polled) -> None:
        self._was_heard = True
        self._polls += 1
        self._empty += event.is_empty
        for delivery in event.leased.deliveries:
            if is_first_attempt(delivery):
                age = age_of(delivery, event.at)
                # What was fresh when it was handed out may be old when that is told.
                is_fresh = not self.fresh_for or age < 1.1 * self.fresh_for + 1.0
                self._looks[-1].add(delivery, age, is_fresh=is_fresh)
                if self._late_from is not None and age >= self._late_from:
                    self._late.add(delivery.tenant)

    def take(self) -> Work:
        """What there was since the last time, and shortly before."""
        work = Work(
            polls=self._polls,
            empty=self._empty,
            late_tenant=most_of(self._late.counts, self._late.total),
            was_heard=self._was_heard,
        )
        if self._looks[-1].everybody:
            fresh = _together(look.fresh for look in self._looks)
            spilled = _together(look.spilled for look in self._looks)
            everybody = len(set().union(*(look.everybody for look in self._looks)))
            work = replace(
                work,
                first_attempt_age=_without_worst(fresh, is_alone=everybody == 1),
                spilled_age=_age_of(spilled.values()) if 2 * len(spilled) > everybody else None,
                has_reserve=any(look.has_reserve for look in self._looks),
            )
        self._begin()
        return work


def _together(crowds: Iterable[Crowd]) -> Crowd:
    merged: Crowd = {}
    for crowd in crowds:
        for number, waits in crowd.items():
            merged.setdefault(number, Histogram()).merge(waits)
    return merged


def _without_worst(crowd: Crowd, *, is_alone: bool) -> float | None:
    """Return how long all tenants wait but one, which may be noisy; unless it is the only one there is."""
    worst = max(crowd, key=lambda number: crowd[number].sum, default=None)
    return _age_of(waits for number, waits in crowd.items() if is_alone or number != worst)


def _age_of(several: Iterable[Histogram]) -> float | None:
    """Return what nine of ten did not exceed; None: there are none."""
    merged = Histogram()
    for waits in several:
        merged.merge(waits)
    return merged.quantile(SHARE)


def reading_of(snapshot: Snapshot, work: Work, before: Totals | None = None) -> Reading:
    """What both say about everything that there are alarms on; `before` is how the queue was at the last look."""
    totals = snapshot.totals
    values: dict[What, float] = {
        What.DEAD_LETTERS: totals.dead,
        What.OLDEST_AGE: age_at(snapshot, totals.oldest) or 0.0,
        What.FIRST_ATTEMPT_AGE: _told(snapshot, work, before) if work.was_heard else _guessed(snapshot, before),
    }
    if work.polls:
        values[What.NO_EMPTY_POLLS] = 0 if work.empty else work.polls
    tenants = {
        What.DEAD_LETTERS: most_of({tenant.tenant: tenant.dead for tenant in snapshot.tenants}, totals.dead),
        What.FIRST_ATTEMPT_AGE: work.late_tenant,
        What.OLDEST_AGE: most_of({tenant.tenant: tenant.waiting for tenant in snapshot.tenants}, totals.waiting),
    }
    return Reading(
        queue=snapshot.queue,
        at=snapshot.at,
        values=values,
        tenants={what: tenant for what, tenant in tenants.items() if tenant is not None},
    )


def _told(snapshot: Snapshot, work: Work, before: Totals | None) -> float:
    """How long new work waits, by what workers tell."""
    totals, age, fresh_for = snapshot.totals, work.first_attempt_age, snapshot.policy.fresh_for
    waited = age_at(snapshot, totals.oldest_ready) or 0.0
    if age is None:
        # What is fresh comes first: if others had their turn, none of it was there. Else nobody is at work on anything.
        age = 0.0 if work.has_reserve else waited
    elif fresh_for and age >= AGING * fresh_for:
        # Only what is not old yet is handed out as fresh: what waits since then tells how late it is.
        age = max(age, waited)
    # Where most tenants have excess it is not theirs, but too much for the workers; unless they are catching up.
    is_behind = totals.spilled > 0 and before is not None and totals.waiting >= before.waiting
    return max(age, work.spilled_age or 0.0) if is_behind else age


def _guessed(snapshot: Snapshot, before: Totals | None) -> float:
    """How long new work waits where nobody tells: as long as the oldest that waits, without what a noisy tenant has."""
    now = snapshot.totals
    is_moving = before is not None and any(
        getattr(now, name) != getattr(before, name) for name in ("ready", "leased", "oldest")
    )
    if not is_moving or not now.spilled:  # nobody is at work, or nobody is noisy
        return age_at(snapshot, now.oldest_ready) or 0.0
    # A tenant has so many lanes of each priority, and one for itself: what is old in others as well is not the excess
    # of one.
    lanes: dict[tuple[int, bool], list[float]] = {}
    for lane in snapshot.lanes:
        if lane.lane >= 0 and lane.oldest is not None:
            kind = (priority_of(lane.lane), is_own(lane.lane))
            lanes.setdefault(kind, []).append(age_at(snapshot, lane.oldest) or 0.0)
    late = [sorted(ages, reverse=True)[1 if own else snapshot.policy.hand :] for (_, own), ages in lanes.items()]
    return max((age for ages in late for age in ages), default=0.0)


def most_of(counts: Mapping[str, int], total: int) -> str | None:
    """Who has nearly all of a total, if one has."""
    name = max(counts, key=lambda name: counts[name], default=None)
    return name if name is not None and 0 < NEARLY_ALL * total <= counts[name] else None

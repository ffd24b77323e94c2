"""What alarms are decided by: a look at a queue, and what its workers did since the one before. Pure.

Whether new work is late is not told by how old messages are that are handed out: what is old, and the excess of noisy
tenants, waits by design while everybody else is served at once. So what counts is how long messages wait that are
fresh and not spilled, and one tenant is left out of it: whoever waits the most.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from holdfast.metrics.cardinality import FrequencySketch
from holdfast.metrics.histogram import Histogram
from holdfast.queue.alarms import AlarmKind, QueueReading
from holdfast.queue.backend import QueueSnapshot, Totals
from holdfast.queue.depth import compute_age, compute_delivery_age, is_first_attempt
from holdfast.queue.events import PollEvent
from holdfast.queue.message import Delivery
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.placement import get_priority, is_own_lane

QUANTILE = 0.9
"""The share of first attempts whose age is told: what a tenth exceeds is trouble, one message that was stuck is not."""
NEARLY_ALL = 0.9
"""The share of what is wrong that one tenant must have to be named."""
AGING = 0.5
"""The share of the time for which messages are fresh: if a tenth waits as long as that, others get old meanwhile."""
MAX_LATE_TENANTS = 20
"""Tenants that are told apart when it is asked who waited long."""
TENANT_BUCKETS = 256
"""Tenants are told apart by so many values of a hash: who shares one with a noisy tenant is left out together with it,
which does not matter among many, and hardly ever happens among few."""
LOOKS_KEPT = 6
"""Looks that are judged together, a minute: who is the only one to send for that long is not noisy, but alone."""


WaitsByTenant = dict[int, Histogram]
"""How long messages of tenants have waited, by the hash of the tenants' names."""


@dataclass(slots=True)
class FirstAttempts:
    """The first attempts since a look."""

    fresh: WaitsByTenant = field(default_factory=dict)
    spilled: WaitsByTenant = field(default_factory=dict)
    tenants: set[int] = field(default_factory=set)
    has_reserve: bool = False

    def add(self, delivery: Delivery, age: float, *, is_fresh: bool) -> None:
        number = crc32(delivery.tenant.encode(errors="surrogatepass")) % TENANT_BUCKETS
        self.tenants.add(number)
        if delivery.lane < 0:
            self.spilled.setdefault(number, Histogram()).add(age)
        elif is_fresh:
            self.fresh.setdefault(number, Histogram()).add(age)
        self.has_reserve |= delivery.lane < 0 or not is_fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSummary:
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
    has_seen_polls: bool = False
    """Whether any poll was heard of, now or before: else workers may well do much, and nobody tells."""


class PollCollector:
    """Collects polls until they are looked at, in little room however many there are. Not thread-safe."""

    def __init__(self, late_from: float | None) -> None:
        self._late_from = late_from
        self._has_seen_polls = False
        self._looks: deque[FirstAttempts] = deque(maxlen=LOOKS_KEPT)
        self.fresh_for = QueuePolicy().fresh_for
        """Seconds for which messages of this queue are fresh."""
        self._begin()

    def _begin(self) -> None:
        self._polls = self._empty = 0
        self._looks.append(FirstAttempts())
        self._late = FrequencySketch(MAX_LATE_TENANTS)

    def add(self, event: PollEvent) -> None:
        self._has_seen_polls = True
        self._polls += 1
        self._empty += event.is_empty
        for delivery in event.result.deliveries:
            if is_first_attempt(delivery):
                age = compute_delivery_age(delivery, event.at)
                # What was fresh when it was handed out may be old when that is told.
                is_fresh = not self.fresh_for or age < 1.1 * self.fresh_for + 1.0
                self._looks[-1].add(delivery, age, is_fresh=is_fresh)
                if self._late_from is not None and age >= self._late_from:
                    self._late.add(delivery.tenant)

    def take(self) -> WorkSummary:
        """What there was since the last time, and shortly before."""
        work = WorkSummary(
            polls=self._polls,
            empty=self._empty,
            late_tenant=find_main_tenant(self._late.counts, self._late.total),
            has_seen_polls=self._has_seen_polls,
        )
        if self._looks[-1].tenants:
            fresh = _merge(look.fresh for look in self._looks)
            spilled = _merge(look.spilled for look in self._looks)
            tenants = len(set().union(*(look.tenants for look in self._looks)))
            work = replace(
                work,
                first_attempt_age=_without_worst(fresh, is_alone=tenants == 1),
                spilled_age=_compute_quantile(spilled.values()) if 2 * len(spilled) > tenants else None,
                has_reserve=any(look.has_reserve for look in self._looks),
            )
        self._begin()
        return work


def _merge(crowds: Iterable[WaitsByTenant]) -> WaitsByTenant:
    merged: WaitsByTenant = {}
    for crowd in crowds:
        for number, waits in crowd.items():
            merged.setdefault(number, Histogram()).merge(waits)
    return merged


def _without_worst(crowd: WaitsByTenant, *, is_alone: bool) -> float | None:
    """Return how long all tenants wait but one, which may be noisy; unless it is the only one there is."""
    worst = max(crowd, key=lambda number: crowd[number].sum, default=None)
    return _compute_quantile(waits for number, waits in crowd.items() if is_alone or number != worst)


def _compute_quantile(several: Iterable[Histogram]) -> float | None:
    """Return what nine of ten did not exceed; None: there are none."""
    merged = Histogram()
    for waits in several:
        merged.merge(waits)
    return merged.quantile(QUANTILE)


def build_reading(snapshot: QueueSnapshot, work: WorkSummary, before: Totals | None = None) -> QueueReading:
    """What both say about everything that there are alarms on; `before` is how the queue was at the last look."""
    totals = snapshot.totals
    values: dict[AlarmKind, float] = {
        AlarmKind.DEAD_LETTERS: totals.dead,
        AlarmKind.OLDEST_AGE: compute_age(snapshot, totals.oldest_since) or 0.0,
        AlarmKind.FIRST_ATTEMPT_AGE: _measure_wait(snapshot, work, before)
        if work.has_seen_polls
        else _estimate_wait(snapshot, before),
    }
    if work.polls:
        values[AlarmKind.NO_EMPTY_POLLS] = 0 if work.empty else work.polls
    tenants = {
        AlarmKind.DEAD_LETTERS: find_main_tenant(
            {tenant.tenant: tenant.dead for tenant in snapshot.tenants}, totals.dead
        ),
        AlarmKind.FIRST_ATTEMPT_AGE: work.late_tenant,
        AlarmKind.OLDEST_AGE: find_main_tenant(
            {tenant.tenant: tenant.waiting for tenant in snapshot.tenants}, totals.waiting
        ),
    }
    return QueueReading(
        queue=snapshot.queue,
        at=snapshot.at,
        values=values,
        tenants={kind: tenant for kind, tenant in tenants.items() if tenant is not None},
    )


def _measure_wait(snapshot: QueueSnapshot, work: WorkSummary, before: Totals | None) -> float:
    """How long new work waits, by what workers tell."""
    totals, age, fresh_for = snapshot.totals, work.first_attempt_age, snapshot.policy.fresh_for
    waited = compute_age(snapshot, totals.oldest_ready_since) or 0.0
    if age is None:
        # What is fresh comes first: if others had their turn, none of it was there. Else nobody is at work on anything.
        age = 0.0 if work.has_reserve else waited
    elif fresh_for and age >= AGING * fresh_for:
        # Only what is not old yet is handed out as fresh: what waits since then tells how late it is.
        age = max(age, waited)
    # Where most tenants have excess it is not theirs, but too much for the workers; unless they are catching up.
    is_behind = totals.spilled > 0 and before is not None and totals.waiting >= before.waiting
    return max(age, work.spilled_age or 0.0) if is_behind else age


def _estimate_wait(snapshot: QueueSnapshot, before: Totals | None) -> float:
    """How long new work waits where nobody tells: as long as the oldest that waits, without what a noisy tenant has."""
    now = snapshot.totals
    is_moving = before is not None and any(
        getattr(now, name) != getattr(before, name) for name in ("ready", "leased", "oldest_since")
    )
    if not is_moving or not now.spilled:  # nobody is at work, or nobody is noisy
        return compute_age(snapshot, now.oldest_ready_since) or 0.0
    # A tenant has so many lanes of each priority, and one for itself: what is old in others as well is not the excess
    # of one.
    lanes: dict[tuple[int, bool], list[float]] = {}
    for lane in snapshot.lanes:
        if lane.lane >= 0 and lane.oldest_since is not None:
            kind = (get_priority(lane.lane), is_own_lane(lane.lane))
            lanes.setdefault(kind, []).append(compute_age(snapshot, lane.oldest_since) or 0.0)
    late = [sorted(ages, reverse=True)[1 if own else snapshot.policy.hand :] for (_, own), ages in lanes.items()]
    return max((age for ages in late for age in ages), default=0.0)


def find_main_tenant(counts: Mapping[str, int], total: int) -> str | None:
    """Who has nearly all of a total, if one has."""
    name = max(counts, key=lambda name: counts[name], default=None)
    return name if name is not None and 0 < NEARLY_ALL * total <= counts[name] else None

"""Compute the values of alarms from a snapshot of a queue and from the polls of its workers. Pure.

The age of all leased messages does not tell whether new work is late: backlog messages and spilled messages of noisy
tenants wait by design, while all other messages are served immediately. The alarm therefore uses the wait of fresh,
unspilled messages, without those of the tenant that waits longest.
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
from holdfast.queue.message import Delivery, is_spill_lane
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.placement import get_priority, is_own_lane

QUANTILE = 0.9
"""The quantile of first attempts' ages that is reported: a tenth above it is a problem, one stuck message is not."""
NEARLY_ALL = 0.9
"""The share of a value that one tenant must cause to be named."""
AGING = 0.5
"""The share of `fresh_for`: if a tenth of the fresh messages wait that long, others become backlog meanwhile."""
MAX_LATE_TENANTS = 20
"""Tenants counted separately to find one that waited long."""
TENANT_BUCKETS = 256
"""Number of hash buckets of tenants. A tenant that shares a bucket with a noisy tenant is left out together with it:
negligible among many tenants, and rare among few."""
READINGS_MERGED = 6
"""Readings that are judged together, a minute: a tenant alone for that long is not noisy, but the only one."""


WaitsByTenant = dict[int, Histogram]
"""Waits of messages, in seconds, by the hash bucket of their tenants."""


@dataclass(slots=True)
class FirstAttempts:
    """The first attempts between two readings."""

    fresh: WaitsByTenant = field(default_factory=dict)
    spilled: WaitsByTenant = field(default_factory=dict)
    tenants: set[int] = field(default_factory=set)
    has_reserve: bool = False

    def add(self, delivery: Delivery, age: float, *, is_fresh: bool) -> None:
        number = crc32(delivery.tenant.encode(errors="surrogatepass")) % TENANT_BUCKETS
        self.tenants.add(number)
        is_spilled = is_spill_lane(delivery.lane)
        if is_spilled:
            self.spilled.setdefault(number, Histogram()).add(age)
        elif is_fresh:
            self.fresh.setdefault(number, Histogram()).add(age)
        self.has_reserve |= is_spilled or not is_fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSummary:
    """The recent activity of workers."""

    polls: int = 0
    empty: int = 0
    first_attempt_age: float | None = None
    """90th percentile of the seconds that fresh messages waited for their first lease, without those of the tenant that
    waited longest; None if there were none."""
    spilled_age: float | None = None
    """90th percentile for spilled messages if most tenants have some; None if only a few tenants do."""
    has_reserve: bool = False
    """Whether spilled or backlog messages were leased, which come after all fresh ones."""
    late_tenant: str | None = None
    """The tenant with nearly all late messages, if there is one."""
    has_seen_polls: bool = False
    """Whether any poll was ever reported. If not, workers may be active without reporting to this watcher."""


class PollCollector:
    """Collects polls until the next reading, in bounded memory. Not thread-safe."""

    def __init__(self, late_from: float | None) -> None:
        self._late_from = late_from
        self._has_seen_polls = False
        self._intervals: deque[FirstAttempts] = deque(maxlen=READINGS_MERGED)
        self.fresh_for = QueuePolicy().fresh_for
        """Seconds for which messages of this queue are fresh."""
        self._begin()

    def _begin(self) -> None:
        self._polls = self._empty = 0
        self._intervals.append(FirstAttempts())
        self._late = FrequencySketch(MAX_LATE_TENANTS)

    def add(self, event: PollEvent) -> None:
        self._has_seen_polls = True
        self._polls += 1
        self._empty += event.is_empty
        for delivery in event.result.deliveries:
            if is_first_attempt(delivery):
                age = compute_delivery_age(delivery, event.at)
                # Tolerance: a message that was fresh when it was leased may have aged until the event was emitted.
                is_fresh = not self.fresh_for or age < 1.1 * self.fresh_for + 1.0
                self._intervals[-1].add(delivery, age, is_fresh=is_fresh)
                if self._late_from is not None and age >= self._late_from:
                    self._late.add(delivery.tenant)

    def take(self) -> WorkSummary:
        """Return the polls since the last call, with the first attempts of the last `READINGS_MERGED` intervals."""
        work = WorkSummary(
            polls=self._polls,
            empty=self._empty,
            late_tenant=find_main_tenant(self._late.counts, self._late.total),
            has_seen_polls=self._has_seen_polls,
        )
        if self._intervals[-1].tenants:
            fresh = _merge(interval.fresh for interval in self._intervals)
            spilled = _merge(interval.spilled for interval in self._intervals)
            tenants = len(set().union(*(interval.tenants for interval in self._intervals)))
            work = replace(
                work,
                first_attempt_age=_without_worst(fresh, is_alone=tenants == 1),
                spilled_age=_compute_quantile(spilled.values()) if 2 * len(spilled) > tenants else None,
                has_reserve=any(interval.has_reserve for interval in self._intervals),
            )
        self._begin()
        return work


def _merge(intervals: Iterable[WaitsByTenant]) -> WaitsByTenant:
    merged: WaitsByTenant = {}
    for interval in intervals:
        for number, waits in interval.items():
            merged.setdefault(number, Histogram()).merge(waits)
    return merged


def _without_worst(tenants: WaitsByTenant, *, is_alone: bool) -> float | None:
    """Return the wait of all tenants but the one that waits longest and may be noisy, unless it is the only one."""
    worst = max(tenants, key=lambda number: tenants[number].sum, default=None)
    return _compute_quantile(waits for number, waits in tenants.items() if is_alone or number != worst)


def _compute_quantile(several: Iterable[Histogram]) -> float | None:
    """Return the 90th percentile of all waits, or None if there are none."""
    merged = Histogram()
    for waits in several:
        merged.merge(waits)
    return merged.quantile(QUANTILE)


def build_reading(snapshot: QueueSnapshot, work: WorkSummary, before: Totals | None = None) -> QueueReading:
    """Combine a snapshot and worker activity into alarm values. `before` are the totals at the previous reading."""
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
    """Return the seconds that new work waits, as workers report it."""
    totals, age, fresh_for = snapshot.totals, work.first_attempt_age, snapshot.policy.fresh_for
    waited = compute_age(snapshot, totals.oldest_ready_since) or 0.0
    if age is None:
        # Fresh messages come first. If others were leased, no fresh one was waiting; otherwise no worker is active.
        age = 0.0 if work.has_reserve else waited
    elif fresh_for and age >= AGING * fresh_for:
        # Messages that have become backlog are missing in `age`, so use the oldest waiting message as well.
        age = max(age, waited)
    # If most tenants have spilled messages, no tenant is noisy but the workers are too slow, unless they catch up.
    is_behind = totals.spilled > 0 and before is not None and totals.waiting >= before.waiting
    return max(age, work.spilled_age or 0.0) if is_behind else age


def _estimate_wait(snapshot: QueueSnapshot, before: Totals | None) -> float:
    """Return the seconds that new work waits, if no worker reports: the oldest wait that no single tenant causes."""
    now = snapshot.totals
    is_moving = before is not None and any(
        getattr(now, name) != getattr(before, name) for name in ("ready", "leased", "oldest_since")
    )
    if not is_moving or not now.spilled:  # no worker is active, or no tenant is noisy
        return compute_age(snapshot, now.oldest_ready_since) or 0.0
    # One tenant can fill `lanes_per_tenant` lanes of each priority, and its own lane. If messages are old in more
    # lanes, a single tenant is not the cause.
    lanes: dict[tuple[int, bool], list[float]] = {}
    for lane in snapshot.lanes:
        if not lane.is_spilled and lane.oldest_since is not None:
            kind = (get_priority(lane.lane), is_own_lane(lane.lane))
            lanes.setdefault(kind, []).append(compute_age(snapshot, lane.oldest_since) or 0.0)
    late = [
        sorted(ages, reverse=True)[1 if own else snapshot.policy.lanes_per_tenant :] for (_, own), ages in lanes.items()
    ]
    return max((age for ages in late for age in ages), default=0.0)


def find_main_tenant(counts: Mapping[str, int], total: int) -> str | None:
    """Return the tenant with nearly all of a total, or None if there is none."""
    name = max(counts, key=lambda name: counts[name], default=None)
    return name if name is not None and 0 < NEARLY_ALL * total <= counts[name] else None

"""What alarms are decided by: a look at a queue, and what its workers did since the one before. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.queue.alarms import Reading, What
from holdfast.queue.backend import Snapshot
from holdfast.queue.events import Polled
from holdfast.queue.metrics.ages import age_of, is_first_attempt
from holdfast.queue.metrics.busiest import Sketch
from holdfast.queue.metrics.depth import Depth, depth_of
from holdfast.telemetry.latency import Latencies

SHARE = 0.9
"""The share of first attempts whose age is told: what a tenth exceeds is trouble, one message that was stuck is not."""
NEARLY_ALL = 0.9
"""The share of what is wrong that one tenant must have to be named."""
TENANTS = 20
"""Tenants that are told apart when it is asked who waited long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What workers did between two looks."""

    polls: int = 0
    empty: int = 0
    first_attempt_age: float | None = None
    """Seconds that nine of ten first attempts did not exceed; None: there were none."""
    late_tenant: str | None = None
    """Who had nearly all of those that were late, if one tenant had."""
    was_heard: bool = False
    """Whether any poll was heard of, now or before: else workers may well do much, and nobody tells."""


class Recent:
    """Collects polls until they are looked at, in little room however many there are. Not thread-safe."""

    __slots__ = ("_ages", "_empty", "_late", "_late_from", "_longest", "_polls", "_was_heard")

    def __init__(self, late_from: float | None) -> None:
        self._late_from = late_from
        self._was_heard = False
        self._begin()

    def _begin(self) -> None:
        self._polls = self._empty = 0
        self._ages = Latencies()
        self._longest = 0.0
        self._late = Sketch(TENANTS)

    def add(self, event: Polled) -> None:
        """Take note of one poll."""
        self._was_heard = True
        self._polls += 1
        self._empty += event.is_empty
        for delivery in event.leased.deliveries:
            if is_first_attempt(delivery):
                age = age_of(delivery, event.at)
                self._ages.add(age)
                self._longest = max(self._longest, age)
                if self._late_from is not None and age >= self._late_from:
                    self._late.add(delivery.tenant)

    def take(self) -> Work:
        """What there was since the last time."""
        age = self._ages.quantile(SHARE)
        work = Work(
            polls=self._polls,
            empty=self._empty,
            # The middle of a bucket: it may be beyond all that is in it.
            first_attempt_age=None if age is None else min(age, self._longest),
            late_tenant=most_of(self._late.counts, self._late.total),
            was_heard=self._was_heard,
        )
        self._begin()
        return work


def reading_of(snapshot: Snapshot, work: Work) -> Reading:
    """What both say about everything that there are alarms on."""
    depth = depth_of(snapshot)
    values: dict[What, float] = {What.DEAD_LETTERS: depth.dead, What.OLDEST_AGE: depth.oldest or 0.0}
    age = _first_attempt_age(depth, work)
    if age is not None:
        values[What.FIRST_ATTEMPT_AGE] = age
    if work.polls:
        values[What.NO_EMPTY_POLLS] = 0 if work.empty else work.polls
    tenants = {
        What.DEAD_LETTERS: most_of({tenant.tenant: tenant.dead for tenant in snapshot.tenants}, depth.dead),
        What.FIRST_ATTEMPT_AGE: work.late_tenant,
        What.OLDEST_AGE: most_of({tenant.tenant: tenant.ready for tenant in snapshot.tenants}, depth.waiting),
    }
    return Reading(
        queue=snapshot.queue,
        at=snapshot.at,
        values=values,
        tenants={what: tenant for what, tenant in tenants.items() if tenant is not None},
    )


def _first_attempt_age(depth: Depth, work: Work) -> float | None:
    """How long new work waits. If nobody is at work on anything new, at least as long as the oldest has waited."""
    if work.first_attempt_age is not None:
        return work.first_attempt_age
    return (depth.oldest_ready or 0.0) if work.was_heard else None


def most_of(counts: Mapping[str, int], total: int) -> str | None:
    """Who has nearly all of a total, if one has."""
    name = max(counts, key=lambda name: counts[name], default=None)
    return name if name is not None and 0 < NEARLY_ALL * total <= counts[name] else None

"""A tenant as a step found it, and what the step changes about it."""

from functools import lru_cache

import msgspec

from holdfast.engines import Row
from holdfast.queue.backends.sql.dialect import Buckets, TenantChange
from holdfast.queue.policy import Limits, QueuePolicy, decode_limits
from holdfast.queue.rules.admission import TenantState
from holdfast.queue.rules.leasing import TenantCounters

COLUMNS = (
    "id, name, limits, ready, spilled, leased, delayed, rate_full_at, max_rate_full_at, pressure_full_at, "
    "spill_full_at, run_full_at, lease_full_at"
)
_MICRO = 1_000_000


class TenantRow:
    """One tenant of a queue."""

    __slots__ = (
        *("_policy", "dead", "delayed", "found", "has_spent", "id", "leased", "limits", "name", "own", "ready"),
        "spilled",
    )

    def __init__(self, row: Row, policy: QueuePolicy) -> None:
        self.id: int = row[0]
        self.name: str = row[1]
        self._policy = policy
        self.ready = self.spilled = self.leased = self.delayed = self.dead = 0
        """What the step adds to the counters."""
        self.has_spent = False
        self.refresh(row)

    def refresh(self, row: Row) -> None:
        """It was read again, and locked: nobody else changes it until the step is done."""
        self.own = None if row[2] is None else limits_of(bytes(row[2]))
        self.limits = self.own or self._policy.limits
        self.found = TenantState(
            ready=row[3],
            spilled=row[4],
            leased=row[5],
            delayed=row[6],
            rate_full_at=row[7] / _MICRO,
            max_rate_full_at=row[8] / _MICRO,
            pressure_full_at=row[9] / _MICRO,
            spill_full_at=row[10] / _MICRO,
            run_full_at=row[11] / _MICRO,
            lease_full_at=row[12] / _MICRO,
        )

    @property
    def is_limited(self) -> bool:
        """Whether it may not do what it likes, so that what it does must be counted exactly."""
        limits = self.limits
        return not (limits.rate is limits.max_rate is limits.run_rate is limits.concurrency is None)

    @property
    def state(self) -> TenantState:
        """What is known of it, with what the step has done so far."""
        found = self.found
        if not (self.ready or self.spilled or self.leased or self.delayed):
            return found
        return msgspec.structs.replace(
            found,
            ready=found.ready + self.ready,
            spilled=found.spilled + self.spilled,
            leased=found.leased + self.leased,
            delayed=found.delayed + self.delayed,
        )

    @property
    def counters(self) -> TenantCounters:
        """As they are after the step."""
        return TenantCounters(self.found.ready + self.ready, self.found.leased + self.leased)

    def spend(self, state: TenantState) -> None:
        """Keep the buckets of a state that the rules have returned. The tenant must be locked."""
        self.found = msgspec.structs.replace(
            self.found,
            rate_full_at=state.rate_full_at,
            max_rate_full_at=state.max_rate_full_at,
            pressure_full_at=state.pressure_full_at,
            spill_full_at=state.spill_full_at,
            run_full_at=state.run_full_at,
            lease_full_at=state.lease_full_at,
        )
        self.has_spent = True

    @property
    def buckets(self) -> Buckets:
        """As they are kept."""
        found = self.found
        return (
            round(found.rate_full_at * _MICRO),
            round(found.max_rate_full_at * _MICRO),
            round(found.pressure_full_at * _MICRO),
            round(found.spill_full_at * _MICRO),
            round(found.run_full_at * _MICRO),
            round(found.lease_full_at * _MICRO),
        )

    def change(self) -> TenantChange | None:
        """What to write; None: nothing has changed."""
        if self.ready or self.spilled or self.leased or self.delayed or self.dead or self.has_spent:
            buckets = self.buckets if self.has_spent else None
            return TenantChange(self.id, self.ready, self.spilled, self.leased, self.delayed, self.dead, buckets)
        return None


@lru_cache(maxsize=4096)
def limits_of(kept: bytes) -> Limits:
    """Limits as they were kept."""
    return decode_limits(kept)

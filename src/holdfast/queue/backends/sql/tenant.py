"""A tenant as a step has read it, and the changes that the step makes."""

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
        """Changes of the counters by this step."""
        self.has_spent = False
        self.refresh(row)

    def refresh(self, row: Row) -> None:
        """Update from a row that was read under a lock: no other transaction changes it until the step is done."""
        self.own = None if row[2] is None else limits_of(bytes(row[2]))
        self.limits = self.own or self._policy.limits
        self.found = TenantState(
            ready=row[3],
            spilled=row[4],
            leased=row[5],
            delayed=row[6],
            spill_rate_full_at=row[7] / _MICRO,
            max_rate_full_at=row[8] / _MICRO,
            pressure_full_at=row[9] / _MICRO,
            fresh_full_at=row[10] / _MICRO,
            run_full_at=row[11] / _MICRO,
            lease_full_at=row[12] / _MICRO,
        )

    @property
    def is_limited(self) -> bool:
        """Whether the tenant has limits, so that its use must be counted exactly."""
        limits = self.limits
        return not (limits.spill_rate is limits.max_rate is limits.run_rate is limits.concurrency is None)

    @property
    def state(self) -> TenantState:
        """The tenant's state, including the changes of this step."""
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
        """The counters after this step."""
        return TenantCounters(self.found.ready + self.ready, self.found.leased + self.leased)

    def spend(self, state: TenantState) -> None:
        """Take over the buckets of a state that the rules returned. The tenant must be locked."""
        self.found = msgspec.structs.replace(
            self.found,
            spill_rate_full_at=state.spill_rate_full_at,
            max_rate_full_at=state.max_rate_full_at,
            pressure_full_at=state.pressure_full_at,
            fresh_full_at=state.fresh_full_at,
            run_full_at=state.run_full_at,
            lease_full_at=state.lease_full_at,
        )
        self.has_spent = True

    @property
    def buckets(self) -> Buckets:
        """The buckets in their stored form."""
        found = self.found
        return (
            round(found.spill_rate_full_at * _MICRO),
            round(found.max_rate_full_at * _MICRO),
            round(found.pressure_full_at * _MICRO),
            round(found.fresh_full_at * _MICRO),
            round(found.run_full_at * _MICRO),
            round(found.lease_full_at * _MICRO),
        )

    def change(self) -> TenantChange | None:
        """Return the change to write, or None if nothing has changed."""
        if self.ready or self.spilled or self.leased or self.delayed or self.dead or self.has_spent:
            buckets = self.buckets if self.has_spent else None
            return TenantChange(self.id, self.ready, self.spilled, self.leased, self.delayed, self.dead, buckets)
        return None


@lru_cache(maxsize=4096)
def limits_of(kept: bytes) -> Limits:
    """Return stored limits."""
    return decode_limits(kept)

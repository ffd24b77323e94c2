"""What a change moves: which tenants, and which of their workers. Pure. Nothing is changed by looking."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.shards.shard import Shard

Tenant = TypeVar("Tenant")
Tenant_contra = TypeVar("Tenant_contra", contravariant=True)


class Sharding(Protocol[Tenant_contra]):
    """Whatever knows the shard of a tenant, by number or by name: `DesignedSharding`, `HashedSharding`, a `Layout`."""

    def shard(self, tenant: Tenant_contra, /) -> Shard:
        """The shard of a tenant."""


@dataclass(frozen=True, slots=True)
class Move(Generic[Tenant]):
    """One tenant that gets other workers."""

    tenant: Tenant
    leaves: tuple[str, ...]
    joins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan(Generic[Tenant]):
    """What would move if one sharding took the place of another, for so many tenants."""

    old: Sharding[Tenant]
    new: Sharding[Tenant]
    tenants: int
    movers: Sequence[Tenant]
    tenants_by_workers_changed: tuple[int, ...]
    """How many tenants have 0, 1, 2 and so on of their workers changed."""
    degraded: int
    """How many tenants have a worker that is drained, and so one less than they should."""
    down: Sequence[Tenant]
    """The tenants that lose their last worker that is not drained: nobody would serve them any more."""

    @property
    def moving_share(self) -> float:
        """The share of tenants that move."""
        return len(self.movers) / self.tenants if self.tenants else 0.0

    def moves(self) -> Iterator[Move[Tenant]]:
        """Who moves from where to where, one after the other: worked out again, so that a million take no memory."""
        for tenant in self.movers:
            before, after = self.old.shard(tenant).workers, self.new.shard(tenant).workers
            leaves = tuple(worker for worker in before if worker not in after)
            yield Move(tenant, leaves, tuple(worker for worker in after if worker not in before))


def plan(old: Sharding[Tenant], new: Sharding[Tenant], tenants: Iterable[Tenant]) -> Plan[Tenant]:
    """What moves when the new sharding takes the place of the old. Raises what either raises for a tenant."""
    movers: list[Tenant] = []
    down: list[Tenant] = []
    tenants_by_workers_changed = Counter[int]()
    count = degraded = 0
    for tenant in tenants:
        count += 1
        shard = new.shard(tenant)
        previous = old.shard(tenant)
        if len(shard.live_workers) < len(shard.slots):
            degraded += 1
            if previous.live_workers and not shard.live_workers:
                down.append(tenant)
        before, after = previous.workers, shard.workers
        if before != after and (different := max(len({*before} - {*after}), len({*after} - {*before}))):
            tenants_by_workers_changed[different] += 1
            movers.append(tenant)
    tenants_by_workers_changed[0] = count - len(movers)
    return Plan(
        old,
        new,
        count,
        movers,
        tuple(tenants_by_workers_changed[number] for number in range(max(tenants_by_workers_changed) + 1)),
        degraded,
        down,
    )

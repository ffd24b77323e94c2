"""The effects of replacing one sharding by another: which tenants move, and between which workers. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.shards.shard import Shard

Tenant = TypeVar("Tenant")
Tenant_contra = TypeVar("Tenant_contra", contravariant=True)


class Sharding(Protocol[Tenant_contra]):
    """A source of shards, by tenant number or name: `DesignedSharding`, `HashedSharding`, `Layout`."""

    def shard(self, tenant: Tenant_contra, /) -> Shard:
        """Return the shard of a tenant."""


@dataclass(frozen=True, slots=True)
class Move(Generic[Tenant]):
    """One tenant that gets other workers, with those that it leaves and joins."""

    tenant: Tenant
    leaves: tuple[str, ...]
    joins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan(Generic[Tenant]):
    """The effects of replacing sharding `old` by `new`. A plan changes nothing."""

    old: Sharding[Tenant]
    new: Sharding[Tenant]
    tenants: int
    moving_tenants: Sequence[Tenant]
    tenants_by_workers_changed: tuple[int, ...]
    """Number of tenants with 0, 1, 2, ... of their workers changed."""
    degraded: int
    """Number of tenants with a drained worker, and so with fewer live workers than a shard should have."""
    down: Sequence[Tenant]
    """The tenants that lose their last live worker: no worker would serve them."""

    @property
    def moving_share(self) -> float:
        return len(self.moving_tenants) / self.tenants if self.tenants else 0.0

    def moves(self) -> Iterator[Move[Tenant]]:
        """Yield the moves of all `moving_tenants`, each computed on demand, so that a million moves take no memory."""
        for tenant in self.moving_tenants:
            before, after = self.old.shard(tenant).workers, self.new.shard(tenant).workers
            leaves = tuple(worker for worker in before if worker not in after)
            yield Move(tenant, leaves, tuple(worker for worker in after if worker not in before))


def plan(old: Sharding[Tenant], new: Sharding[Tenant], tenants: Iterable[Tenant]) -> Plan[Tenant]:
    """Return the effects on `tenants` of replacing `old` by `new`. Errors of `old.shard` and `new.shard` are raised."""
    moving_tenants: list[Tenant] = []
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
            moving_tenants.append(tenant)
    tenants_by_workers_changed[0] = count - len(moving_tenants)
    return Plan(
        old,
        new,
        count,
        moving_tenants,
        tuple(tenants_by_workers_changed[number] for number in range(max(tenants_by_workers_changed) + 1)),
        degraded,
        down,
    )

"""A look at a queue in few numbers. Pure."""

from dataclasses import dataclass

from holdfast.calls.sinks.names import OTHER
from holdfast.queue.backend import Snapshot, TenantDepth
from holdfast.queue.metrics.busiest import Places

STATES = ("ready", "spilled", "leased", "delayed", "dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many messages of a queue are in which state; each is in one only."""

    ready: int
    """Waiting in lanes that tenants share, or in those of their own."""
    spilled: int
    """Waiting where the excess of tenants does."""
    leased: int
    delayed: int
    dead: int
    lanes: int
    """Lanes that are not empty."""
    oldest: float | None
    """Seconds for which the message has been waiting that waits the longest; None: none waits."""
    oldest_ready: float | None
    """The same, without those that are spilled."""

    @property
    def waiting(self) -> int:
        """All that could be handled now."""
        return self.ready + self.spilled


def depth_of(snapshot: Snapshot) -> Depth:
    """All lanes together, listed or not."""
    totals = snapshot.totals
    return Depth(
        ready=totals.ready,
        spilled=totals.spilled,
        leased=totals.leased,
        delayed=totals.delayed,
        dead=totals.dead,
        lanes=totals.lanes,
        oldest=_age(snapshot, totals.oldest),
        oldest_ready=_age(snapshot, totals.oldest_ready),
    )


def _age(snapshot: Snapshot, since: float | None) -> float | None:
    return None if since is None else max(0.0, snapshot.at - since)


def tenants_of(snapshot: Snapshot, depth: Depth, places: Places) -> dict[str, dict[str, int]]:
    """What tenants have in each state, for those that have places; `other` is the sum of the rest."""
    listed = {tenant.tenant: tenant for tenant in snapshot.tenants}
    if places.is_due(snapshot.at):
        places.review({name: _weight(tenant) for name, tenant in listed.items()}, depth.waiting, snapshot.at)
    rest = {state: getattr(depth, state) for state in STATES}
    found: dict[str, dict[str, int]] = {}
    for name, tenant in sorted(listed.items(), key=lambda item: (-_weight(item[1]), item[0])):
        if places.name(name) == name != OTHER:
            found[name] = _states(tenant)
            for state, count in found[name].items():
                rest[state] -= count
    # Lanes and tenants may be counted at different moments: the rest is never less than nothing.
    return found | {OTHER: {state: max(0, count) for state, count in rest.items()}}


def _weight(tenant: TenantDepth) -> int:
    return tenant.waiting


def _states(tenant: TenantDepth) -> dict[str, int]:
    return {state: getattr(tenant, state) for state in STATES}

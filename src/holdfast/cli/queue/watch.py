"""Looking at queues again and again: what they are like, and how that has changed since the look before."""

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.cli.queue.depths import Depth, depth_of, pace, paces, seconds_left
from holdfast.cli.queue.store import Store
from holdfast.queue.backend import Snapshot

TENANTS = 10
"""Tenants that are shown at the most: a screen has room for them."""


class QueueFigures(Depth, frozen=True, kw_only=True):
    """A queue, and how its backlog changes."""

    change: float | None
    """Messages per second; below 0, the backlog shrinks. None: there is no look before it."""
    seconds_left: float | None
    """Until nothing waits, if it goes on like this; None: it does not come to that."""


class TenantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, and how its backlog changes."""

    tenant: str
    queue: str
    ready: int
    spilled: int
    leased: int
    delayed: int
    dead: int
    change: float | None
    seconds_left: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A look at queues, and at the tenants that have the most waiting in any of them."""

    at: float
    queues: Sequence[QueueFigures]
    tenants: Sequence[TenantFigures]


class Watch:
    """Looks at one queue, or at all; queues may come to be meanwhile."""

    def __init__(self, store: Store, queue: str | None) -> None:
        self.place = store.place
        self._store = store
        self._queue = queue
        self._before: dict[str, Snapshot] = {}

    def look(self) -> Figures:
        """How queues are now."""
        names = self._store.names() if self._queue is None else [self._queue]
        looks = self._store.look(names, top=TENANTS)
        figures = figures_of(looks, self._before)
        self._before = {look.queue: look for look in looks}
        return figures


def figures_of(looks: Sequence[Snapshot], before: Mapping[str, Snapshot]) -> Figures:
    """What looks say, beside the looks before them."""
    queues: list[QueueFigures] = []
    tenants: list[TenantFigures] = []
    for look in looks:
        earlier = before.get(look.queue)
        depth, rate, rates = depth_of(look), pace(earlier, look), paces(earlier, look)
        left = seconds_left(look.totals.waiting, rate)
        queues.append(QueueFigures(**msgspec.structs.asdict(depth), change=rate, seconds_left=left))
        tenants += (
            TenantFigures(
                tenant=one.tenant,
                queue=look.queue,
                ready=one.ready,
                spilled=one.spilled,
                leased=one.leased,
                delayed=one.delayed,
                dead=one.dead,
                change=rates.get(one.tenant),
                seconds_left=seconds_left(one.waiting, rates.get(one.tenant)),
            )
            for one in look.tenants
        )
    tenants.sort(key=lambda one: (-one.ready - one.spilled, one.queue, one.tenant))
    return Figures(at=max((look.at for look in looks), default=0.0), queues=queues, tenants=tenants[:TENANTS])

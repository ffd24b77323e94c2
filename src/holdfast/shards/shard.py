"""The shard of one tenant, and the choice of the worker to try next. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from holdfast._types import Zone
from holdfast.shards.fleet import Fleet, Slot

if TYPE_CHECKING:
    from holdfast.shards.hashed import HashedSharding


@dataclass(frozen=True, slots=True)
class Shard:
    """The workers of one tenant."""

    slot_indexes: tuple[int, ...]
    """Their slots in the fleet that the shard was made from. A sub-shard is made from the slots of its parent only."""
    slots: tuple[Slot, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple([slot.worker for slot in self.slots])

    @property
    def live_workers(self) -> tuple[str, ...]:
        """The workers that are not drained, and so may get work."""
        return tuple([slot.worker for slot in self.slots if not slot.is_drained])

    @property
    def drained_workers(self) -> tuple[str, ...]:
        """The workers that are drained, and so get no work."""
        return tuple([slot.worker for slot in self.slots if slot.is_drained])

    def subdivide(self, size: int, *, key: bytes) -> "HashedSharding":
        """Return shards of `size` workers within this one, for the tenant's own tenants, by name.

        A poison request of one of these takes down some workers of this shard, and the others use the rest. Shards are
        spread over the first dimension of groups only, such as zones: this shard may lack combinations of several.
        """
        from holdfast.shards.hashed import HashedSharding

        slots = tuple(replace(slot, group=slot.group[:1], shares_slot_of=None) for slot in self.slots)
        return HashedSharding(Fleet(slots=slots, shared_host_policy="allow"), size, key=key)


def pick_worker(
    shard: Shard | Sequence[Slot],
    *,
    workers_out: Collection[str] = (),
    zones_out: Collection[Zone] = (),
    tried: Collection[str] = (),
    depths: Mapping[str, float] | None = None,
    turn: int | None = None,
) -> str | None:
    """Return the worker to try next, or None if no worker of the shard is left.

    Workers that are out, drained or already tried are skipped, and so are workers in zones that are out. With `depths`,
    the worker with the shortest queue is chosen; an unlisted worker has depth 0. Otherwise `turn`, a counter of the
    caller, rotates the workers; without it, a shard always starts with the same worker. No worker outside the shard is
    ever returned: a harmful tenant would take down the fleet worker by worker
    (https://github.com/envoyproxy/envoy/issues/14804).
    """
    slots = shard.slots if isinstance(shard, Shard) else shard
    left = [
        slot.worker
        for slot in slots
        if not slot.is_drained
        and slot.worker not in workers_out
        and slot.worker not in tried
        and not any(group in zones_out for group in slot.group)
    ]
    if not left:
        return None
    if turn is None:
        turn = crc32("\0".join(slot.worker for slot in slots).encode())
    turned = left[turn % len(left) :] + left[: turn % len(left)]
    return turned[0] if depths is None else min(turned, key=lambda worker: depths.get(worker, 0.0))

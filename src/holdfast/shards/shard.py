"""What one tenant has: some slots of a fleet; and which of its workers to try next. Pure."""

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
    """Which slots they are in, of the fleet that the shard was made of; a sub-shard is made of its parent's alone."""
    slots: tuple[Slot, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple([slot.worker for slot in self.slots])

    @property
    def live_workers(self) -> tuple[str, ...]:
        """Those of them that are not drained: who may be given work."""
        return tuple([slot.worker for slot in self.slots if not slot.is_drained])

    @property
    def drained_workers(self) -> tuple[str, ...]:
        """The others."""
        return tuple([slot.worker for slot in self.slots if slot.is_drained])

    def subdivide(self, size: int, *, key: bytes) -> "HashedSharding":
        """Return shards within this one, `size` workers each, for the tenant's own tenants, by their names.

        A poison request of one of them takes some workers of this shard, and the others have the rest. They are spread
        over the first dimension of groups, such as zones: of several, a shard does not have all combinations.
        """
        from holdfast.shards.hashed import HashedSharding

        slots = tuple(replace(slot, group=slot.group[:1], relieves=None) for slot in self.slots)
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
    """Return the worker to try next; None if none of the shard is left.

    Left out are workers that are out, drained or tried already, and those in zones that are out. With `depths` the
    least deep is taken (one that is not listed counts as empty). Else they take turns by `turn`, which the caller
    counts; without it a shard always begins with the same worker. A worker from outside the shard is never named: a
    poison tenant would eat the fleet, one worker after the other (https://github.com/envoyproxy/envoy/issues/14804).
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

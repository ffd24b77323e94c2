"""What one tenant has: some slots of a fleet; and which of its workers to try next. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from holdfast._types import Zone
from holdfast.shards.fleet import Fleet, Slot

if TYPE_CHECKING:
    from holdfast.shards.hashed import Hashed


@dataclass(frozen=True, slots=True)
class Shard:
    """The workers of one tenant."""

    places: tuple[int, ...]
    """Which slots they are in, of the fleet that the shard was made of; a sub-shard is made of its parent's alone."""
    slots: tuple[Slot, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple([slot.worker for slot in self.slots])

    @property
    def live(self) -> tuple[str, ...]:
        """Those of them that are not drained: who may be given work."""
        return tuple([slot.worker for slot in self.slots if not slot.is_drained])

    @property
    def drained(self) -> tuple[str, ...]:
        """The others."""
        return tuple([slot.worker for slot in self.slots if slot.is_drained])

    def sub(self, size: int, *, key: bytes) -> "Hashed":
        """Return shards within this one, `size` workers each, for the tenant's own tenants, by their names.

        A poison request of one of them takes some workers of this shard, and the others have the rest. They are spread
        over the first dimension of groups, such as zones: of several, a shard does not have all combinations.
        """
        from holdfast.shards.hashed import Hashed

        slots = tuple(replace(slot, group=slot.group[:1], relieves=None) for slot in self.slots)
        return Hashed(Fleet(slots=slots, shared_hosts="allow"), size, key=key)


def pick(
    shard: Shard | Sequence[Slot],
    *,
    out: Collection[str] = (),
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
        and slot.worker not in out
        and slot.worker not in tried
        and not any(group in zones_out for group in slot.group)
    ]
    if not left:
        return None
    if turn is None:
        turn = crc32("\0".join(slot.worker for slot in slots).encode())
    turned = left[turn % len(left) :] + left[: turn % len(left)]
    return turned[0] if depths is None else min(turned, key=lambda worker: depths.get(worker, 0.0))

"""Which worker of a shard to try next. Pure."""

from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

from holdfast._types import Zone
from holdfast.shards.fleet import Slot
from holdfast.shards.shard import Shard


def pick(
    shard: Shard | Sequence[Slot],
    *,
    out: Collection[str] = (),
    zones_out: Collection[Zone] = (),
    tried: Collection[str] = (),
    depths: Mapping[str, float] | None = None,
    turn: int | None = None,
) -> str | None:
    """The worker to try next; None if none of the shard is left.

    Left out are workers that are out, drained or tried already, and those in zones that are out. With `depths` the
    least deep is taken (one that is not listed counts as empty). Else they take turns by `turn`, which the caller
    counts; without it a shard always begins with the same worker, and different shards with different ones. A worker
    from outside the shard is never named, however many fail: a poison tenant would eat the fleet, one worker after the
    other (https://github.com/envoyproxy/envoy/issues/14804).
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

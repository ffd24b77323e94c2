"""Which worker of a shard to try next. Pure."""

from collections.abc import Collection, Mapping, Sequence

from holdfast._types import Zone
from holdfast.shards.fleet import Slot


def pick(
    shard: Sequence[Slot],
    *,
    out: Collection[str] = (),
    zones_out: Collection[Zone] = (),
    tried: Collection[str] = (),
    depths: Mapping[str, float] | None = None,
    turn: int = 0,
) -> str | None:
    """The worker to try next; None if none of the shard is left.

    Left out are workers that are out, drained or tried already, and those in zones that are out. With `depths` the
    least deep is taken (one that is not listed counts as empty), else they take turns by `turn`. A worker from outside
    the shard is never named, however many fail: a poison tenant would eat the fleet, one worker after the other
    (https://github.com/envoyproxy/envoy/issues/14804).
    """
    left = [
        slot.worker
        for slot in shard
        if not slot.is_drained
        and slot.worker not in out
        and slot.worker not in tried
        and not any(group in zones_out for group in slot.group)
    ]
    if not left:
        return None
    turned = left[turn % len(left) :] + left[: turn % len(left)]
    return turned[0] if depths is None else min(turned, key=lambda worker: depths.get(worker, 0.0))

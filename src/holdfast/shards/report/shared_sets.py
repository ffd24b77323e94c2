"""Sets of workers that two or more shards have in common, found without examining pairs of shards. Pure.

Sets grow by one worker at a time. A larger set can be shared only if the smaller one is, so the search continues from
shared sets only. If shards share little, few sets are left to examine.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast.shards.report.table import IntArray, ShardArray, SlotArray

BLOCK = 1 << 20
"""Candidates that are sorted together, some sixty bytes each. More would take more memory, and save no time."""


@dataclass(frozen=True, slots=True)
class SharedSets:
    """Sets of `size` workers, and the two or more shards that have each set."""

    size: int
    workers: SlotArray
    """The slot indexes of a set in each row, in ascending order."""
    shards: IntArray
    """The shards of the first set, then those of the second, and so on; ascending within a set."""
    starts: IntArray
    """Index in `shards` at which each set begins."""

    def lengths(self) -> IntArray:
        return np.diff(self.starts, append=len(self.shards))


class TooManySets(Exception):
    """More sets had to be examined than the limit allows."""


class _ExtendableSets(NamedTuple):
    """Shared sets, and for each of their shards the column of the set's last worker; -1 for an empty set."""

    shared: SharedSets
    columns: IntArray


def find_shared_sets(
    shard_array: ShardArray, max_size: int, block: int = BLOCK, max_sets: float = math.inf
) -> Iterator[SharedSets]:
    """Yield all sets of 1 to `max_size` workers that two or more shards have, in parts.

    Raise TooManySets past `max_sets`.
    """
    whole = SharedSets(0, np.empty((1, 0), dtype=np.int32), np.arange(len(shard_array)), np.zeros(1, dtype=np.int64))
    # Depth first, so that at most one part of each size is in memory at a time.
    depths = [_split(shard_array, _ExtendableSets(whole, np.full(len(shard_array), -1)), block)]
    while depths:
        part = next(depths[-1], None)
        if part is None:
            depths.pop()
            continue
        max_sets -= int(_count_extensions(shard_array, part).sum())
        if max_sets < 0:
            raise TooManySets
        grown = _extend(shard_array, part)
        if grown is not None:
            yield grown.shared
            if grown.shared.size < max_size:
                depths.append(_split(shard_array, grown, block))


def _count_extensions(shard_array: ShardArray, found: _ExtendableSets) -> IntArray:
    """Return for each shard of each set how many workers it could add: those in the columns to the right."""
    return shard_array.sizes[found.shared.shards] - 1 - found.columns


def _split(shard_array: ShardArray, found: _ExtendableSets, block: int) -> Iterator[_ExtendableSets]:
    """Yield parts that grow to at most `block` candidates. A set is not split, even if it alone exceeds that."""
    shared, columns = found
    more = np.append(0, np.cumsum(_count_extensions(shard_array, found)))
    ends = np.append(shared.starts[1:], len(shared.shards))
    first = 0
    while first < len(ends):
        done = more[shared.starts[first]]
        last = max(first + 1, int(np.searchsorted(more[ends], done + block, side="right")))
        begin, end = int(shared.starts[first]), int(ends[last - 1])
        some = SharedSets(
            shared.size, shared.workers[first:last], shared.shards[begin:end], shared.starts[first:last] - begin
        )
        yield _ExtendableSets(some, columns[begin:end])
        first = last


def _extend(shard_array: ShardArray, found: _ExtendableSets) -> _ExtendableSets | None:
    """Return the sets with one worker more, from the columns to the right, or None if no such set is shared."""
    shared, columns = found
    more = _count_extensions(shard_array, found)
    begins = np.cumsum(more) - more
    # One entry for each worker that a shard could add: the entry of the shard, and the column.
    of = np.repeat(np.arange(len(more)), more)
    column = np.arange(len(of)) - (begins - columns - 1)[of]
    shard = shared.shards[of]
    worker = shard_array.slot_indexes[shard, column]
    which = np.repeat(np.arange(len(shared.starts)), shared.lengths())[of]
    keys = which * shard_array.workers + worker
    # The stable sort keeps the shards of each set in ascending order.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    lengths = np.diff(starts, append=len(keys))
    several = lengths > 1
    if not several.any():
        return None
    kept = order[np.repeat(several, lengths)]
    left = lengths[several]
    heads = keys[starts[several]]
    workers = np.column_stack([shared.workers[heads // shard_array.workers], heads % shard_array.workers]).astype(
        np.int32
    )
    grown = SharedSets(shared.size + 1, workers, shard[kept], np.cumsum(left) - left)
    return _ExtendableSets(grown, column[kept])


def sum_per_set(shared: SharedSets, values: IntArray) -> IntArray:
    """Return for each set the sum of `values` over the shards that have it."""
    return np.add.reduceat(values[shared.shards], shared.starts)

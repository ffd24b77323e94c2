"""Every set of workers that two or more shards have in common, found without looking at pairs of shards. Pure.

Sets grow by one worker at a time. Only what two shards share at all can be shared with one worker more, so the search
goes on from there alone: of shards that share little, little is left to look at.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast.shards.report.table import IntArray, ShardArray, SlotArray

BLOCK = 1 << 20
"""Candidates that are sorted at once, some sixty bytes each. With more of them it takes as long, and more memory."""


@dataclass(frozen=True, slots=True)
class SharedSets:
    """Sets of so many workers, and the shards that have each of them: two or more."""

    size: int
    workers: SlotArray
    """The sets, one in each row, in ascending order."""
    shards: IntArray
    """The shards of the first set, those of the second, and so on; for each set in ascending order."""
    starts: IntArray
    """Where in `shards` those of each set begin."""

    def lengths(self) -> IntArray:
        """How many shards have each set."""
        return np.diff(self.starts, append=len(self.shards))


class TooManySets(Exception):
    """There are more sets than it was worth to look at."""


class _ExtendableSets(NamedTuple):
    """Sets as they are found, and for each shard the column of the last worker in it."""

    shared: SharedSets
    columns: IntArray


def find_shared_sets(
    shard_array: ShardArray, max_size: int, block: int = BLOCK, max_sets: float = math.inf
) -> Iterator[SharedSets]:
    """Yield all sets of 1 to `max_size` workers that two or more shards have, in parts.

    Raises TooManySets past `max_sets`.
    """
    whole = SharedSets(0, np.empty((1, 0), dtype=np.int32), np.arange(len(shard_array)), np.zeros(1, dtype=np.int64))
    # Depth first, so that no more than one part of each size is held at a time.
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
    """For each shard of each set, how many workers it could add: those in the columns to the right."""
    return shard_array.sizes[found.shared.shards] - 1 - found.columns


def _split(shard_array: ShardArray, found: _ExtendableSets, block: int) -> Iterator[_ExtendableSets]:
    """Split so that none grows to more than a block; a set is never split, however many shards have it."""
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
    """With one worker more, from the columns to the right of what is there; None if no two shards share one."""
    shared, columns = found
    more = _count_extensions(shard_array, found)
    begins = np.cumsum(more) - more
    # One entry for each worker that a shard could add: which shard it is, and which column.
    of = np.repeat(np.arange(len(more)), more)
    column = np.arange(len(of)) - (begins - columns - 1)[of]
    shard = shared.shards[of]
    worker = shard_array.slot_indexes[shard, column]
    which = np.repeat(np.arange(len(shared.starts)), shared.lengths())[of]
    keys = which * shard_array.workers + worker
    # Stable: the shards of each set stay in ascending order.
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
    """For each set, the sum of a value over the shards that have it."""
    return np.add.reduceat(values[shared.shards], shared.starts)

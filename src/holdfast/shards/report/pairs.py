"""Pairs of shards, and how many workers each has in common: some shards with each other, and with all others. Pure.

Two ways give the same. One follows the lists of shards that have a worker, so that it never comes upon a pair that
shares nothing. The other multiplies the table of who has which worker with itself, which takes as long for every pair.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.table import Ints, Shards

_FLOATS = 1 << 25
"""Numbers in each factor, in a fleet of very many workers."""

_CELLS = 16
"""To pass so many pairs takes as long as to sort what two shards have in common by the pair that they are."""


class Meeting(NamedTuple):
    """Pairs of shards that share a worker, or more: one of each pair, the other one, and how many."""

    one: Ints
    other: Ints
    shared: Ints


class Product(NamedTuple):
    """How many workers each of some shards shares with each of others."""

    left: Ints
    right: Ints
    shared: Ints
    is_square: bool
    """Whether left and right are the same, so that each pair is in it twice, and each shard with itself."""

    def meeting(self, shared: int) -> Meeting:
        """The pairs that share so many, each once."""
        rows, columns = (self.shared == shared).nonzero()
        if self.is_square:
            rows, columns = rows[rows < columns], columns[rows < columns]
        return Meeting(self.left[rows], self.right[columns], np.full(len(rows), shared))


def meetings(among: Shards, some: Ints, rest: Ints, block: int) -> Iterator[Meeting]:
    """Every pair that shares a worker of which one is among some shards, each pair once; the rest are all others.

    In parts of about a block of workers in common, two hundred bytes each at most.
    """
    numbers = np.concatenate([some, rest])
    sizes = among.sizes[numbers]
    # One entry for each worker of each shard, as long as one of the first has that worker.
    shard = np.repeat(np.arange(len(numbers)), sizes)
    worker = among.places[numbers[shard], np.arange(len(shard)) - (np.cumsum(sizes) - sizes)[shard]]
    first = int(sizes[: len(some)].sum())
    is_met = np.zeros(among.workers, dtype=np.bool_)
    is_met[worker[:first]] = True
    met = np.flatnonzero(is_met[worker])
    shard, worker = shard[met], worker[met]
    # The lists of shards, worker by worker. Stable: what comes after an entry in its list are the shards after it.
    order = np.argsort(worker, kind="stable")
    lists, listed = shard[order], worker[order]
    ends = np.searchsorted(listed, worker[:first], side="right")
    where = np.empty(len(order), dtype=np.int64)
    where[order] = np.arange(len(order))
    begins = where[:first] + 1
    more = np.append(0, np.cumsum(ends - begins))
    entries = np.append(0, np.cumsum(sizes[: len(some)]))
    before = more[entries]
    done = 0
    while done < len(some):
        last = max(done + 1, int(np.searchsorted(before, before[done] + block, side="right")) - 1)
        part = slice(entries[done], entries[last])
        lengths = ends[part] - begins[part]
        to = np.arange(lengths.sum()) + np.repeat(begins[part] - (more[part] - before[done]), lengths)
        keys = np.repeat((shard[part] - done) * len(numbers), lengths) + lists[to]
        pairs, shared = _counted(keys, (last - done) * len(numbers))
        one, other = np.divmod(pairs, len(numbers))
        yield Meeting(numbers[one + done], numbers[other], shared)
        done = last


def _counted(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """The different ones of these numbers below a bound, in ascending order, and how often each occurs."""
    if bound <= _CELLS * len(keys):
        often = np.bincount(keys)
        found = np.flatnonzero(often)
        return found, often[found]
    keys.sort()
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return keys[starts], np.diff(starts, append=len(keys))


def products(among: Shards, some: Ints, rest: Ints, side: int) -> Iterator[Product]:
    """Some shards with each other and with the rest, part by part; the left part is never after the right one."""
    side = max(1, min(side, _FLOATS // max(1, among.workers)))
    lefts = [some[first : first + side] for first in range(0, len(some), side)]
    rights = [rest[first : first + side] for first in range(0, len(rest), side)]
    for number, left in enumerate(lefts):
        having = _having(among.only(left))
        for right in [*lefts[number:], *rights]:
            shared = np.rint(having @ _having(among.only(right)).T).astype(np.int64)
            yield Product(left, right, shared, right is left)


def _having(among: Shards) -> npt.NDArray[np.float32]:
    """A row for each shard, a column for each worker: 1 where it has it. Floats, for they are multiplied quickly."""
    having = np.zeros((len(among), among.workers + 1), dtype=np.float32)
    np.put_along_axis(having, among.places.astype(np.int64), 1.0, axis=1)
    return having[:, :-1]

"""What every shard shares with all others, counted exactly, in one pass over a table. Pure.

Two ways give the same numbers, and `method.py` says which is taken for which shards. The first counts, for every set of
workers that several shards have, the pairs of tenants that have it: a pair that shares i workers is in C(i, j) of the
sets of j, so that the number of pairs that share exactly i follows by inversion. The second looks at pairs of shards:
along the lists of shards that have a worker, so that it never comes upon a pair that shares nothing, or by multiplying
the table of who has which worker with itself, which takes as long for every pair.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.method import USUAL, Method, Way, second_largest
from holdfast.shards.report.table import Distinct, Ints, Shards
from holdfast.shards.report.walk import sums, walk

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
        pairs, shared = _counted_keys(keys, (last - done) * len(numbers))
        one, other = np.divmod(pairs, len(numbers))
        yield Meeting(numbers[one + done], numbers[other], shared)
        done = last


def _counted_keys(keys: Ints, bound: int) -> tuple[Ints, Ints]:
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


@dataclass(frozen=True, slots=True)
class Scan:
    """What was counted. Where it says for each shard, it is for each different shard of the table."""

    pairs: tuple[int, ...]
    """Pairs of tenants by how many workers they share, from 0 to the size of the largest shard."""
    worst: Ints
    """For each shard, the most workers that one of its tenants shares with another tenant."""
    touched: Ints
    """For each shard, how many other tenants share a worker with one of its tenants, or more."""
    covered: Ints
    """For each shard, how many other tenants have no worker but those that it has."""


def scan(distinct: Distinct, method: Method = USUAL) -> Scan:
    """Count what shards share."""
    return method.apply(distinct, lambda way: _counted(distinct, method, way))


def _counted(distinct: Distinct, method: Method, way: Way) -> Scan:
    small, large = way.parts(distinct)
    tally = _Tally(distinct)
    tally.add_sets(small, method.block, way.most)
    if way.dense:
        for product in products(distinct, large, small, method.side):
            tally.add_product(product)
    else:
        for meeting in meetings(distinct, large, small, method.block):
            tally.add_meeting(meeting)
    return tally.scan()


class _Tally:
    """What was counted so far: at first the tenants with the same shard, then pairs of different shards, each once."""

    def __init__(self, distinct: Distinct) -> None:
        self._distinct = distinct
        counts, sizes = distinct.counts, distinct.sizes
        # By how many workers they share. Who shares none is what is left in the end.
        self._pairs = [0] * (int(sizes.max(initial=0)) + 1)
        for size in range(1, len(self._pairs)):
            same = counts[(sizes == size) & (counts > 1)]
            self._pairs[size] = sum(math.comb(count, 2) for count in same.tolist())
        self._worst = np.where(counts > 1, sizes, 0)
        self._touched = np.where(sizes > 0, counts - 1, 0)
        self._covered = self._touched.copy()

    def add_sets(self, numbers: Ints, block: int, most: float) -> None:
        """The pairs among some shards, from the sets of workers that several of them have."""
        among, counts = self._distinct.only(numbers), self._distinct.counts[numbers]
        sizes, squares = among.sizes, counts**2
        of_many_sizes = bool((sizes != sizes[:1]).any())
        deepest = second_largest(sizes)
        having = [0] * (deepest + 1)
        worst, touched, covered = (np.zeros(len(among), dtype=np.int64) for _ in range(3))
        for shared in walk(among, deepest, block, most):
            shards, lengths = shared.shards, shared.lengths()
            tenants = sums(shared, counts)
            having[shared.size] += int(((tenants**2 - sums(shared, squares)) // 2).sum())
            worst[shards] = np.maximum(worst[shards], shared.size)
            others = np.repeat(tenants, lengths) - counts[shards]
            # Inclusion and exclusion: what has two workers in common was counted at each of them.
            np.add.at(touched, shards, others if shared.size % 2 else -others)
            if of_many_sizes:
                # A shard that is the set itself lies within all others that have it.
                within = sums(shared, np.where(sizes == shared.size, counts, 0))
                larger = sizes[shards] > shared.size
                np.add.at(covered, shards[larger], np.repeat(within, lengths)[larger])
        self._worst[numbers] = np.maximum(self._worst[numbers], worst)
        self._touched[numbers] += touched
        self._covered[numbers] += covered
        for exact in range(1, deepest + 1):
            self._pairs[exact] += sum(
                (-1) ** (more - exact) * math.comb(more, exact) * having[more] for more in range(exact, deepest + 1)
            )

    def add_meeting(self, meeting: Meeting) -> None:
        """Pairs of shards, one by one."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        one, other, shared = meeting
        self._add_pairs(shared, counts[one] * counts[other])
        for left, right in ((one, other), (other, one)):
            np.maximum.at(self._worst, left, shared)
            np.add.at(self._touched, left, counts[right])
            within = np.flatnonzero(shared == sizes[right])
            np.add.at(self._covered, left[within], counts[right[within]])

    def add_product(self, product: Product) -> None:
        """Pairs of shards, all of one part with all of another."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        left, right, shared, is_square = product
        weights = np.outer(counts[left], counts[right])
        if is_square:
            weights = np.triu(weights, 1)  # every pair once
            shared = np.where(np.eye(len(left), dtype=np.bool_), 0, shared)  # and none of a shard with itself
        self._add_pairs(shared.ravel(), weights.ravel())
        for some, others, both in ((left, right, shared), (right, left, shared.T))[: 1 if is_square else 2]:
            self._worst[some] = np.maximum(self._worst[some], both.max(axis=1, initial=0))
            self._touched[some] += (both > 0) @ counts[others]
            self._covered[some] += ((both > 0) & (both == sizes[others])) @ counts[others]

    def _add_pairs(self, shared: Ints, tenants: Ints) -> None:
        # Sums of whole numbers below 2^53, which floats add exactly.
        found = np.bincount(shared, weights=tenants, minlength=len(self._pairs))
        for size in range(1, len(self._pairs)):
            self._pairs[size] += int(found[size])

    def scan(self) -> Scan:
        """All of it, once every pair of shards that share a worker was added."""
        tenants = int(self._distinct.counts.sum())
        self._pairs[0] = math.comb(tenants, 2) - sum(self._pairs[1:])
        return Scan(tuple(self._pairs), self._worst, self._touched, self._covered)

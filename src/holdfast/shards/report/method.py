"""How to find what shards share: which of them by sets of workers, and which by pairs of shards. Pure.

Small shards have few sets of workers, and a million of them are counted by what several have. A large shard has more
sets than anybody can count, also if it is the only one of its kind: it is compared with all others instead. So shards
are parted by their size, where it is least to do.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.table import Ints, Shards
from holdfast.shards.report.walk import BLOCK, TooMany

# Nanoseconds on one core, as measured; only how they compare matters. For a set of workers of a shard where most are
# shared; for a worker that two shards have in common; and, where all are multiplied, for a pair of shards, and for each
# worker there is at a pair.
_SET, _COMMON, _PAIR, _WORKER = 100.0, 60.0, 48.0, 0.03

_SHARED = 1 / 30
"""Share of the sets of workers of a shard that are looked at in a fleet so large that most have no other shard.

Nobody knows before: where it makes a difference, it is tried.
"""

_TRIED = 0.25
"""How long that is tried, as a share of what the other way takes: so much is lost at most."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to count. The numbers are the same whichever it is."""

    largest: int
    """Shards of up to so many workers are looked at by their sets of workers; larger ones are compared with all."""
    dense: bool = False
    """Whether shards are compared by multiplying who has which worker: it suits shards that share a lot."""
    most: float = math.inf
    """Sets that are looked at before it is given up."""

    def parts(self, among: Shards) -> tuple[Ints, Ints]:
        """The numbers of the shards that are looked at by their sets, and of those that are compared."""
        small = among.sizes <= self.largest
        return np.flatnonzero(small), np.flatnonzero(~small)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How it is counted."""

    way: Way | None = None
    """None for the one with the least to do."""
    block: int = BLOCK
    side: int = 2048
    """Shards on each side of a product: its result takes 32 MB."""

    def apply(self, among: Shards, count: Callable[[Way], _Found], deepest: float = math.inf) -> _Found:
        """Count in the way with the least to do, where no sets of more than `deepest` workers are needed."""
        if self.way is not None:
            return count(self.way)
        hopeful, safe = _ways(among, deepest)
        if hopeful.largest > safe.largest:
            with suppress(TooMany):
                return count(hopeful)
        return count(safe)


USUAL = Method()


def second_largest(sizes: Ints) -> int:
    """The most workers that two different shards can share."""
    return int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0


class _Cut(NamedTuple):
    """What there is to do if shards of up to so many workers are looked at by their sets."""

    largest: int
    sets: float
    """The most it can be: if every set of workers of a shard has another shard."""
    pairs: float
    dense: bool


def _ways(among: Shards, deepest: float) -> tuple[Way, Way]:
    """The best if most sets of workers have one shard only, and the best if all have several, which is the most."""
    cuts = _cuts(among, deepest)
    none = next(cuts)
    # The larger the shards, the more sets there are: soon far more than anything else would take.
    some = [none, *takewhile(lambda cut: cut.sets * _SHARED <= none.pairs, cuts)]
    safe = min(some, key=lambda cut: cut.sets + cut.pairs)
    hopeful = min(some, key=lambda cut: cut.sets * _SHARED + cut.pairs)
    return (
        Way(largest=hopeful.largest, dense=hopeful.dense, most=_TRIED * (safe.sets + safe.pairs) / _SET),
        Way(largest=safe.largest, dense=safe.dense),
    )


def _cuts(among: Shards, deepest: float) -> Iterator[_Cut]:
    """What there is to do with no sets at all, then with those of the smallest shards, and so on to those of all."""
    sizes, counts = np.unique(among.sizes, return_counts=True)
    numbers = {0: 0, **dict(zip(sizes.tolist(), counts.tolist(), strict=True))}
    every, small = np.zeros(among.workers), np.zeros(among.workers)
    for size in numbers:
        every += _having(among, size)
    done = smaller = 0
    for size, number in numbers.items():
        done += number
        small += _having(among, size)
        # Two of the largest may share all they have; one alone shares no more than the next has.
        most = min(deepest, size if number > 1 else smaller)
        sets = sum(numbers[other] * _subsets(other, most) for other in numbers if other <= size)
        apart = (_PAIR + _WORKER * among.workers) * (len(among) ** 2 - done**2) / 2
        common = _COMMON * float(every @ every - small @ small) / 2
        yield _Cut(size, _SET * sets, min(apart, common), apart < common)
        smaller = size


def _having(among: Shards, size: int) -> npt.NDArray[np.float64]:
    """For each worker, how many of the shards of that size have it."""
    places = among.places[among.sizes == size, :size]
    return np.bincount(places.ravel(), minlength=among.workers).astype(np.float64)


def _subsets(size: int, most: float) -> float:
    """How many sets of 1 to so many of its workers a shard has."""
    found, sets = 0.0, 1.0
    for taken in range(int(min(size, most))):
        sets *= (size - taken) / (taken + 1)
        found += sets
    return found

"""Comparison of no sharding, plain shards and shuffle shards when one tenant or one worker fails. Pure.

After https://aws.amazon.com/builders-library/workload-isolation-using-shuffle-sharding/: eight workers in shards of two
give four plain shards, and a bad tenant takes down a quarter of all tenants; they give 28 shuffle shards.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from holdfast._errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One sharding scheme, for tenants spread evenly over all its shards. Exact numbers."""

    name: str
    shards: int
    down_share: Fraction
    """Fraction of tenants that one bad tenant takes down, including itself: all tenants with its shard."""
    capacity_lost: Fraction
    """Fraction of workers that one bad tenant takes down."""
    required_headroom: Fraction | None
    """Extra load of a worker when another fails, as a fraction of its usual load; None if no worker takes over."""
    gain: Fraction
    """Tenants that one bad tenant takes down with plain shards, as a multiple of those with this scheme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeComparison:
    """The three schemes for the same number of workers and the same size of shards."""

    workers: int
    size: int
    unsharded: Scheme
    """No sharding: every tenant has all workers."""
    plain: Scheme
    """Every worker is in one shard. Workers that do not fill a shard are spare."""
    shuffle: Scheme
    """Every combination of workers is a shard."""


def compare_schemes(workers: int, size: int) -> SchemeComparison:
    """Compare no sharding, plain shards and shuffle shards of `size` workers. Raise InvalidValue if none fits."""
    if not 1 <= size <= workers:
        raise InvalidValue(f"shards of {size} in a fleet of {workers}: expected 1 to {workers} workers")
    plain, shuffle = workers // size, math.comb(workers, size)
    taken = Fraction(size, workers)
    # A tenant that loses a worker spreads its load over the rest of its shard. Over all combinations, any two workers
    # are together equally often, so the load is spread over the whole fleet, as it is without shards.
    whole_fleet = Fraction(1, workers - 1) if workers > 1 else None
    return SchemeComparison(
        workers=workers,
        size=size,
        unsharded=_scheme("no sharding", 1, plain, Fraction(1), whole_fleet),
        plain=_scheme("plain shards", plain, plain, taken, Fraction(1, size - 1) if size > 1 else None),
        shuffle=_scheme("shuffle shards", shuffle, plain, taken, whole_fleet if size > 1 else None),
    )


def _scheme(name: str, shards: int, plain: int, lost: Fraction, required_headroom: Fraction | None) -> Scheme:
    return Scheme(
        name=name,
        shards=shards,
        down_share=Fraction(1, shards),
        capacity_lost=lost,
        required_headroom=required_headroom,
        gain=Fraction(shards, plain),
    )

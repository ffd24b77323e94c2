"""Three ways to lay tenants out over workers, side by side: what each means when one tenant or one worker fails. Pure.

After https://aws.amazon.com/builders-library/workload-isolation-using-shuffle-sharding/: eight workers in shards of two
are four shards, and a bad tenant takes a quarter of all others with it; as shuffle shards they are 28.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from holdfast._errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way, for tenants that are spread evenly over all shards there are. Exact numbers."""

    name: str
    shards: int
    """How many different shards there are."""
    down_share: Fraction
    """The share of tenants that one bad tenant takes down, itself among them: all that have the same shard."""
    capacity_lost: Fraction
    """The share of workers that one bad tenant takes down."""
    required_headroom: Fraction | None
    """How much more than usual a worker must be able to take when another fails; None where nobody takes over."""
    gain: Fraction
    """How many times fewer tenants one bad tenant takes down than with plain shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeComparison:
    """All three, for as many workers and shards of the same size."""

    workers: int
    size: int
    unsharded: Scheme
    """No sharding: every tenant has all workers."""
    plain: Scheme
    """Every worker is in one shard. What is left over when the shards do not come out even is spare."""
    shuffle: Scheme
    """Every combination of workers is a shard."""


def compare_schemes(workers: int, size: int) -> SchemeComparison:
    """Compare no sharding, plain shards and shuffle shards of so many workers."""
    if not 1 <= size <= workers:
        raise InvalidValue(f"shards of {size} in a fleet of {workers}: expected 1 to {workers} workers")
    plain, shuffle = workers // size, math.comb(workers, size)
    taken = Fraction(size, workers)
    # Whoever has lost a worker spreads over the others of its shard. In all combinations any two workers are together
    # equally often, so that a loss is spread over the whole fleet, as it is without shards.
    everybody = Fraction(1, workers - 1) if workers > 1 else None
    return SchemeComparison(
        workers=workers,
        size=size,
        unsharded=_scheme("no sharding", 1, plain, Fraction(1), everybody),
        plain=_scheme("plain shards", plain, plain, taken, Fraction(1, size - 1) if size > 1 else None),
        shuffle=_scheme("shuffle shards", shuffle, plain, taken, everybody if size > 1 else None),
    )


def _scheme(name: str, shards: int, plain: int, lost: Fraction, required_headroom: Fraction | None) -> Scheme:
    down_share, gain = Fraction(1, shards), Fraction(shards, plain)
    return Scheme(
        name=name,
        shards=shards,
        down_share=down_share,
        capacity_lost=lost,
        required_headroom=required_headroom,
        gain=gain,
    )

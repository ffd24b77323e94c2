"""No sharding, plain shards and shuffle shards, beside what is counted one by one."""

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards.schemes import Scheme, compare_schemes


def test_the_figures_of_the_article() -> None:
    found = compare_schemes(8, 2)
    assert (found.workers, found.size) == (8, 2)
    assert found.unsharded == Scheme(
        name="no sharding",
        shards=1,
        down_share=Fraction(1),
        capacity_lost=Fraction(1),
        required_headroom=Fraction(1, 7),
        gain=Fraction(1, 4),
    )
    assert found.plain == Scheme(
        name="plain shards",
        shards=4,
        down_share=Fraction(1, 4),
        capacity_lost=Fraction(1, 4),
        required_headroom=Fraction(1),
        gain=Fraction(1),
    )
    assert found.shuffle == Scheme(
        name="shuffle shards",
        shards=28,
        down_share=Fraction(1, 28),
        capacity_lost=Fraction(1, 4),
        required_headroom=Fraction(1, 7),
        gain=Fraction(7),
    )


def test_the_name_servers_of_the_article() -> None:
    assert compare_schemes(2048, 4).shuffle.shards == math.comb(2048, 4) == 730_862_190_080


@given(st.integers(1, 8).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(1, workers))))
def test_everything_is_as_counted(fleet: tuple[int, int]) -> None:
    workers, size = fleet
    found = compare_schemes(workers, size)
    parts = [tuple(range(first, first + size)) for first in range(0, workers - size + 1, size)]
    for scheme, shards in (
        (found.unsharded, [tuple(range(workers))]),
        (found.plain, parts),
        (found.shuffle, [*combinations(range(workers), size)]),
    ):
        same = sum(shard == shards[0] for shard in shards)
        assert scheme.shards == len({*shards})
        assert scheme.down_share == Fraction(same, len(shards))
        assert scheme.capacity_lost == Fraction(len(shards[0]), workers)
        assert scheme.required_headroom == rise(shards)
        assert scheme.gain == Fraction(scheme.shards, len(parts)) == found.plain.down_share / scheme.down_share


def rise(shards: Sequence[tuple[int, ...]]) -> Fraction | None:
    """The most that the loss of the first worker adds to what another does; None if somebody has no other."""
    if any(len(shard) == 1 for shard in shards):
        return None
    before, after = defaultdict[int, Fraction](Fraction), defaultdict[int, Fraction](Fraction)
    for shard in shards:
        left = [worker for worker in shard if worker != 0]
        for worker in shard:
            before[worker] += Fraction(1, len(shard))
        for worker in left:
            after[worker] += Fraction(1, len(left))
    return max(after[worker] / before[worker] - 1 for worker in before if worker != 0)


def test_one_worker_alone_has_nobody_to_take_over() -> None:
    found = compare_schemes(1, 1)
    assert (found.unsharded.required_headroom, found.plain.required_headroom, found.shuffle.required_headroom) == (
        None,
        None,
        None,
    )
    assert compare_schemes(5, 1).unsharded.required_headroom == Fraction(1, 4)
    assert (compare_schemes(5, 1).plain.required_headroom, compare_schemes(5, 1).shuffle.required_headroom) == (
        None,
        None,
    )


@pytest.mark.parametrize(("workers", "size"), [(3, 4), (3, 0), (0, 0), (0, 1), (3, -1)])
def test_shards_that_do_not_fit_are_refused(workers: int, size: int) -> None:
    with pytest.raises(InvalidValue, match=f"shards of {size} in a fleet of {workers}: expected 1 to {workers}"):
        compare_schemes(workers, size)

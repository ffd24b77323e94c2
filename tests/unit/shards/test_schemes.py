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
from holdfast.shards.schemes import Scheme, schemes


def test_the_figures_of_the_article() -> None:
    found = schemes(8, 2)
    assert (found.workers, found.size) == (8, 2)
    assert found.none == Scheme(
        name="no sharding",
        shards=1,
        hit=Fraction(1),
        capacity_lost=Fraction(1),
        slack=Fraction(1, 7),
        gain=Fraction(1, 4),
    )
    assert found.plain == Scheme(
        name="plain shards",
        shards=4,
        hit=Fraction(1, 4),
        capacity_lost=Fraction(1, 4),
        slack=Fraction(1),
        gain=Fraction(1),
    )
    assert found.shuffle == Scheme(
        name="shuffle shards",
        shards=28,
        hit=Fraction(1, 28),
        capacity_lost=Fraction(1, 4),
        slack=Fraction(1, 7),
        gain=Fraction(7),
    )


def test_the_name_servers_of_the_article() -> None:
    assert schemes(2048, 4).shuffle.shards == math.comb(2048, 4) == 730_862_190_080


@given(st.integers(1, 8).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(1, workers))))
def test_everything_is_as_counted(fleet: tuple[int, int]) -> None:
    workers, size = fleet
    found = schemes(workers, size)
    parts = [tuple(range(first, first + size)) for first in range(0, workers - size + 1, size)]
    for scheme, shards in (
        (found.none, [tuple(range(workers))]),
        (found.plain, parts),
        (found.shuffle, [*combinations(range(workers), size)]),
    ):
        same = sum(shard == shards[0] for shard in shards)
        assert scheme.shards == len({*shards})
        assert scheme.hit == Fraction(same, len(shards))
        assert scheme.capacity_lost == Fraction(len(shards[0]), workers)
        assert scheme.slack == rise(shards)
        assert scheme.gain == Fraction(scheme.shards, len(parts)) == found.plain.hit / scheme.hit


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
    found = schemes(1, 1)
    assert (found.none.slack, found.plain.slack, found.shuffle.slack) == (None, None, None)
    assert schemes(5, 1).none.slack == Fraction(1, 4)
    assert (schemes(5, 1).plain.slack, schemes(5, 1).shuffle.slack) == (None, None)


@pytest.mark.parametrize(("workers", "size"), [(3, 4), (3, 0), (0, 0), (0, 1), (3, -1)])
def test_shards_that_do_not_fit_are_refused(workers: int, size: int) -> None:
    with pytest.raises(InvalidValue, match=f"shards of {size} in a fleet of {workers}: expected 1 to {workers}"):
        schemes(workers, size)

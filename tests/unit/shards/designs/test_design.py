"""Plain sharding: nothing is shared, and a doubling moves nobody."""

from collections import Counter
from itertools import combinations, product

import pytest

from holdfast import InvalidValue
from holdfast.shards.designs import Disjoint, Pairs, Tuples
from tests.table import rows


def test_eight_workers_are_four_shards_of_two_as_in_the_article() -> None:
    design = Disjoint(2, 4)
    assert [design.shard(number) for number in range(design.capacity)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(("groups", "start"), [(1, 1), (2, 4), (3, 5)])
def test_doubling_moves_no_shard_and_gives_as_many_more(groups: int, start: int) -> None:
    before = Disjoint(groups, start)
    after = before.double().double()
    assert after.capacity == 4 * before.capacity
    for number in range(before.capacity):
        moved = [worker % after.per_group for worker in after.shard(number)]
        assert moved == [worker % before.per_group for worker in before.shard(number)]
    assert [segment.first for segment in after.segments] == [0, start, 2 * start]
    assert after.segments[:2] == before.double().segments


@pytest.mark.parametrize("number", [-1, 4])
def test_there_are_as_many_as_workers_in_a_group(number: int) -> None:
    with pytest.raises(InvalidValue, match="expected 0 to 3"):
        Disjoint(2, 4).shard(number)


@pytest.mark.parametrize("arguments", [(0, 4), (2, 0), (2, 4, -1), (2, 4, 33)])
def test_what_cannot_be_is_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValue, match="expected 1 or more of both, 0 to 32"):
        Disjoint(*arguments)


@rows("workers", range(2, 30))
def test_every_pair_comes_once(workers: int) -> None:
    design = Pairs(workers)
    found = Counter(frozenset(design.shard(number)) for number in range(design.capacity))
    assert found == Counter(map(frozenset, combinations(range(workers), 2)))


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
def test_opposite_workers_are_a_class_of_their_own_where_there_are_any(workers: int) -> None:
    sizes = [(segment.class_size, segment.classes) for segment in Pairs(workers).segments]
    expected = {2: [(1, 1)], 3: [(3, 1)], 4: [(4, 1), (2, 1)], 7: [(7, 3)], 8: [(8, 3), (4, 1)]}
    assert sizes == expected[workers]


def test_the_eight_workers_of_the_article_give_twenty_eight_shards() -> None:
    assert Pairs(8).capacity == 28


@rows("groups", range(1, 6))
@rows("per_group", range(1, 5))
def test_every_combination_comes_once(groups: int, per_group: int) -> None:
    design = Tuples(groups, per_group)
    found = [tuple(worker % per_group for worker in design.shard(number)) for number in range(design.capacity)]
    assert sorted(found) == list(product(range(per_group), repeat=groups))


@rows("groups", range(1, 4))
@rows("per_group", range(1, 6))
def test_a_class_shares_nothing_and_has_every_worker(groups: int, per_group: int) -> None:
    design = Tuples(groups, per_group)
    for first in range(0, design.capacity, per_group):
        taken = [worker for number in range(first, first + per_group) for worker in design.shard(number)]
        assert sorted(taken) == list(range(design.workers))

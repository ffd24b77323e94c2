"""Plain sharding: nothing is shared, and a doubling moves nobody."""

import pytest

from holdfast import InvalidValue
from holdfast.shards.designs import Disjoint


def test_eight_workers_are_four_shards_of_two_as_in_the_article() -> None:
    design = Disjoint(2, 4)
    assert [design.shard(number) for number in range(design.capacity)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(("groups", "start"), [(1, 1), (2, 4), (3, 5)])
def test_doubling_moves_no_shard_and_gives_as_many_more(groups: int, start: int) -> None:
    before = Disjoint(groups, start)
    after = before.doubled().doubled()
    assert after.capacity == 4 * before.capacity
    for number in range(before.capacity):
        moved = [worker % after.per_group for worker in after.shard(number)]
        assert moved == [worker % before.per_group for worker in before.shard(number)]
    assert [segment.first for segment in after.segments] == [0, start, 2 * start]
    assert after.segments[:2] == before.doubled().segments


@pytest.mark.parametrize("number", [-1, 4])
def test_there_are_as_many_as_workers_in_a_group(number: int) -> None:
    with pytest.raises(InvalidValue, match="expected 0 to 3"):
        Disjoint(2, 4).shard(number)


@pytest.mark.parametrize("arguments", [(0, 4), (2, 0), (2, 4, -1), (2, 4, 33)])
def test_what_cannot_be_is_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValue, match="expected 1 group, 1 worker, 0 to 32"):
        Disjoint(*arguments)

"""The same design several times over: families share nothing, fill alike, and can be doubled where the one can."""

from collections import Counter

import pytest

from holdfast.shards.designs import Families, Parity, Polynomials, Tuples

ONES: list[Parity | Polynomials | Tuples] = [Tuples(2, 4), Parity(3, 4), Parity(4, 3, 1), Polynomials(3, 5, 1)]


def name(one: object) -> str:
    return type(one).__name__


@pytest.mark.parametrize("one", ONES, ids=name)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_family_is_the_design_on_workers_of_its_own(one: Parity | Polynomials | Tuples, count: int) -> None:
    design = Families(one, count)
    assert (design.size, design.overlap) == (one.size, one.overlap)
    assert (design.workers, design.capacity) == (one.workers * count, one.capacity * count)
    expected = [one.shard(number) for number in range(one.capacity)]
    for family in range(count):
        first = family * one.workers
        found = [design.shard(number) for number in range(family, design.capacity, count)]
        assert [tuple(worker - first for worker in shard) for shard in found] == expected


@pytest.mark.parametrize("one", ONES, ids=name)
def test_families_are_dealt_in_turn(one: Parity | Polynomials | Tuples) -> None:
    design = Families(one, 3)
    dealt = Counter({0: 0, 1: 0, 2: 0})
    for number in range(design.capacity):
        dealt[design.shard(number)[0] // one.workers] += 1
        assert max(dealt.values()) - min(dealt.values()) <= 1


def test_one_family_is_the_design_itself() -> None:
    assert Families(ONES[0], 1).segments == ONES[0].segments


@pytest.mark.parametrize("count", [2, 3])
def test_a_shard_keeps_its_number_when_the_design_is_doubled(count: int) -> None:
    def list_positions(design: Families, number: int) -> list[tuple[int, int]]:
        per_group = design.workers // (count * design.size)
        return [divmod(worker, per_group) for worker in design.shard(number)]

    one = Parity(3, 4)
    before, after = Families(one, count), Families(one.double(), count)
    assert after.segments[: len(before.segments)] == before.segments
    for number in range(before.capacity):
        assert list_positions(after, number) == list_positions(before, number), "the same worker of the same group"

"""Shards are handed out class by class: whoever stops after a class has loaded all workers alike."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards.designs import Design, Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.hashed import build_rounds
from holdfast.shards.order import MAX_PERMUTATION_SIZE, Permutation, ShardOrder

KEY = b"a secret of sixteen bytes or more"
DESIGNS: list[Families | Pairs | Parity | Polynomials | Quadruples | Tuples] = [
    Quadruples(5),
    Quadruples(6, 4),
    Parity(4, 6),
    Parity(3, 4, 1),
    Polynomials(4, 9, 1),
    Pairs(2),
    Pairs(16),
    Pairs(17),
    Tuples(1, 9),
    Tuples(3, 7),
    Families(Parity(4, 5), 3),
    Families(Tuples(2, 6), 4),
    Families(Parity(4, 3, 1), 2),
    Polynomials(5, 25, 1, build_rounds(1, 5, 3)),
    Polynomials(6, 9, 2, build_rounds(2, 3, 4)),
    Polynomials(7, 8, 2, build_rounds(1, 7, 3)),
]
UNDOUBLED = [design for design in DESIGNS if len(design.segments) == 1 or isinstance(design, Pairs | Polynomials)]


def name(design: object) -> str:
    assert isinstance(design, Families | Pairs | Parity | Polynomials | Quadruples | Tuples)
    return f"{type(design).__name__}-{design.workers}-{design.size}-{design.overlap}-{design.capacity}"


@pytest.mark.parametrize("design", DESIGNS, ids=name)
@pytest.mark.parametrize("key", [KEY, b"another"])
def test_every_shard_is_handed_out_once(design: Design, key: bytes) -> None:
    order = ShardOrder(design, key)
    assert sorted(order[number] for number in range(design.capacity)) == list(range(design.capacity))


@pytest.mark.parametrize("design", UNDOUBLED, ids=name)
def test_after_each_whole_class_all_workers_are_loaded_alike(design: Design) -> None:
    order = ShardOrder(design, KEY)
    [segment, *_] = design.segments
    load: Counter[int] = Counter(dict.fromkeys(range(design.workers), 0))
    for number in range(segment.end):
        load.update(design.shard(order[number]))
        if (number + 1) % segment.class_size == 0:
            assert len(set(load.values())) == 1, f"after {number + 1} shards"


@pytest.mark.parametrize("design", UNDOUBLED, ids=name)
def test_within_a_class_nobody_gets_ahead_by_more_than_the_class_gives(design: Design) -> None:
    order = ShardOrder(design, KEY)
    [segment, *_] = design.segments
    most = segment.class_size * design.size // design.workers
    load: Counter[int] = Counter(dict.fromkeys(range(design.workers), 0))
    for number in range(segment.end):
        load.update(design.shard(order[number]))
        if number % 7 == 0:
            assert max(load.values()) - min(load.values()) <= most, f"after {number + 1} shards"


def test_where_there_are_more_classes_than_are_shuffled_the_rest_still_come_once() -> None:
    design = Parity(8, 64)
    order = ShardOrder(design, KEY)
    last = MAX_PERMUTATION_SIZE * 64
    assert last < design.capacity
    assert len({order[number] for number in range(last - 128, last + 128)}) == 256
    assert all(0 <= order[number] < design.capacity for number in (0, last, design.capacity - 1))


@pytest.mark.parametrize("design", [Quadruples(4), Parity(3, 4), Families(Parity(3, 4), 2)], ids=name)
def test_what_a_design_keeps_when_it_is_doubled_its_order_keeps(design: Quadruples | Parity | Families) -> None:
    if isinstance(design, Families):
        assert isinstance(design.design, Parity)
        after: Design = Families(design.design.double(), design.count)
    else:
        after = design.double()
    one, other = ShardOrder(design, KEY), ShardOrder(after, KEY)
    assert [one[number] for number in range(design.capacity)] == [other[number] for number in range(design.capacity)]


KEYS = st.binary(max_size=80)


@given(st.integers(1, 2000), KEYS)
def test_everything_stands_at_one_place(size: int, key: bytes) -> None:
    order = Permutation(size, key)
    assert sorted(order.look_up(number) for number in range(size)) == list(range(size))


@given(st.integers(1, MAX_PERMUTATION_SIZE), KEYS, st.data())
def test_in_large_ones_no_two_stand_at_one_place(size: int, key: bytes, data: st.DataObject) -> None:
    order = Permutation(size, key)
    one, other = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    assert 0 <= order.look_up(one) < size
    assert (order.look_up(one) == order.look_up(other)) == (one == other)


def test_the_key_chooses_the_order() -> None:
    one, other = Permutation(10_000, b"one"), Permutation(10_000, b"other")
    same = sum(one.look_up(number) == other.look_up(number) for number in range(10_000))
    assert same < 20, "about one of ten thousand by chance"
    assert [one.look_up(number) for number in range(100)] == [
        Permutation(10_000, b"one").look_up(number) for number in range(100)
    ]


def test_neighbours_do_not_stay_neighbours() -> None:
    order = Permutation(1 << 16, b"key")
    steps = Counter(order.look_up(number + 1) - order.look_up(number) for number in range((1 << 16) - 1))
    assert max(steps.values()) < 16


@pytest.mark.parametrize("size", [0, -1, MAX_PERMUTATION_SIZE + 1])
def test_a_size_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to"):
        Permutation(size, b"")


def test_the_order_is_the_same_on_every_machine() -> None:
    """Whatever the order of its bytes: a layout that is kept must give the same shards elsewhere."""
    assert [Permutation(1000, b"key").look_up(number) for number in range(6)] == [260, 377, 819, 744, 666, 943]

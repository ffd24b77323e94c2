"""A keyed order has everything once, and tells nothing to whoever has not the key."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards.permutation import LARGEST, Permutation

KEYS = st.binary(max_size=80)


@given(st.integers(1, 2000), KEYS)
def test_everything_stands_at_one_place(size: int, key: bytes) -> None:
    order = Permutation(size, key)
    assert sorted(order[number] for number in range(size)) == list(range(size))


@given(st.integers(1, LARGEST), KEYS, st.data())
def test_in_large_ones_no_two_stand_at_one_place(size: int, key: bytes, data: st.DataObject) -> None:
    order = Permutation(size, key)
    one, other = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    assert 0 <= order[one] < size
    assert (order[one] == order[other]) == (one == other)


def test_the_key_chooses_the_order() -> None:
    one, other = Permutation(10_000, b"one"), Permutation(10_000, b"other")
    same = sum(one[number] == other[number] for number in range(10_000))
    assert same < 20, "about one of ten thousand by chance"
    assert [one[number] for number in range(100)] == [Permutation(10_000, b"one")[number] for number in range(100)]


def test_neighbours_do_not_stay_neighbours() -> None:
    order = Permutation(1 << 16, b"key")
    steps = Counter(order[number + 1] - order[number] for number in range((1 << 16) - 1))
    assert max(steps.values()) < 16


@pytest.mark.parametrize("size", [0, -1, LARGEST + 1])
def test_a_size_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to"):
        Permutation(size, b"")


@pytest.mark.parametrize("number", [-1, 5])
def test_what_is_not_in_it_is_refused(number: int) -> None:
    order = Permutation(5, b"")
    with pytest.raises(InvalidValue, match="expected 0 to 4"):
        order[number]


def test_the_order_is_the_same_on_every_machine() -> None:
    """Whatever the order of its bytes: a layout that is kept must give the same shards elsewhere."""
    assert [Permutation(1000, b"key")[number] for number in range(6)] == [260, 377, 819, 744, 666, 943]

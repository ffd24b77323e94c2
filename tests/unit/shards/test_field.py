"""Finite fields are fields: every law for every small one."""

from itertools import product

import pytest

from holdfast import InvalidValue
from holdfast.shards.field import (
    MAX_FIELD_SIZE,
    Field,
    _powers_of_generator,
    factor_prime_power,
    find_largest_prime_power,
    get_field,
)
from tests.table import rows

SMALL = [2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 25, 27]


def added(field: Field, left: int, right: int) -> int:
    [total] = field.add_each([left], [right])
    return total


@rows("size", SMALL)
def test_the_laws_of_a_field_hold(size: int) -> None:
    field = Field(size)
    everything = range(size)
    for one in everything:
        assert sorted(added(field, one, other) for other in everything) == list(everything)
        assert (added(field, one, 0), field.multiply(one, 1), field.multiply(one, 0)) == (one, one, 0)
        if one:
            assert sorted(field.multiply(one, other) for other in everything) == list(everything)
    for a, b in product(everything, repeat=2):
        assert added(field, a, b) == added(field, b, a)
        assert field.multiply(a, b) == field.multiply(b, a)
    for a, b, c in product(range(min(size, 9)), everything, range(min(size, 9))):
        assert added(field, added(field, a, b), c) == added(field, a, added(field, b, c))
        assert field.multiply(field.multiply(a, b), c) == field.multiply(a, field.multiply(b, c))
        assert field.multiply(a, added(field, b, c)) == added(field, field.multiply(a, b), field.multiply(a, c))


@pytest.mark.no_cover
@pytest.mark.parametrize("size", [101, 512, 729, 1021, 2048, 65_536])
def test_large_fields_have_every_product_once(size: int) -> None:
    field = get_field(size)
    assert len({field.multiply(3 % size or 2, other) for other in range(size)}) == size
    assert field.powers(2, 3) == (1, 2, field.multiply(2, 2))
    assert get_field(size) is field


@rows("size", [-1, 0, 1, 6, 10, 12, 100, MAX_FIELD_SIZE + 1, 65_537])
def test_other_sizes_have_no_field(size: int) -> None:
    with pytest.raises(InvalidValue, match="prime power"):
        Field(size)


def test_where_there_is_no_field_no_element_generates_all_others() -> None:
    """What is looked for is not taken for granted: of the numbers modulo 6 there is none."""
    with pytest.raises(AssertionError, match="a field of 6 elements has a generator"):
        _powers_of_generator(6, 1)
    assert sorted(_powers_of_generator(7, 1)) == [1, 2, 3, 4, 5, 6]


def test_prime_powers_are_told_from_others() -> None:
    assert [number for number in range(30) if factor_prime_power(number)] == [
        *(2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27, 29),
    ]
    assert (factor_prime_power(8), factor_prime_power(81), factor_prime_power(97)) == ((2, 3), (3, 4), (97, 1))
    assert [find_largest_prime_power(limit) for limit in (1, 2, 6, 100, 512)] == [None, 2, 5, 97, 512]


def test_a_group_that_is_larger_than_any_field_uses_the_largest() -> None:
    assert find_largest_prime_power(75_000) == find_largest_prime_power(10**12) == MAX_FIELD_SIZE == 65_536

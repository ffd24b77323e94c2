"""Counts with their nouns."""

import pytest

from holdfast._names import format_count


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, ("tenant",), "0 tenants"),
        (1, ("tenant",), "1 tenant"),
        (2000, ("tenant",), "2,000 tenants"),
        (1, ("delivery", "deliveries"), "1 delivery"),
        (2, ("delivery", "deliveries"), "2 deliveries"),
    ],
)
def test_a_count_has_a_noun_in_singular_or_plural(count: int, words: tuple[str, ...], expected: str) -> None:
    assert format_count(count, *words) == expected

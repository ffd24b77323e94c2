"""Which values a database can hold at all."""

import pytest

from holdfast.queue.backends.sql.message import is_id, is_storable


@pytest.mark.parametrize(
    ("text", "storable"), [("", True), ("tenant", True), ("\u00e9\U0001f600", True), ("a\0b", False), ("\ud800", False)]
)
def test_text_with_nul_or_half_a_character_is_not_storable(text: str, storable: bool) -> None:
    assert is_storable(text) is storable


@pytest.mark.parametrize(("number", "possible"), [(-1, False), (0, False), (1, True), (2**40, True), (2**64, False)])
def test_ids_are_positive_integers_of_64_bits(number: int, possible: bool) -> None:
    assert is_id(number) is possible

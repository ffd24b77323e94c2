"""Characters that text for people must not have, and counts with their nouns."""

import re
import sys
import unicodedata

import pytest

from holdfast._names import CONTROL_CHARACTERS, format_count


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


def test_exactly_the_controls_of_terminals_lines_and_directions_are_control_characters() -> None:
    directional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = {unicodedata.lookup(name) for name in ("LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK")}
    expected = {
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in {"Cc", "Zl", "Zp"}
        or unicodedata.bidirectional(character) in directional
        or character in marks
    }
    assert set(re.findall(f"[{CONTROL_CHARACTERS}]", "".join(map(chr, range(0x10000))))) == expected

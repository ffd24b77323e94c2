"""A tenant's name is any bytes, and can always be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.shards.names import name_of, shown


def test_text_is_the_same_as_its_utf_8_bytes() -> None:
    assert name_of("grün") == name_of(b"gr\xc3\xbcn") == b"gr\xc3\xbcn"
    assert name_of(b"\xff\x00") == b"\xff\x00"
    assert name_of("") == b""


@given(st.text(st.characters()))
def test_every_text_has_a_name_of_its_own(text: str) -> None:
    assert name_of(text).decode("utf-8", "surrogatepass") == text


def test_half_a_character_is_a_name_too() -> None:
    assert name_of("\ud800") == b"\xed\xa0\x80"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"tenant-1", "tenant-1"),
        ("grün".encode(), "grün"),
        (b"", "''"),
        (b"two words", "two words"),
        (b"a\nb\tc\x00", r"a\nb\tc\x00"),
        (b"\xff\xfe", r"\xff\xfe"),
        (b"\x1b[31mred", r"\x1b[31mred"),
        ("\u202eright to left".encode(), r"\u202eright to left"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
    ],
)
def test_what_cannot_be_printed_is_escaped(name: bytes, told: str) -> None:
    assert shown(name) == told


def test_of_a_long_name_the_beginning_is_shown() -> None:
    assert shown(b"a" * 80) == "a" * 80
    assert shown(b"a" * 81 + b"b") == "a" * 80 + "..."
    assert shown("ü".encode() * 81) == "ü" * 80 + "...", "whole characters"


@given(st.binary(max_size=200))
def test_whatever_is_shown_is_one_line_that_can_be_printed(name: bytes) -> None:
    told = shown(name)
    assert told
    assert told.isprintable()
    assert told.encode()

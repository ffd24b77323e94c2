"""A tenant's name is any bytes, and can always be shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Assignments, Registry
from holdfast.shards.names import name_of, names_of, shown
from holdfast.shards.stores import MemoryShardStore


def test_text_is_the_same_as_its_utf_8_bytes() -> None:
    assert name_of("grün") == name_of(b"gr\xc3\xbcn") == b"gr\xc3\xbcn"
    assert name_of(b"\xff\x00") == b"\xff\x00"
    assert name_of("") == b""


@given(st.text(st.characters()))
def test_every_text_has_a_name_of_its_own(text: str) -> None:
    assert name_of(text).decode("utf-8", "surrogatepass") == text


def test_half_a_character_is_a_name_too() -> None:
    assert name_of("\ud800") == b"\xed\xa0\x80"


@pytest.mark.parametrize("tenant", [17, None, 1.5, ["a"], bytearray(b"a")], ids=repr)
def test_what_is_neither_text_nor_bytes_is_no_name(tenant: Any) -> None:
    """A number, such as that of a row, would be another tenant where it is text."""
    with pytest.raises(InvalidValue, match=r"tenant .*: expected text or bytes"):
        name_of(tenant)
    with pytest.raises(InvalidValue, match=r"tenant .*: expected text or bytes"):
        names_of(["a", tenant])


def test_many_names_come_from_whatever_holds_them() -> None:
    wanted = [b"a", b"gr\xc3\xbcn"]
    names: list[str | bytes] = ["a", b"gr\xc3\xbcn"]
    assert names_of(names) == names_of(tuple(names)) == names_of(iter(names)) == wanted
    assert names_of(dict.fromkeys(["a", "grün"])) == wanted
    assert names_of([]) == []


@pytest.mark.parametrize("name", ["abc", b"abc", "", b""], ids=repr)
def test_one_name_in_place_of_many_is_not_taken_letter_by_letter(name: Any) -> None:
    store = MemoryShardStore()
    for ask in (
        names_of,
        Registry(store, 10).numbers,
        Registry(store, 10).release,
        Assignments(store).remove,
    ):
        with pytest.raises(InvalidValue, match=r"tenants b?'(abc)?': expected several names, such as a list of one"):
            ask(name)
    assert store.count() == 0


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

"""A tenant's name is any bytes, and can always be shown."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Assignments, TenantRegistry
from holdfast.shards.names import compute_score, encode_name, encode_names, format_name, hash_name, mix_bits
from holdfast.shards.stores import MemoryShardStore
from tests.table import rows


def test_text_is_the_same_as_its_utf_8_bytes() -> None:
    assert encode_name("grün") == encode_name(b"gr\xc3\xbcn") == b"gr\xc3\xbcn"
    assert encode_name(b"\xff\x00") == b"\xff\x00"
    assert encode_name("") == b""


@given(st.text(st.characters()))
def test_every_text_has_a_name_of_its_own(text: str) -> None:
    assert encode_name(text).decode("utf-8", "surrogatepass") == text


def test_half_a_character_is_a_name_too() -> None:
    assert encode_name("\ud800") == b"\xed\xa0\x80"


@pytest.mark.parametrize("tenant", [17, None, 1.5, ["a"], bytearray(b"a")], ids=repr)
def test_what_is_neither_text_nor_bytes_is_no_name(tenant: Any) -> None:
    """A number, such as that of a row, would be another tenant where it is text."""
    with pytest.raises(InvalidValue, match=r"tenant .*: expected text or bytes"):
        encode_name(tenant)
    with pytest.raises(InvalidValue, match=r"tenant .*: expected text or bytes"):
        encode_names(["a", tenant])


def test_many_names_come_from_whatever_holds_them() -> None:
    wanted = [b"a", b"gr\xc3\xbcn"]
    names: list[str | bytes] = ["a", b"gr\xc3\xbcn"]
    assert encode_names(names) == encode_names(tuple(names)) == encode_names(iter(names)) == wanted
    assert encode_names(dict.fromkeys(["a", "grün"])) == wanted
    assert encode_names([]) == []


@pytest.mark.parametrize("name", ["abc", b"abc", "", b""], ids=repr)
def test_one_name_in_place_of_many_is_not_taken_letter_by_letter(name: Any) -> None:
    store = MemoryShardStore()
    for ask in (
        encode_names,
        TenantRegistry(store, 10).assign_many,
        TenantRegistry(store, 10).remove,
        Assignments(store).remove,
    ):
        with pytest.raises(InvalidValue, match=r"tenants b?'(abc)?': expected several names, such as a list of one"):
            ask(name)
    assert store.count() == 0


@rows(
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
    assert format_name(name) == told


def test_of_a_long_name_the_beginning_is_shown() -> None:
    assert format_name(b"a" * 80) == "a" * 80
    assert format_name(b"a" * 81 + b"b") == "a" * 80 + "..."
    assert format_name("ü".encode() * 81) == "ü" * 80 + "...", "whole characters"


@given(st.binary(max_size=200))
def test_whatever_is_shown_is_one_line_that_can_be_printed(name: bytes) -> None:
    told = format_name(name)
    assert told
    assert told.isprintable()
    assert told.encode()


BITS = st.integers(0, (1 << 64) - 1)
MASK = (1 << 64) - 1


def unmixed(number: int) -> int:
    """What `mix_bits` made it of, step by step backwards."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        undone = number
        for _ in range(64 // shift):
            undone = number ^ undone >> shift
        number = undone * pow(factor, -1, 1 << 64) & MASK
    return number


@given(BITS)
def test_mixing_can_be_undone_so_no_two_numbers_become_one(number: int) -> None:
    assert 0 <= mix_bits(number) <= MASK
    assert unmixed(mix_bits(number)) == number
    assert mix_bits(unmixed(number)) == number


def test_it_is_the_finaliser_of_splitmix64() -> None:
    """The first numbers that the generator gives for seed 0: its state goes on by this constant."""
    step = 0x9E3779B97F4A7C15
    assert mix_bits(step) == 0xE220A8397B1DCDAF
    assert mix_bits(2 * step & MASK) == 0x6E789E6AA1B965F4


def test_every_bit_depends_on_every_bit() -> None:
    for bit in range(64):
        changed = Counter[int]()
        for number in range(200):
            difference = mix_bits(hash_name(b"", b"%d" % number)) ^ mix_bits(hash_name(b"", b"%d" % number) ^ 1 << bit)
            changed.update(bit_position for bit_position in range(64) if difference >> bit_position & 1)
        assert all(50 < changed[bit_position] < 150 for bit_position in range(64)), f"bit {bit}"


def test_the_number_of_a_name_is_the_same_everywhere_and_no_other_key_gives_it() -> None:
    assert hash_name(b"key", b"name") == 0xDF6AD353E3E6A58C
    assert hash_name(b"key", b"name") != hash_name(b"other", b"name")
    assert hash_name(b"key", b"name") != hash_name(b"key", b"name ")
    assert hash_name(b"k" * 64 + b"more", b"name") == hash_name(b"k" * 64, b"name"), "64 bytes of a key count"


@given(st.integers(0, MASK - 1024), st.integers(0, MASK - 1024))
def test_a_higher_draw_scores_no_lower(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 < compute_score(unmixed(low), 1.0) <= compute_score(unmixed(high), 1.0)


@given(BITS, st.floats(0.001, 1000))
def test_a_score_grows_with_the_weight(number: int, weight: float) -> None:
    assert compute_score(number, weight) == pytest.approx(weight * compute_score(number, 1.0))


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0, 3.0])
def test_one_wins_as_often_as_it_weighs(weight: float) -> None:
    wins = sum(
        compute_score(hash_name(b"a", b"%d" % number), weight) > compute_score(hash_name(b"b", b"%d" % number), 1.0)
        for number in range(10_000)
    )
    assert wins / 10_000 == pytest.approx(weight / (weight + 1), abs=0.015)


def test_one_of_weight_two_is_as_good_as_the_better_of_two_draws() -> None:
    heavy = sorted(compute_score(hash_name(b"a", b"%d" % number), 2.0) for number in range(10_000))
    better = sorted(
        max(compute_score(hash_name(b"b", b"%d" % number), 1.0), compute_score(hash_name(b"c", b"%d" % number), 1.0))
        for number in range(10_000)
    )
    for share in (1000, 3000, 5000, 7000, 8000):
        assert heavy[share] == pytest.approx(better[share], rel=0.1)


@pytest.mark.parametrize("draw", [MASK, MASK - 1023])
def test_the_highest_draws_have_a_score_as_well(draw: int) -> None:
    assert compute_score(unmixed(draw), 1.0) >= compute_score(unmixed(MASK - 4096), 1.0)


def test_the_lowest_draw_has_a_score() -> None:
    assert 0 < compute_score(unmixed(0), 1.0) < 0.03

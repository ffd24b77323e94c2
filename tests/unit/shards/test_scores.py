"""Draws that look random: nothing is lost on the way, weights count, and only the key tells them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.shards.scores import mixed, number_of, score

BITS = st.integers(0, (1 << 64) - 1)
MASK = (1 << 64) - 1


def unmixed(number: int) -> int:
    """What `mixed` made it of, step by step backwards."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        undone = number
        for _ in range(64 // shift):
            undone = number ^ undone >> shift
        number = undone * pow(factor, -1, 1 << 64) & MASK
    return number


@given(BITS)
def test_mixing_can_be_undone_so_no_two_numbers_become_one(number: int) -> None:
    assert 0 <= mixed(number) <= MASK
    assert unmixed(mixed(number)) == number
    assert mixed(unmixed(number)) == number


def test_it_is_the_finaliser_of_splitmix64() -> None:
    """The first numbers that the generator gives for seed 0: its state goes on by this constant."""
    step = 0x9E3779B97F4A7C15
    assert mixed(step) == 0xE220A8397B1DCDAF
    assert mixed(2 * step & MASK) == 0x6E789E6AA1B965F4


def test_every_bit_depends_on_every_bit() -> None:
    for bit in range(64):
        changed = Counter[int]()
        for number in range(200):
            difference = mixed(number_of(b"", b"%d" % number)) ^ mixed(number_of(b"", b"%d" % number) ^ 1 << bit)
            changed.update(place for place in range(64) if difference >> place & 1)
        assert all(50 < changed[place] < 150 for place in range(64)), f"bit {bit}"


def test_the_number_of_a_name_is_the_same_everywhere_and_no_other_key_gives_it() -> None:
    assert number_of(b"key", b"name") == 0xDF6AD353E3E6A58C
    assert number_of(b"key", b"name") != number_of(b"other", b"name")
    assert number_of(b"key", b"name") != number_of(b"key", b"name ")
    assert number_of(b"k" * 64 + b"more", b"name") == number_of(b"k" * 64, b"name"), "64 bytes of a key count"


@given(st.integers(0, MASK - 1024), st.integers(0, MASK - 1024))
def test_a_higher_draw_scores_no_lower(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 < score(unmixed(low), 1.0) <= score(unmixed(high), 1.0)


@given(BITS, st.floats(0.001, 1000))
def test_a_score_grows_with_the_weight(number: int, weight: float) -> None:
    assert score(number, weight) == pytest.approx(weight * score(number, 1.0))


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0, 3.0])
def test_one_wins_as_often_as_it_weighs(weight: float) -> None:
    wins = sum(
        score(number_of(b"a", b"%d" % number), weight) > score(number_of(b"b", b"%d" % number), 1.0)
        for number in range(10_000)
    )
    assert wins / 10_000 == pytest.approx(weight / (weight + 1), abs=0.015)


def test_one_of_weight_two_is_as_good_as_the_better_of_two_draws() -> None:
    heavy = sorted(score(number_of(b"a", b"%d" % number), 2.0) for number in range(10_000))
    better = sorted(
        max(score(number_of(b"b", b"%d" % number), 1.0), score(number_of(b"c", b"%d" % number), 1.0))
        for number in range(10_000)
    )
    for share in (1000, 3000, 5000, 7000, 8000):
        assert heavy[share] == pytest.approx(better[share], rel=0.1)


@pytest.mark.parametrize("draw", [MASK, MASK - 1023])
def test_the_highest_draws_have_a_score_as_well(draw: int) -> None:
    assert score(unmixed(draw), 1.0) >= score(unmixed(MASK - 4096), 1.0)


def test_the_lowest_draw_has_a_score() -> None:
    assert 0 < score(unmixed(0), 1.0) < 0.03

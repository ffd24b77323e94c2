"""A rate with a burst: never more than it says in any stretch of time, and never less than it can be."""

import math
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.queue.rules import bucket

EPOCH = 1_750_000_000.0
RATES = st.floats(0.001, 1000)
BURSTS = st.floats(0.01, 100)
STARTS = st.sampled_from([0.0, EPOCH])
STEPS = st.lists(st.tuples(st.floats(0, 20), st.integers(0, 150)), min_size=1, max_size=30)


@given(STARTS, RATES, BURSTS, STEPS)
def test_no_stretch_of_time_has_more_than_its_rate_and_one_burst(
    start: float, rate: float, burst: float, steps: list[tuple[float, int]]
) -> None:
    full_at, taken = 0.0, []
    for now, wanted in zip(
        accumulate([seconds for seconds, _ in steps], initial=start), [w for _, w in steps], strict=False
    ):
        granted, full_at = bucket.take(full_at, now, wanted, rate, burst)
        assert 0 <= granted <= wanted
        taken.append((now, granted))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            seconds = taken[last][0] - taken[first][0] + bucket.TOLERANCE * (last - first + 2)
            assert sum(granted for _, granted in taken[first : last + 1]) <= max(1, burst) + rate * seconds + 1e-6


@example(EPOCH, 194.0, 1.9998067489595854, 2)
@given(STARTS, RATES, BURSTS, st.integers(1, 500))
def test_the_next_token_is_there_when_it_was_said_to_be_and_not_before(
    start: float, rate: float, burst: float, wanted: int
) -> None:
    granted, full_at = bucket.take(0.0, start, wanted, rate, burst)
    seconds = bucket.seconds_until_token(full_at, start, rate, burst)
    if granted < wanted:
        assert seconds > 0
    assert bucket.count_available(full_at, start + seconds + 1e-6, rate, burst) >= 1
    if seconds > 1e-4:
        assert bucket.count_available(full_at, start + seconds - 1e-5, rate, burst) == 0
        assert bucket.seconds_until_token(full_at, start + seconds / 2, rate, burst) == pytest.approx(
            seconds / 2, abs=2e-6
        )


FILLED = st.one_of(st.floats(1, 10), st.integers(1, 10).map(lambda count: count - 2e-4))
"""Some of them almost have another token: less is missing than times are rounded by."""


@example(EPOCH, 194.0, 1.9998067489595854, 0.0)
@example(EPOCH, 1e6, 10.0, 5.0)
@given(STARTS, st.floats(1e-6, 1e6), FILLED, st.floats(0, 10))
def test_whoever_gets_less_than_it_wants_waits_and_gets_nothing_by_asking_again(
    start: float, rate: float, burst: float, spent: float
) -> None:
    granted, full_at = bucket.take(start + spent / rate, start, 1000, rate, burst)
    assert granted < 1000
    assert bucket.seconds_until_token(full_at, start, rate, burst) > 0
    assert bucket.take(full_at, start, 1, rate, burst) == (0, full_at)


@given(STARTS, RATES, BURSTS)
def test_whoever_comes_as_often_as_it_may_is_never_turned_away(start: float, rate: float, burst: float) -> None:
    full_at = 0.0
    for turn in range(200):
        granted, full_at = bucket.take(full_at, start + turn / rate, 1, rate, burst)
        assert granted == 1


@example(EPOCH, 619.240743001715, 94.99936791590905, [(19.7587124991524, 88)])
@given(STARTS, RATES, BURSTS, STEPS)
def test_what_is_left_over_is_there_again_after_a_while(
    start: float, rate: float, burst: float, steps: list[tuple[float, int]]
) -> None:
    full_at, now = 0.0, start
    for seconds, wanted in steps:
        now += seconds
        _, full_at = bucket.take(full_at, now, wanted, rate, burst)
    later = now + max(1.0, burst) / rate
    most = max(1.0, burst) + rate * bucket.TOLERANCE + 1e-9
    rounded = rate * math.ulp(
        later
    )  # tokens that a time of this size cannot tell apart: they may make another whole one
    available = bucket.count_available(full_at, later + 1e-6, rate, burst)
    assert math.floor(most) <= available <= math.floor(most + rounded)


def test_it_begins_full_and_a_long_silence_does_not_overfill_it() -> None:
    assert bucket.take(0.0, EPOCH, 100, 2.0, 10.0) == (10, EPOCH + 5)
    assert bucket.count_available(EPOCH + 5, EPOCH + 1000, 2.0, 10.0) == 10


def test_a_burst_below_one_is_one() -> None:
    granted, full_at = bucket.take(0.0, 100.0, 5, 2.0, 0.1)
    assert (granted, full_at) == (1, 100.5)
    assert bucket.seconds_until_token(full_at, 100.0, 2.0, 0.1) == pytest.approx(0.5, abs=2e-6)
    assert bucket.reserve(full_at, 100.0, 2, 2.0, 0.1) == ([0.5, 1.0], 101.5)


def test_without_a_rate_there_is_nothing_and_never_will_be() -> None:
    assert bucket.count_available(0.0, 100.0, 0.0, 5.0) == 0
    assert bucket.seconds_until_token(0.0, 100.0, 0.0, 5.0) == math.inf
    assert bucket.take(7.0, 100.0, 5, 0.0, 5.0) == (0, 7.0)


def test_taking_nothing_changes_nothing() -> None:
    assert bucket.take(3.0, 100.0, 0, 2.0, 5.0) == (0, 3.0)
    assert bucket.spend(3.0, 100.0, 0, 2.0, 5.0) == 3.0


def test_a_rate_that_is_raised_counts_at_once() -> None:
    """A bucket of one in a thousand seconds, just emptied, holds up a hundred per second no longer than a moment."""
    _, full_at = bucket.take(0.0, EPOCH, 1, 0.001, 1.0)
    assert full_at == EPOCH + 1000
    granted, full_at = bucket.take(full_at, EPOCH, 50, 100.0, 50.0)
    assert granted == 1
    assert bucket.take(full_at, EPOCH + 0.1001, 50, 100.0, 50.0)[0] == 10


def test_a_clock_that_is_set_back_holds_nobody_up_for_long() -> None:
    _, full_at = bucket.take(0.0, EPOCH, 5, 10.0, 5.0)
    earlier = EPOCH - 3600
    assert bucket.seconds_until_token(full_at, earlier, 10.0, 5.0) == 0
    granted, full_at = bucket.take(full_at, earlier, 5, 10.0, 5.0)
    assert granted == 1
    assert full_at == pytest.approx(earlier + 0.5, abs=1e-5)
    assert bucket.take(full_at, earlier, 5, 10.0, 5.0)[0] == 0


def test_clocks_that_differ_a_little_give_nothing_away() -> None:
    _, full_at = bucket.take(0.0, EPOCH, 5, 10.0, 5.0)
    assert bucket.take(full_at, EPOCH - 0.9, 5, 10.0, 5.0) == (0, full_at)
    assert bucket.seconds_until_token(full_at, EPOCH - 0.9, 10.0, 5.0) == pytest.approx(1.0, abs=2e-6)


@given(STARTS, RATES, BURSTS, st.integers(0, 50), st.integers(1, 50))
def test_reserved_tokens_come_when_waiting_for_them_would_have_got_them(
    start: float, rate: float, burst: float, taken: int, count: int
) -> None:
    _, full_at = bucket.take(0.0, start, taken, rate, burst)
    delays, _ = bucket.reserve(full_at, start, count, rate, burst)
    assert len(delays) == count
    now = start
    for delay in delays:
        now += bucket.seconds_until_token(full_at, now, rate, burst)
        assert now == pytest.approx(start + delay, abs=1e-4)
        full_at = bucket.spend(full_at, now, 1, rate, burst)


@given(STARTS, RATES, BURSTS, st.lists(st.integers(0, 40), max_size=5))
def test_what_is_reserved_in_parts_is_what_would_be_at_once(
    start: float, rate: float, burst: float, parts: list[int]
) -> None:
    full_at, found = 0.0, []
    for count in parts:
        delays, full_at = bucket.reserve(full_at, start, count, rate, burst)
        found += delays
    whole, whole_full_at = bucket.reserve(0.0, start, sum(parts), rate, burst)
    assert found == pytest.approx(whole, abs=1e-4)
    assert full_at == pytest.approx(whole_full_at, abs=1e-4)
    assert all(delay == 0 or delay > bucket.TOLERANCE for delay in whole)

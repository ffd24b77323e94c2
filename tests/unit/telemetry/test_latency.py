"""A histogram of latencies."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.telemetry import Latencies

DURATIONS = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=200)


@given(DURATIONS, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_five_percent_of_the_exact_one(seconds: list[float], share: float) -> None:
    exact = sorted(seconds)[max(1, -int(-share * len(seconds) // 1)) - 1]
    assert Latencies(seconds).quantile(share) == pytest.approx(exact, rel=0.051)


@given(DURATIONS, DURATIONS)
def test_two_histograms_add_up_to_the_one_of_both(one: list[float], other: list[float]) -> None:
    merged = Latencies(one)
    merged.merge(Latencies(other))
    assert merged.count == len(one) + len(other)
    assert merged.quantile(0.5) == Latencies(one + other).quantile(0.5)


def test_nothing_has_no_quantile() -> None:
    assert Latencies().quantile(0.5) is None


def test_zero_and_less_count_as_the_smallest() -> None:
    quantile = Latencies([0.0, -1.0]).quantile(0.5)
    assert quantile is not None
    assert quantile < 2e-6


def test_the_median_of_many_is_close_to_the_exact_one() -> None:
    seconds = [0.001 * (number % 97 + 1) for number in range(10_000)]
    assert Latencies(seconds).quantile(0.5) == pytest.approx(statistics.median(seconds), rel=0.05)

"""The histogram that all parts share."""

import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metrics import Histogram
from tests.table import rows

DURATIONS = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=200)


@given(DURATIONS, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_five_percent_of_the_exact_one(seconds: list[float], share: float) -> None:
    exact = sorted(seconds)[max(1, -int(-share * len(seconds) // 1)) - 1]
    assert Histogram.of(seconds).quantile(share) == pytest.approx(exact, rel=0.0443)


@given(DURATIONS, DURATIONS)
def test_two_histograms_add_up_to_the_one_of_both(one: list[float], other: list[float]) -> None:
    merged = Histogram.of(one)
    merged.merge(Histogram.of(other))
    assert merged.count == len(one) + len(other)
    assert merged.quantile(0.5) == Histogram.of(one + other).quantile(0.5)


def test_nothing_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


def test_zero_and_less_count_as_the_smallest() -> None:
    histogram = Histogram.of([0.0, -1.0])
    quantile = histogram.quantile(0.5)
    assert quantile is not None
    assert quantile < 2e-6
    assert (histogram.min, histogram.max, histogram.sum) == (-1.0, 0.0, -1.0)


def test_the_median_of_many_is_close_to_the_exact_one() -> None:
    seconds = [0.001 * (number % 97 + 1) for number in range(10_000)]
    assert Histogram.of(seconds).quantile(0.5) == pytest.approx(statistics.median(seconds), rel=0.05)


@rows("exponent", range(-19, 20))
def test_a_bucket_ends_with_a_power_of_two_and_the_next_begins_above_it(exponent: int) -> None:
    edge = 2.0**exponent
    assert Histogram.of([edge]).buckets == {8 * exponent - 1: 1}
    assert Histogram.of([edge * (1 + 1e-9)]).buckets == {8 * exponent: 1}
    assert Histogram.of([edge]).cumulative([edge / 2, edge, edge * 2]) == [0, 1, 1]


@given(st.lists(st.floats(-1, 1e4), max_size=200))
def test_counts_up_to_powers_of_two_are_exact(values: list[float]) -> None:
    edges = [2.0**exponent for exponent in range(-10, 12)]
    expected = [sum(value <= edge for value in values) for edge in edges]
    assert Histogram.of(values).cumulative(edges) == expected


@given(DURATIONS)
def test_the_smallest_and_the_largest_are_exact(values: list[float]) -> None:
    histogram = Histogram.of(values)
    assert (histogram.min, histogram.max) == (min(values), max(values))
    assert histogram.quantile(1.0) == pytest.approx(max(values), rel=0.0443)
    assert histogram.min <= histogram.quantiles([0.0])[0] <= histogram.max


@given(st.lists(st.floats(0, 1e4), max_size=200))
def test_it_can_be_encoded(values: list[float]) -> None:
    histogram = Histogram.of(values)
    assert msgspec.json.decode(msgspec.json.encode(histogram), type=Histogram) == histogram
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(histogram), type=Histogram) == histogram


def test_a_value_can_be_counted_several_times_and_an_empty_histogram_adds_nothing() -> None:
    histogram = Histogram()
    histogram.add(0.25, 3)
    histogram.merge(Histogram())
    assert histogram == Histogram.of([0.25] * 3)
    empty = Histogram()
    empty.merge(histogram)
    assert empty == histogram

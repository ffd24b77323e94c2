"""Recorded latencies keep their size and number in our buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._errors import InvalidValue
from holdfast.replay.latencies import build_empty, convert_percentiles, spread_histograms


def convert(successes: int, *percentiles: float) -> list[float | None]:
    arrays = [np.array([each]) for each in percentiles]
    row = convert_percentiles(np.array([successes]), *arrays).row(0)
    assert row.count in (0, successes)
    return [row.quantile(q) for q in (0.5, 0.9, 0.99)]


@pytest.mark.parametrize("successes", [1000, 50_000])
def test_a_histogram_of_percentiles_has_these_percentiles(successes: int) -> None:
    assert convert(successes, 40, 90, 300) == [pytest.approx(value, rel=0.1) for value in (0.040, 0.090, 0.300)]


def test_few_requests_have_latencies_near_the_percentiles() -> None:
    assert convert(1, 40, 90, 300)[0] == pytest.approx(0.040, rel=0.1)
    assert convert(10, 40, 90, 300)[:2] == [pytest.approx(0.040, rel=0.15), pytest.approx(0.090, rel=0.25)]


@pytest.mark.parametrize("successes", [20, 200])
def test_unknown_percentiles_are_taken_from_the_others(successes: int) -> None:
    nan = float("nan")
    for given_percentiles in ((40, nan, nan), (nan, 40, nan), (nan, nan, 40), (40, 40, 40)):
        assert convert(successes, *given_percentiles) == [pytest.approx(0.040, rel=0.1)] * 3
    assert convert(successes, nan, nan, nan) == [None] * 3
    assert convert(0, 40, 90, 300) == [None] * 3


def test_latencies_outside_of_the_buckets_are_moved_to_their_ends() -> None:
    assert convert(50, 0, 0, 0)[0] == pytest.approx(1e-6, rel=0.2)
    assert convert(50, 1e12, 1e12, 1e12)[0] == pytest.approx(2**17.5, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(-400, 400), st.integers(0, 1000)), max_size=12),
    st.sampled_from([1.01, 1.05, 2 ** (1 / 8), 1.1, 1.5, 2.0, 10.0]),
)
def test_spreading_a_histogram_keeps_its_requests_and_moves_none_further_than_a_bucket(
    entries: list[tuple[int, int]], growth: float
) -> None:
    buckets, counts = (np.array([each[index] for each in entries], float) for index in (0, 1))
    owners = np.zeros(len(entries), np.int64)
    found = spread_histograms(1, owners, buckets, counts, np.full(len(entries), growth)).row(0)
    assert found.count == counts.sum()
    if found.count:
        low, high = buckets[counts > 0].min(), buckets[counts > 0].max()
        with np.errstate(over="ignore"):
            edges = np.clip([growth**low / 1000, growth ** (high + 1) / 1000], 2.0**-20, 2.0**17.625)
        assert found.min >= edges[0] / 1.1
        assert found.max <= edges[1] * 1.1


def test_a_number_of_a_histogram_that_makes_no_sense_is_refused() -> None:
    one, zero = np.ones(1), np.zeros(1, np.int64)
    for buckets, counts, growths in ((np.full(1, np.nan), one, one * 2), (one, one * 1e12, one * 2), (one, one, one)):
        with pytest.raises(InvalidValue):
            spread_histograms(1, zero, buckets, counts, growths)


def test_an_infinite_percentile_is_refused() -> None:
    with pytest.raises(InvalidValue, match="percentiles"):
        convert(5, 1, 2, float("inf"))


def test_empty_histograms_have_no_requests() -> None:
    assert build_empty(2).row(1).count == 0

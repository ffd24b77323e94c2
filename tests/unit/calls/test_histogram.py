"""How long things took, in little memory."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.calls.histogram import Histogram
from holdfast.testing import seeded


def of(samples: list[float]) -> Histogram:
    histogram = Histogram()
    histogram.add(samples)
    return histogram


def test_an_empty_one_knows_no_percentile() -> None:
    assert Histogram().exceeded_by(0.5) == math.inf


@given(st.lists(st.floats(1e-6, 500), min_size=1, max_size=300), st.floats(0.001, 0.999))
def test_percentiles_are_right_to_the_width_of_a_bucket(samples: list[float], share: float) -> None:
    found = of(samples).exceeded_by(share)
    ordered = sorted(samples, reverse=True)
    at = len(samples) * share
    low, high = ordered[min(len(samples) - 1, math.ceil(at))], ordered[max(0, math.floor(at) - 1)]
    assert low * (1 - 1 / 32) <= found <= high * (1 + 1 / 32)


def test_percentiles_of_many_are_right_to_a_percent() -> None:
    random = seeded("histogram")
    samples = [random.lognormvariate(-3, 0.5) for _ in range(50_000)]
    histogram = of(samples)
    for share in (0.5, 0.1, 0.01, 0.001):
        exact = sorted(samples)[int(len(samples) * (1 - share))]
        assert histogram.exceeded_by(share) == pytest.approx(exact, rel=0.01)


def test_what_never_ended_is_above_everything() -> None:
    histogram = of([1.0] * 98 + [math.inf] * 2)
    assert (histogram.total, histogram.timed_out) == (100, 2)
    assert histogram.exceeded_by(0.01) == histogram.exceeded_by(0.02) == math.inf
    assert histogram.exceeded_by(0.03) == pytest.approx(1.0, rel=1 / 16)


def test_what_is_too_short_or_too_long_is_counted_at_the_edge() -> None:
    assert of([0.0, 1e-12]).exceeded_by(0.5) < 1e-6
    assert of([1e9]).exceeded_by(0.5) == pytest.approx(512, rel=1 / 16)


def test_a_new_window_forgets_the_last_but_one() -> None:
    histogram = of([1.0] * 1000 + [math.inf])
    histogram.rotate()
    histogram.add([4.0] * 1000)
    assert (histogram.total, histogram.timed_out) == (2001, 1)
    assert histogram.exceeded_by(0.75) == pytest.approx(1.0, rel=1 / 16)
    assert histogram.exceeded_by(0.25) == pytest.approx(4.0, rel=1 / 16)
    histogram.rotate()
    assert (histogram.total, histogram.timed_out) == (1000, 0)
    assert histogram.exceeded_by(0.75) == pytest.approx(4.0, rel=1 / 16)
    histogram.clear()
    assert histogram.total == histogram.timed_out == 0
    assert histogram.exceeded_by(0.5) == math.inf


def test_asking_for_all_of_it_names_the_shortest() -> None:
    assert of([2.0, 3.0]).exceeded_by(1.0) == pytest.approx(2.0, rel=1 / 16)


def test_what_only_took_longer_counts_until_then_and_not_after_it() -> None:
    """Half of the callers leave after 1 s; of the others, as of all, a tenth takes 5 s."""
    patient, impatient = [0.5] * 900 + [5.0] * 100, [0.5] * 900 + [-1.0] * 100
    assert of(patient + impatient).exceeded_by(0.05) == pytest.approx(5.0, rel=1 / 16)
    assert of(patient + [0.5] * 900).exceeded_by(0.055) < 1.0  # without them it looks as if few took long


def test_what_lies_beyond_is_told_of_those_who_waited() -> None:
    assert of([1.0] * 98 + [math.inf] * 2).share_above_longest == pytest.approx(0.02)
    assert of([1.0] * 98 + [-2.0] * 2).share_above_longest == 0
    impatient = of([0.5] * 450 + [-1.0] * 450 + [0.5] * 50 + [2.0] * 25 + [math.inf] * 25)
    assert impatient.share_above_longest == pytest.approx(
        0.25
    )  # half of all take longer than 1 s, and half of those have no end


def test_what_nobody_waited_for_cannot_be_told() -> None:
    assert of([0.5] * 90 + [-1.0] * 10).exceeded_by(0.05) == math.inf
    assert of([0.5] * 90 + [-1.0] * 10).exceeded_by(0.2) == pytest.approx(0.5, rel=1 / 16)
    turned = of([-1.0] * 10)
    turned.rotate()
    turned.add([0.5] * 90)
    assert turned.exceeded_by(0.05) == math.inf


def test_its_size_does_not_depend_on_the_number_of_samples() -> None:
    few, many = of([1.0]), of([x / 1000 for x in range(1, 10_000)])
    assert sys.getsizeof(few._current.ended) == sys.getsizeof(many._current.ended) < 5_000

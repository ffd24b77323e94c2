"""Statistics of many histograms are those of each one alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.alarms.histogram_statistics import compute_statistics, count_values
from holdfast.alarms.statistics import Distribution, Interpolation, compute_statistic, parse_statistic
from holdfast.metrics import Histogram
from holdfast.telemetry.block import Histograms

VALUES = st.lists(st.sampled_from([0.0, 1e-7, 0.0123, 0.1]) | st.floats(1e-6, 3600.0), max_size=8)
STATISTICS = ["p0", "p50", "p90", "p99.9", "p100", "Average", "Sum", "SampleCount", "Minimum", "Maximum", "tm90"]


@given(st.lists(VALUES, max_size=5), st.sampled_from(STATISTICS), st.sampled_from(Interpolation))
def test_the_statistic_of_each_histogram_is_the_same_as_alone(
    rows: list[list[float]], name: str, interpolation: Interpolation
) -> None:
    histograms = Histograms.of([Histogram.of(values) for values in rows])
    statistic = parse_statistic(name)
    found = compute_statistics(statistic, histograms, interpolation).tolist()
    assert len(found) == len(rows)
    for row, (value, values) in enumerate(zip(found, rows, strict=True)):
        alone = compute_statistic(statistic, Distribution.of_histogram(histograms.row(row)), interpolation)
        assert math.isnan(value) if alone is None else value == pytest.approx(alone), values
    assert count_values(histograms).tolist() == [len(values) for values in rows]


def test_without_histograms_there_are_no_statistics() -> None:
    assert compute_statistics(parse_statistic("p90"), Histograms.of([])).tolist() == []

"""Statistics of one period, in all spellings of CloudWatch."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.alarms.statistics import (
    Distribution,
    Interpolation,
    Statistic,
    StatisticKind,
    compute_statistic,
    parse_alarm_statistic,
    parse_statistic,
)
from holdfast.metrics.histogram import Histogram
from tests.table import every_row

TEN = Distribution.of_counts(dict.fromkeys(range(1, 11), 1))
COUNTS = st.dictionaries(st.integers(0, 50), st.integers(0, 9), max_size=12)
PERCENTAGES = st.integers(0, 1000).map(lambda number: number / 10)


def compute(text: str, values: Distribution = TEN) -> float | None:
    return compute_statistic(parse_statistic(text), values)


def test_statistics_of_the_numbers_from_one_to_ten() -> None:
    def check(row: tuple[str, float | None]) -> None:
        text, expected = row
        assert compute(text) == (None if expected is None else pytest.approx(expected))

    rows: list[tuple[str, float | None]] = [
        ("SampleCount", 10),
        ("Sum", 55),
        ("Average", 5.5),
        ("Minimum", 1),
        ("Maximum", 10),
        ("p0", 1),
        ("p10", 1),
        ("p10.1", 2),
        ("p50", 5),
        ("p99", 10),
        ("p100", 10),
        ("tm90", 5),
        ("tm99", 5.5),
        ("TM(2%:98%)", 6),  # bounds are rounded up: only the lowest value is left out
        ("TM(90%:)", 10),
        ("TM(95%:)", None),
        ("TM(3:7)", 5.5),  # 4, 5, 6, 7: the lower bound is exclusive, the upper one inclusive
        ("TM(20:)", None),
        ("IQM", 6),
        ("wm90", 5.4),
        ("WM(10%:90%)", 5.5),
        ("WM(95%:)", None),
        ("WM(:3)", 2.7),
        ("WM(8:)", 8.3),
        ("WM(20:)", 20),
        ("WM(:100%)", 5.5),
        ("tc90", 9),
        ("TC(3:7)", 4),
        ("TC(95%:)", 0),
        ("ts90", 45),
        ("TS(3:)", 49),
        ("TS(20:)", 0),
        ("PR(:3)", 30),
        ("PR(3:7)", 40),
        ("PR(7:)", 30),
    ]
    every_row(rows, check)


def test_two_spellings_of_one_statistic_are_equal() -> None:
    for first, second in (("tm99", "TM(:99%)"), ("IQM", "TM(25%:75%)"), ("p99", "p99.0"), ("wm5", "WM(:5%)")):
        assert parse_statistic(first) == parse_statistic(second)
    assert parse_statistic("TM(:99%)") != parse_statistic("TM(:99)")
    for text in ("Sum", "p99.9", "TM(:99%)", "WM(5%:95.5%)", "PR(100:)", "TC(0.0000000001:2000)"):
        assert str(parse_statistic(text)) == text


def test_wrong_statistics_are_refused() -> None:
    def check(row: tuple[str, str]) -> None:
        text, message = row
        with pytest.raises(InvalidValue, match=message):
            parse_statistic(text)

    wrong = [("p101", "0 to 100"), ("tm100.1", "0 to 100"), ("TM(:)", "at least one bound")]
    wrong += [("TM(10%:90)", "% after both"), ("TM(10:90%)", "% after both"), ("PR(1%:2%)", "without %")]
    wrong += [("TM(10%:101%)", "0% to 100%"), ("TC(200%:)", "0% to 100%"), ("TM(90%:10%)", "below the upper")]
    wrong += [("TM(5:5)", "below the upper")]
    for text in ("", "sum", "P99", "p", "p-1", "p1.12345678901", "pr90", "tm(1:2)", "TM(1:2", "TM(-1:2)", "IQM ", "p٣"):
        wrong.append((text, "expected SampleCount"))
    every_row(wrong, check)


@given(st.text("pPtTmMwWcCsSrR(:)%.0123456789 \n\x00\u0663\u00e9", max_size=16))
def test_any_text_is_a_statistic_or_refused(text: str) -> None:
    try:
        found = parse_statistic(text)
    except InvalidValue:
        return
    assert parse_statistic(str(found)) == found


RANGES = ["TM", "WM", "TC", "TS", "PR"]


@given(st.sampled_from(RANGES), st.none() | PERCENTAGES, PERCENTAGES.filter(bool), st.booleans())
def test_a_statistic_written_and_read_again_is_the_same(
    kind: str, lower: float | None, width: float, is_percentage: bool
) -> None:
    upper = None if lower is not None and lower + width > 100 else round((lower or 0) + width, 1)
    statistic = Statistic(StatisticKind(kind), lower, upper, is_percentage and kind != "PR")
    assert parse_statistic(str(statistic)) == statistic


def test_alarms_take_fewer_statistics() -> None:
    for text in ("p99", "tm99", "wm5", "IQM", "PR(1:5)", "TM(10%:90%)", "TS(:90%)"):
        assert parse_alarm_statistic(text).is_extended
    for text in ("TM(5%:90%)", "WM(:99%)", "TC(1:2)", "TS(91%:)"):
        with pytest.raises(InvalidValue, match="only percentages from 10% to 90%"):
            parse_alarm_statistic(text)
    with pytest.raises(InvalidValue, match="set it as `statistic`"):
        parse_alarm_statistic("Sum")


def test_percentiles_need_ten_samples_beyond_them() -> None:
    found = {
        text: parse_statistic(text).minimum_samples for text in ("p99", "p50", "p10", "p99.9", "p100", "p0", "Sum")
    }
    assert found == {
        "p99": 1000,
        "p50": 20,
        "p10": 100,
        "p99.9": pytest.approx(10_000),
        "p100": math.inf,
        "p0": math.inf,
        "Sum": 0,
    }


def test_linear_interpolation_lies_between_two_values() -> None:
    for percent, expected in ((0, 1), (50, 5.5), (90, 9.1), (100, 10)):
        statistic = parse_statistic(f"p{percent}")
        assert compute_statistic(statistic, TEN, Interpolation.LINEAR) == pytest.approx(expected)


def test_without_values_there_is_no_datapoint() -> None:
    for empty in (Distribution.of_counts({}), Distribution.of_counts({3: 0}), Distribution.of_histogram(Histogram())):
        assert compute("SampleCount", empty) is None
        assert compute("p99", empty) is None


def test_extended_statistics_need_values_and_no_negative_ones() -> None:
    totals = Distribution.of_totals(10, 55, 1, 10)
    assert compute("Average", totals) == 5.5
    assert compute("p50", totals) is None
    assert compute("tm90", totals) is None
    assert compute("p50", Distribution.of_totals(3, 6, 2, 2)) == 2
    assert compute("p50", Distribution.of_totals(0, 0, 0, 0)) is None
    negative = Distribution.of_counts({-1: 1, 5: 3})
    assert compute("Minimum", negative) == -1
    assert compute("p50", negative) is None


def test_counts_of_failed_requests_have_a_sum_and_an_average() -> None:
    failed = Distribution.of_counts({0: 97, 1: 3})
    assert (compute("Sum", failed), compute("Average", failed), compute("SampleCount", failed)) == (3, 0.03, 100)


@given(COUNTS, PERCENTAGES)
def test_both_sides_of_a_bound_add_up_to_everything(counts: dict[int, int], percent: float) -> None:
    values = Distribution.of_counts({float(value): count for value, count in counts.items()})
    parts = [compute(text, values) for text in (f"TC(:{percent}%)", f"TC({percent}%:)", "SampleCount")]
    sums = [compute(text, values) for text in (f"TS(:{percent}%)", f"TS({percent}%:)", "Sum")]
    if values.count:
        assert (parts[0] or 0) + (parts[1] or 0) == parts[2]
        assert (sums[0] or 0) + (sums[1] or 0) == pytest.approx(sums[2])


@given(COUNTS, PERCENTAGES, PERCENTAGES, st.booleans())
def test_trimmed_statistics_agree_with_a_sorted_list(
    counts: dict[int, int], first: float, second: float, is_percentage: bool
) -> None:
    values = Distribution.of_counts({float(value): count for value, count in counts.items()})
    low, high = sorted((first, second))
    every = sorted(float(value) for value, count in counts.items() for _ in range(count))
    if low == high or not every:
        return
    number = len(every)
    if is_percentage:
        ranks = math.ceil(round(low * number / 100, 6)), math.ceil(round(high * number / 100, 6))
        kept = every[ranks[0] : ranks[1]]
        moved = kept and [*([kept[0]] * ranks[0]), *kept, *([kept[-1]] * (number - ranks[1]))]
    else:
        kept = [value for value in every if low < value <= high]
        moved = [min(max(value, low), high) for value in every]

    def get(kind: StatisticKind) -> float | None:
        return compute_statistic(Statistic(kind, low, high, is_percentage), values)

    mean = sum(kept) / len(kept) if kept else None
    assert get(StatisticKind.TRIMMED_MEAN) == (None if mean is None else pytest.approx(mean))
    assert get(StatisticKind.TRIMMED_COUNT) == len(kept)
    assert get(StatisticKind.TRIMMED_SUM) == pytest.approx(sum(kept))
    assert get(StatisticKind.WINSORIZED_MEAN) == (pytest.approx(sum(moved) / number) if moved else None)


@given(
    st.lists(st.floats(0, 1e4).filter(lambda value: value == 0 or value > 1e-4), min_size=1, max_size=40), PERCENTAGES
)
def test_a_histogram_is_exact_in_its_totals_and_near_in_its_percentiles(latencies: list[float], percent: float) -> None:
    values = Distribution.of_histogram(Histogram.of(latencies))
    assert compute("SampleCount", values) == len(latencies)
    assert compute("Sum", values) == pytest.approx(sum(latencies))
    assert (compute("Minimum", values), compute("Maximum", values)) == (min(latencies), max(latencies))
    exact = sorted(latencies)[max(1, math.ceil(round(percent * len(latencies) / 100, 6))) - 1]
    assert compute(f"p{percent}", values) == pytest.approx(exact, rel=0.046)
    assert compute("tm100", values) == pytest.approx(sum(latencies) / len(latencies))

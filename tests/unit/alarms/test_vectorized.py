"""Many metric alarms at once."""

import runpy
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue, MissingExtra
from holdfast.alarms import (
    ComparisonOperator,
    Datapoint,
    LowSampleCount,
    MetricAlarm,
    StateValue,
    TreatMissingData,
    decide_state,
    vectorized,
)
from holdfast.alarms.vectorized import STATES, AlarmTable


@st.composite
def alarms(draw: Any) -> MetricAlarm:
    number = draw(st.integers(1, 6))
    percentile = draw(st.sampled_from([None, "p50", "p90"]))
    return MetricAlarm(
        alarm_name="a",
        namespace=draw(st.sampled_from(["shop", "shop", "AWS/DynamoDB"])),
        metric_name="5xx",
        statistic=None if percentile else "Sum",
        extended_statistic=percentile,
        period=60,
        evaluation_periods=number,
        datapoints_to_alarm=draw(st.none() | st.integers(1, number)),
        threshold=2,
        comparison_operator=draw(st.sampled_from(list(ComparisonOperator))),
        treat_missing_data=draw(st.sampled_from(list(TreatMissingData))),
        evaluate_low_sample_count_percentile=draw(st.sampled_from(list(LowSampleCount)))
        if percentile
        else LowSampleCount.EVALUATE,
    )


VALUES = st.lists(st.sampled_from([None, None, 1.0, 2.0, 3.0]), min_size=12, max_size=12)
ROWS = st.lists(st.tuples(alarms(), VALUES, st.sampled_from(STATES), st.integers(1, 60)), min_size=1, max_size=8)


@given(ROWS, st.none() | st.integers(0, 4), st.booleans())
@settings(max_examples=400)
def test_the_table_agrees_with_the_evaluation_of_each_alarm(
    rows: list[tuple[MetricAlarm, list[float | None], StateValue, int]], extra: int | None, has_samples: bool
) -> None:
    table = AlarmTable.of([alarm for alarm, *_ in rows], extra)
    values = np.array([[np.nan if each is None else each for each in values] for _, values, *_ in rows])
    samples = np.array([[float(count)] * 12 for *_, count in rows]) if has_samples else None
    before = np.array([STATES.index(state) for _, _, state, _ in rows], np.int8)
    found = table.evaluate(values, before, samples)
    for (alarm, points, state, count), code in zip(rows, found, strict=True):
        datapoints = [
            Datapoint(60.0 * index, value, count if has_samples else 1e9) for index, value in enumerate(points)
        ]
        assert STATES[code] is decide_state(alarm, datapoints, state, extra).state


@given(ROWS, st.lists(st.booleans(), min_size=12, max_size=12))
@settings(max_examples=200)
def test_an_alarm_keeps_its_state_if_only_periods_decide_in_which_nothing_could_be_received(
    rows: list[tuple[MetricAlarm, list[float | None], StateValue, int]], watched: list[bool]
) -> None:
    fills = TreatMissingData.BREACHING, TreatMissingData.NOT_BREACHING
    table = AlarmTable.of([alarm for alarm, *_ in rows])
    points = [[value if seen else None for value, seen in zip(row[1], watched, strict=True)] for row in rows]
    values = np.array([[np.nan if each is None else each for each in row] for row in points])
    before = np.array([STATES.index(row[2]) for row in rows], np.int8)
    found = table.evaluate(values, before, watched=np.array(watched))
    for (alarm, _, state, _), row, code in zip(rows, points, found, strict=True):
        decision = decide_state(alarm, [Datapoint(60.0 * index, value, 1e9) for index, value in enumerate(row)], state)
        expected = decision.state
        if alarm.missing_data_treatment in fills:
            unknown = min(decision.filled, watched[-alarm.evaluation_periods :].count(False))
            known = decision.filled - unknown if alarm.missing_data_treatment is TreatMissingData.BREACHING else 0
            breaching = known + sum(
                each.value is not None and alarm.breaches(each.value) for each in decision.evaluated
            )
            outcomes = {breaching + more >= alarm.required_breaches for more in (0, unknown)}
            expected = state if len(outcomes) == 2 else decision.state
        assert STATES[code] is expected


def test_a_table_needs_a_row_for_each_alarm_and_the_longest_range() -> None:
    def build(number: int) -> MetricAlarm:
        return MetricAlarm(
            alarm_name="a",
            namespace="shop",
            metric_name="5xx",
            statistic="Sum",
            period=60,
            evaluation_periods=number,
            threshold=2,
            comparison_operator=ComparisonOperator.GREATER_THAN,
        )

    table = AlarmTable.of([build(1), build(5)])
    assert table.width == 7
    states = np.zeros(2, np.int8)
    assert table.evaluate(np.full((2, 7), 3.0), states).tolist() == [1, 1]
    for shape in ((2, 6), (3, 7)):
        with pytest.raises(InvalidValue, match="expected 2 rows and at least 7 columns"):
            table.evaluate(np.zeros(shape), states)
    nothing = AlarmTable.of([])
    assert nothing.evaluate(np.zeros((0, 0)), np.zeros(0, np.int8)).tolist() == []


def test_without_numpy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match="server"):
        runpy.run_path(str(vectorized.__file__))

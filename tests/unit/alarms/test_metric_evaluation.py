"""Metric alarms: CloudWatch's published examples, a slow reading of its rules, and its words for reasons."""

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.alarms import (
    AlarmState,
    ComparisonOperator,
    Datapoint,
    EvaluationRule,
    LowSampleCount,
    MetricAlarm,
    MetricDataQuery,
    MetricStat,
    StateValue,
    TreatMissingData,
    decide_state,
    evaluate_alarm,
)
from holdfast.alarms.metric_evaluation import build_reason, get_evaluation_range
from tests.table import every_row

OK, ALARM, INSUFFICIENT = StateValue.OK, StateValue.ALARM, StateValue.INSUFFICIENT_DATA
KEEP = None
NOON = 1_698_321_600.0  # 26/10/23 12:00:00 UTC
VALUES = {"0": 1.0, "X": 3.0, "-": None}
TREATMENTS = (
    TreatMissingData.MISSING,
    TreatMissingData.IGNORE,
    TreatMissingData.BREACHING,
    TreatMissingData.NOT_BREACHING,
)


def alarm(
    number: int = 3, required: int | None = None, treatment: TreatMissingData = TreatMissingData.MISSING
) -> MetricAlarm:
    return MetricAlarm(
        alarm_name="a",
        namespace="shop",
        metric_name="5xx",
        statistic="Sum",
        period=60,
        evaluation_periods=number,
        datapoints_to_alarm=required,
        threshold=2,
        comparison_operator=ComparisonOperator.GREATER_THAN,
        treat_missing_data=treatment,
    )


def points(text: str) -> list[Datapoint]:
    """Return a datapoint for each letter, oldest first: 0 is good, X breaches, - is missing."""
    found = []
    for index, letter in enumerate(text.replace(" ", "")):
        value = VALUES[letter]
        found.append(Datapoint(NOON + 60 * index, value, None if value is None else 5))
    return found


# Both tables of the guide, in the form of today and in an older one; 3 of 3 first, then 2 of 3. Columns: missing,
# ignore, breaching, notBreaching. KEEP: the guide says "retain current state", or only that it does not become ALARM.
EXAMPLES: list[tuple[int, str, StateValue | None, StateValue | None, StateValue, StateValue]] = [
    (3, "0 - X - X", OK, OK, OK, OK),
    (3, "- - - - 0", OK, OK, OK, OK),
    (3, "0 - - - -", OK, OK, OK, OK),
    (3, "- - - - -", INSUFFICIENT, KEEP, ALARM, OK),
    (3, "0 X X - X", ALARM, ALARM, ALARM, ALARM),
    (3, "- - X - -", ALARM, KEEP, ALARM, OK),
    (3, "X - - - -", ALARM, KEEP, ALARM, OK),
    (3, "- - - - X", KEEP, KEEP, ALARM, OK),
    (3, "- - - X -", KEEP, KEEP, ALARM, OK),
    (3, "- - - X 0", OK, OK, OK, OK),
    (3, "- - X - 0", OK, OK, OK, OK),
    (2, "0 - X - X", ALARM, ALARM, ALARM, ALARM),
    (2, "0 0 X 0 X", ALARM, ALARM, ALARM, ALARM),
    (2, "0 - X - -", OK, OK, ALARM, OK),
    (2, "- - - - 0", OK, OK, ALARM, OK),
    (2, "- - - X -", ALARM, KEEP, ALARM, OK),
    (2, "- - - - X", KEEP, KEEP, ALARM, OK),
]


def test_the_examples_of_the_guide_come_out_from_any_state() -> None:
    def check(row: tuple[int, str, TreatMissingData, StateValue | None, StateValue]) -> None:
        required, text, treatment, expected, before = row
        found = decide_state(alarm(3, required, treatment), points(text), before)
        assert found.state is (before if expected is KEEP else expected)

    rows = [
        (required, text, treatment, expected, before)
        for required, text, *states in EXAMPLES
        for treatment, expected in zip(TREATMENTS, states, strict=True)
        for before in StateValue
    ]
    every_row(rows, check)


def test_a_graph_of_the_guide_alarms_in_the_third_to_fifth_period_and_not_again() -> None:
    rising = alarm(3, 3)
    state, found = OK, []
    for number in range(1, 10):
        state = decide_state(rising, points("00XXX000X"[:number]), state).state
        found.append(state)
    assert found == [OK, OK, OK, OK, ALARM, OK, OK, OK, OK]


def read_slowly(letters: Sequence[str], number: int, required: int, treatment: str, before: StateValue) -> StateValue:
    """Decide by the rules as they are written, one letter after the other."""
    window = list(letters)[-(number + max(number // 3, 2)) :]
    newest_first = list(reversed(window))
    real = [letter for letter in newest_first if letter != "-"]
    if len(real) >= number:
        return ALARM if real[:number].count("X") >= required else OK
    if not real:
        return {"missing": INSUFFICIENT, "ignore": before, "breaching": ALARM, "notBreaching": OK}[treatment]
    if treatment in ("breaching", "notBreaching"):
        while len(real) < number:
            real.append("X" if treatment == "breaching" else "0")
        return ALARM if real.count("X") >= required else OK
    if real.count("X") >= required:
        return ALARM
    if "0" in real:
        return OK
    if treatment == "ignore":
        return before
    oldest_age = max(age for age, letter in enumerate(newest_first, 1) if letter == "X")
    return ALARM if oldest_age >= required else before


@given(
    st.text("0X-", max_size=14),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from(TREATMENTS),
    st.sampled_from(list(StateValue)),
)
@settings(max_examples=500)
def test_the_evaluator_agrees_with_a_slow_reading_of_the_rules(
    letters: str, number: int, required: int, treatment: TreatMissingData, before: StateValue
) -> None:
    required = min(number, required)
    found = decide_state(alarm(number, required, treatment), points(letters), before)
    assert found.state is read_slowly(letters, number, required, treatment, before)


def test_the_decision_names_its_rule_and_its_datapoints() -> None:
    def check(row: tuple[str, TreatMissingData, EvaluationRule, str, int]) -> None:
        text, treatment, rule, evaluated, filled = row
        found = decide_state(alarm(3, 3, treatment), points(text), OK)
        assert (found.rule, found.filled) == (rule, filled)
        assert [each.value for each in found.evaluated] == [VALUES[letter] for letter in evaluated]

    rows = [
        ("0XX-X", TreatMissingData.MISSING, EvaluationRule.ENOUGH_DATA, "XXX", 0),
        ("-----", TreatMissingData.MISSING, EvaluationRule.NO_DATA, "---", 0),
        ("-----", TreatMissingData.BREACHING, EvaluationRule.NO_DATA, "---", 3),
        ("--X--", TreatMissingData.BREACHING, EvaluationRule.FILLED, "--X", 2),
        ("0-X--", TreatMissingData.MISSING, EvaluationRule.FEW_DATA, "-X0", 0),
        ("--X--", TreatMissingData.MISSING, EvaluationRule.OLD_BREACH, "--X", 0),
        ("----X", TreatMissingData.IGNORE, EvaluationRule.FEW_BREACHES, "X--", 0),
    ]
    every_row(rows, check)


def test_the_evaluation_range_is_two_periods_longer_or_a_third_and_can_be_set() -> None:
    assert [get_evaluation_range(alarm(number)) for number in (1, 3, 5, 9, 30)] == [3, 5, 7, 12, 40]
    assert get_evaluation_range(alarm(3), 0) == 3
    assert decide_state(alarm(3), points("XXX--"), OK).state is ALARM
    assert decide_state(alarm(3), points("XXX--"), OK, 0).rule is EvaluationRule.OLD_BREACH
    assert decide_state(alarm(3), points("0XX--"), OK, 0).rule is EvaluationRule.OLD_BREACH


def test_a_percentile_of_few_samples_keeps_the_state() -> None:
    slow = replace(
        alarm(3, 1),
        statistic=None,
        extended_statistic="p99",
        evaluate_low_sample_count_percentile=LowSampleCount.IGNORE,
    )

    def decide(samples: float | None, definition: MetricAlarm = slow) -> EvaluationRule:
        found = [Datapoint(NOON + 60 * index, 3.0, samples) for index in range(3)]
        decision = decide_state(definition, found, INSUFFICIENT)
        assert decision.state is (INSUFFICIENT if decision.rule is EvaluationRule.LOW_SAMPLES else ALARM)
        return decision.rule

    assert decide(334) is EvaluationRule.ENOUGH_DATA
    assert decide(333) is EvaluationRule.LOW_SAMPLES
    assert decide(None) is EvaluationRule.LOW_SAMPLES
    assert decide(1, replace(slow, evaluate_low_sample_count_percentile=LowSampleCount.EVALUATE)) is (
        EvaluationRule.ENOUGH_DATA
    )
    assert decide_state(slow, points("---"), OK).state is INSUFFICIENT  # no data is not few samples


def test_dynamodb_always_ignores_missing_data() -> None:
    table = replace(alarm(3, 3, TreatMissingData.BREACHING), namespace="AWS/DynamoDB")
    assert decide_state(table, points("-----"), OK).state is OK


def test_reasons_have_the_words_of_cloudwatch() -> None:
    """Texts as recorded from AWS, with other values and times."""

    def check(row: tuple[MetricAlarm, str, str]) -> None:
        definition, text, expected = row
        found = build_reason(definition, decide_state(definition, points(text), INSUFFICIENT))
        assert found.removeprefix("Threshold Crossed: ") == expected
        assert found.startswith(("Threshold Crossed: ", "Insufficient Data: "))

    breaching, fine = TreatMissingData.BREACHING, TreatMissingData.NOT_BREACHING
    rows = [
        (
            alarm(1),
            "X",
            "1 datapoint [3.0 (26/10/23 12:00:00)] was greater than the threshold (2.0).",
        ),
        (
            alarm(1),
            "0",
            "1 datapoint [1.0 (26/10/23 12:00:00)] was not greater than the threshold (2.0).",
        ),
        (
            alarm(2, 2),
            "XX",
            (
                "2 out of the last 2 datapoints [3.0 (26/10/23 12:01:00), 3.0 (26/10/23 12:00:00)] were "
                "greater than the threshold (2.0) (minimum 2 datapoints for OK -> ALARM transition)."
            ),
        ),
        (
            alarm(5, 3),
            "0XX00",
            (
                "3 out of the last 5 datapoints [1.0 (26/10/23 12:04:00), 1.0 (26/10/23 12:03:00), "
                "1.0 (26/10/23 12:00:00)] were not greater than the threshold (2.0) "
                "(minimum 3 datapoints for ALARM -> OK transition)."
            ),
        ),
        (
            replace(alarm(1, 1), comparison_operator=ComparisonOperator.LESS_THAN_OR_EQUAL),
            "0",
            (
                "1 out of the last 1 datapoints [1.0 (26/10/23 12:00:00)] was less than or equal to the "
                "threshold (2.0) (minimum 1 datapoint for OK -> ALARM transition)."
            ),
        ),
        (
            alarm(2, None, breaching),
            "----",
            ("no datapoints were received for 2 periods and 2 missing datapoints were treated as [Breaching]."),
        ),
        (
            alarm(1, None, fine),
            "---",
            ("no datapoints were received for 1 period and 1 missing datapoint was treated as [NonBreaching]."),
        ),
        (
            alarm(3, 2, breaching),
            "--0",
            ("1 datapoint was received for 3 periods and 2 missing datapoints were treated as [Breaching]."),
        ),
        (
            alarm(3, 3, breaching),
            "--X",
            (
                "1 out of the last 3 datapoints [3.0 (26/10/23 12:02:00)] was greater than the threshold "
                "(2.0) and 2 missing datapoints were treated as [Breaching] (minimum 3 datapoints for OK -> ALARM "
                "transition)."
            ),
        ),
        (alarm(1), "-", "Insufficient Data: 1 datapoint was unknown."),
        (alarm(3), "---", "Insufficient Data: 3 datapoints were unknown."),
    ]
    every_row(rows, check)


def test_a_change_of_state_has_cloudwatchs_reason_data_and_no_change_keeps_the_old_state() -> None:
    definition = replace(alarm(3, 3, TreatMissingData.BREACHING), unit="Count")
    first = evaluate_alarm(definition, points("X-X"), AlarmState(), NOON + 200)
    assert (first.state_value, first.state_updated_timestamp) == (ALARM, NOON + 200)
    assert first.state_reason_data is not None
    assert list(json.loads(first.state_reason_data).items()) == [
        ("version", "1.0"),
        ("queryDate", "2023-10-26T12:03:20.000+0000"),
        ("startDate", "2023-10-26T12:00:00.000+0000"),
        ("unit", "Count"),
        ("statistic", "Sum"),
        ("period", 60),
        ("recentDatapoints", [3.0, 3.0]),
        ("threshold", 2.0),
        (
            "evaluatedDatapoints",
            [
                {"timestamp": "2023-10-26T12:02:00.000+0000", "sampleCount": 5.0, "value": 3.0},
                {"timestamp": "2023-10-26T12:01:00.000+0000"},
                {"timestamp": "2023-10-26T12:00:00.000+0000", "sampleCount": 5.0, "value": 3.0},
            ],
        ),
    ]
    assert '"threshold":2.0' in first.state_reason_data
    assert evaluate_alarm(definition, points("XXX"), first, NOON + 260) is first


def test_reason_data_leaves_out_members_that_do_not_apply() -> None:
    stat = MetricStat(namespace="shop", metric_name="5xx", period=60, stat="Sum")
    math = MetricAlarm(
        alarm_name="share",
        metrics=(
            MetricDataQuery(id="m1", metric_stat=stat, return_data=False),
            MetricDataQuery(id="e1", expression="m1 * 100"),
        ),
        evaluation_periods=1,
        threshold=2,
        comparison_operator=ComparisonOperator.GREATER_THAN,
    )
    state = evaluate_alarm(math, [Datapoint(NOON, 3.0)], AlarmState(), NOON)
    assert state.state_reason_data is not None
    data = json.loads(state.state_reason_data)
    assert "statistic" not in data
    assert "unit" not in data
    assert data["evaluatedDatapoints"] == [{"timestamp": "2023-10-26T12:00:00.000+0000", "value": 3.0}]
    silent = evaluate_alarm(math, [Datapoint(NOON)], state, NOON)
    assert silent.state_reason_data is not None
    assert "startDate" not in json.loads(silent.state_reason_data)

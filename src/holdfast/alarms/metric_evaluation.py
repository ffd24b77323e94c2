"""Evaluate a metric alarm: its state from the datapoints of its evaluation range. Pure.

The evaluation range has more periods than the N that decide, so that late or rare data counts. Real datapoints are
those with a value. The newest period has the age 1.

1. N or more real ones: the newest N decide. ALARM if M of them breach, otherwise OK.
2. No real one: `missing` gives INSUFFICIENT_DATA, `ignore` keeps the state, `breaching` gives ALARM, `notBreaching` OK.
3. Fewer, with `breaching` or `notBreaching`: missing ones fill up to N, then as in 1.
4. Fewer, with `missing` or `ignore`: ALARM if M breach. Otherwise OK if any does not breach. Otherwise `ignore` keeps
   the state; `missing` gives ALARM if the oldest is at least M periods old, and otherwise keeps the state, because the
   next datapoint may still be a good one.

A percentile of too few values keeps the state, if the alarm says so. Too few are meant over all datapoints that decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from holdfast._alarm_options import get_range
from holdfast.alarms.alarm import AlarmState, StateValue, encode_json, format_time
from holdfast.alarms.metric_alarm import ComparisonOperator, LowSampleCount, MetricAlarm, TreatMissingData


class Datapoint(NamedTuple):
    """The statistic of one period."""

    timestamp: float
    """Start of the period, in seconds since the epoch."""
    value: float | None = None
    """None if the period has no data."""
    sample_count: float | None = None


class EvaluationRule(Enum):
    """The rule that decided the state."""

    ENOUGH_DATA = "enough datapoints"
    NO_DATA = "no datapoints"
    FILLED = "missing datapoints were filled"
    FEW_DATA = "few datapoints"
    OLD_BREACH = "few datapoints, all breaching, the oldest long ago"
    FEW_BREACHES = "few datapoints, all breaching"
    LOW_SAMPLES = "too few samples for the percentile"
    NOT_RUNNING = "Holdfast did not run in some periods, and could receive no data: the state is kept"
    ZONE_WITHOUT_DATA = "the zone was out in some periods, or reported nothing at all: the state is kept"
    INSTANCES_UNKNOWN = (
        "Holdfast drops measurements by instance after 15 minutes, and some periods are older: the state is kept"
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """The state that the datapoints give, and the reason."""

    state: StateValue
    rule: EvaluationRule
    evaluated: tuple[Datapoint, ...]
    """Real datapoints that decided, and the newest missing ones up to N together, newest first."""
    filled: int
    """Number of missing datapoints that counted as breaching or not breaching."""


def get_evaluation_range(alarm: MetricAlarm, extra_periods: int | None = None) -> int:
    """Return the number of periods to look at: the evaluation periods, and `extra_periods` before them.

    None chooses a third of the evaluation periods, at least 2. AWS publishes only the range of 3 periods, which is 5.
    """
    return get_range(alarm.evaluation_periods, extra_periods)


def decide_state(
    alarm: MetricAlarm, datapoints: Sequence[Datapoint], state: StateValue, extra_periods: int | None = None
) -> Decision:
    """Return the new state of an alarm that is in `state`.

    `datapoints` has one for each period, oldest first. Those before the evaluation range are not used.
    """
    slots = datapoints[-get_evaluation_range(alarm, extra_periods) :]
    number, required = alarm.evaluation_periods, alarm.required_breaches
    treatment = alarm.missing_data_treatment
    real = [each for each in slots if each.value is not None]
    used = real[-number:]
    missing = [each for each in slots if each.value is None]
    shown = missing[-(number - len(used)) :] if len(used) < number else []
    evaluated = tuple(sorted([*used, *shown], reverse=True, key=lambda each: each.timestamp))
    breaching = sum(1 for each in used if each.value is not None and alarm.breaches(each.value))

    def decide(new: StateValue, rule: EvaluationRule, filled: int = 0) -> Decision:
        return Decision(new, rule, evaluated, filled)

    if real and _has_too_few_samples(alarm, used):
        return decide(state, EvaluationRule.LOW_SAMPLES)
    if len(used) == number:
        return decide(_choose(breaching >= required), EvaluationRule.ENOUGH_DATA)
    filled = number - len(used)
    if treatment in (TreatMissingData.BREACHING, TreatMissingData.NOT_BREACHING):
        total = breaching + (filled if treatment is TreatMissingData.BREACHING else 0)
        rule = EvaluationRule.FILLED if real else EvaluationRule.NO_DATA
        return decide(_choose(total >= required), rule, filled)
    is_ignored = treatment is TreatMissingData.IGNORE
    if not real:
        return decide(state if is_ignored else StateValue.INSUFFICIENT_DATA, EvaluationRule.NO_DATA)
    if breaching >= required or breaching < len(used):
        return decide(_choose(breaching >= required), EvaluationRule.FEW_DATA)
    oldest_age = len(slots) - slots.index(used[0])
    if not is_ignored and oldest_age >= required:
        return decide(StateValue.ALARM, EvaluationRule.OLD_BREACH)
    return decide(state, EvaluationRule.FEW_BREACHES)


def evaluate_alarm(
    alarm: MetricAlarm,
    datapoints: Sequence[Datapoint],
    previous: AlarmState,
    now: float,
    extra_periods: int | None = None,
) -> AlarmState:
    """Return the state after an evaluation at `now`: `previous` itself unless its value changes."""
    decision = decide_state(alarm, datapoints, previous.state_value, extra_periods)
    if decision.state is previous.state_value:
        return previous
    return AlarmState(decision.state, build_reason(alarm, decision), build_reason_data(alarm, decision, now), now)


def build_reason(alarm: MetricAlarm, decision: Decision) -> str:
    """Return the StateReason of a decision, worded as CloudWatch does."""
    number = alarm.evaluation_periods
    if decision.state is StateValue.INSUFFICIENT_DATA:
        return f"Insufficient Data: {_pluralize(number, 'datapoint was', 'datapoints were')} unknown."
    is_alarm = decision.state is StateValue.ALARM
    real = [each for each in decision.evaluated if each.value is not None]
    shown = [each for each in real if each.value is not None and alarm.breaches(each.value) is is_alarm]
    filling = ""
    if decision.filled:
        treated = "Breaching" if alarm.missing_data_treatment is TreatMissingData.BREACHING else "NonBreaching"
        verbs = "missing datapoint was", "missing datapoints were"
        filling = f" and {_pluralize(decision.filled, *verbs)} treated as [{treated}]"
    if not shown:
        received = _pluralize(len(real), "datapoint was", "datapoints were") if real else "no datapoints were"
        return f"Threshold Crossed: {received} received for {_pluralize(number, 'period', 'periods')}{filling}."
    values = ", ".join(f"{each.value} ({_format_minute(each.timestamp)})" for each in shown)
    verb = ("was" if len(shown) == 1 else "were") + ("" if is_alarm else " not")
    comparison = f"[{values}] {verb} {_WORDS[alarm.comparison_operator]} the threshold ({float(alarm.threshold)})"
    if alarm.datapoints_to_alarm is None:
        return f"Threshold Crossed: {_pluralize(len(shown), 'datapoint', 'datapoints')} {comparison}{filling}."
    minimum = alarm.required_breaches if is_alarm else number - alarm.required_breaches + 1
    change = "OK -> ALARM" if is_alarm else "ALARM -> OK"
    total = len(real) + decision.filled
    return (
        f"Threshold Crossed: {len(shown)} out of the last {total} datapoints {comparison}{filling} "
        f"(minimum {_pluralize(minimum, 'datapoint', 'datapoints')} for {change} transition)."
    )


def build_reason_data(alarm: MetricAlarm, decision: Decision, now: float) -> str:
    """Return the StateReasonData of a decision: JSON with CloudWatch's members, in its order."""
    real = [each for each in decision.evaluated if each.value is not None]
    data: dict[str, Any] = {"version": "1.0", "queryDate": format_time(now)}
    if real:
        data["startDate"] = format_time(real[-1].timestamp)
    if alarm.unit is not None:
        data["unit"] = alarm.unit
    if statistic := alarm.statistic or alarm.extended_statistic:
        data["statistic"] = statistic
    data["period"] = alarm.seconds
    data["recentDatapoints"] = [each.value for each in reversed(real)]
    data["threshold"] = float(alarm.threshold)
    data["evaluatedDatapoints"] = [_describe(each) for each in decision.evaluated]
    return encode_json(data)


_WORDS = {
    ComparisonOperator.GREATER_THAN_OR_EQUAL: "greater than or equal to",
    ComparisonOperator.GREATER_THAN: "greater than",
    ComparisonOperator.LESS_THAN: "less than",
    ComparisonOperator.LESS_THAN_OR_EQUAL: "less than or equal to",
}


def _choose(is_breaching: bool) -> StateValue:
    return StateValue.ALARM if is_breaching else StateValue.OK


def _has_too_few_samples(alarm: MetricAlarm, used: Sequence[Datapoint]) -> bool:
    if alarm.evaluate_low_sample_count_percentile is LowSampleCount.EVALUATE or alarm.parsed_statistic is None:
        return False
    return sum(each.sample_count or 0 for each in used) < alarm.parsed_statistic.minimum_samples


def _format_minute(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%d/%m/%y %H:%M:%S}"


def _pluralize(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _describe(point: Datapoint) -> dict[str, Any]:
    described: dict[str, Any] = {"timestamp": format_time(point.timestamp)}
    if point.value is not None and point.sample_count is not None:
        described["sampleCount"] = float(point.sample_count)
    if point.value is not None:
        described["value"] = point.value
    return described

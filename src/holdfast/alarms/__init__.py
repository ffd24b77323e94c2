"""Alarms with CloudWatch's semantics, computed here: metric alarms, composite alarms, and the chi-squared outlier test.

May import telemetry and what is below it. Start reading at `metric_evaluation.py` for one alarm, at `vectorized.py` for
many, and at `composite.py` for alarms over alarms.
"""

from holdfast.alarms.alarm import Alarm, AlarmState, HistoryItem, HistoryItemType, StateValue
from holdfast.alarms.chi_squared import ChiSquaredEvent, ChiSquaredResult, find_outlier
from holdfast.alarms.composite import AlarmGraph, CompositeAlarm, StateChange
from holdfast.alarms.metric_alarm import ComparisonOperator, LowSampleCount, MetricAlarm, TreatMissingData
from holdfast.alarms.metric_evaluation import Datapoint, Decision, EvaluationRule, decide_state, evaluate_alarm
from holdfast.alarms.metric_queries import MetricDataQuery, MetricStat

__all__ = [
    "Alarm",
    "AlarmGraph",
    "AlarmState",
    "ChiSquaredEvent",
    "ChiSquaredResult",
    "ComparisonOperator",
    "CompositeAlarm",
    "Datapoint",
    "Decision",
    "EvaluationRule",
    "HistoryItem",
    "HistoryItemType",
    "LowSampleCount",
    "MetricAlarm",
    "MetricDataQuery",
    "MetricStat",
    "StateChange",
    "StateValue",
    "TreatMissingData",
    "decide_state",
    "evaluate_alarm",
    "find_outlier",
]

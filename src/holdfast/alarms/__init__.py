"""Alarms with CloudWatch's semantics, computed here: metric alarms, composite alarms, and the tree of a workload.

May import telemetry and what is below it. Start reading at `tree.py` for the alarms of a workload, at `engine.py` for
their evaluation, at `metric_evaluation.py` for one alarm, and at `composite.py` for alarms over alarms.
"""

from holdfast._alarm_options import AlarmOptions
from holdfast.alarms.actions import AlarmAction, AlarmChange, SuppressedActions
from holdfast.alarms.alarm import Alarm, AlarmState, StateValue
from holdfast.alarms.chi_squared import ChiSquaredEvent, ChiSquaredResult, find_outlier
from holdfast.alarms.composite import AlarmGraph, CompositeAlarm, StateChange
from holdfast.alarms.configuration import ConfigurationChange, ConfigurationVerb, SavedDefinition
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation
from holdfast.alarms.engine import AlarmEngine, Evaluation, SavedAlarms
from holdfast.alarms.explanation import Explanation, explain_alarm
from holdfast.alarms.history import HistoryItem, HistoryItemType
from holdfast.alarms.metric_alarm import ComparisonOperator, LowSampleCount, MetricAlarm, TreatMissingData
from holdfast.alarms.metric_evaluation import Datapoint, Decision, EvaluationRule, decide_state, evaluate_alarm
from holdfast.alarms.metric_queries import MetricDataQuery, MetricStat
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.alarms.step_notes import StepNote
from holdfast.alarms.suppression import SuppressedBy, Suppression
from holdfast.alarms.tree import AlarmTree, TreeBuilder

__all__ = [
    "Alarm",
    "AlarmAction",
    "AlarmChange",
    "AlarmDeclaration",
    "AlarmEngine",
    "AlarmGraph",
    "AlarmOptions",
    "AlarmState",
    "AlarmTree",
    "ChiSquaredEvent",
    "ChiSquaredResult",
    "ComparisonOperator",
    "CompositeAlarm",
    "ConfigurationChange",
    "ConfigurationVerb",
    "Datapoint",
    "Decision",
    "Evaluation",
    "EvaluationRule",
    "Explanation",
    "HistoryItem",
    "HistoryItemType",
    "LowSampleCount",
    "MeasuredOperation",
    "MetricAlarm",
    "MetricDataQuery",
    "MetricStat",
    "RecentMetrics",
    "SavedAlarms",
    "SavedDefinition",
    "StateChange",
    "StateValue",
    "StepNote",
    "SuppressedActions",
    "SuppressedBy",
    "Suppression",
    "TreatMissingData",
    "TreeBuilder",
    "decide_state",
    "evaluate_alarm",
    "explain_alarm",
    "find_outlier",
]

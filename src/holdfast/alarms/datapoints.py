"""Compute the datapoints of metric alarms, those with the same expression together. Needs NumPy.

Pure, and tested together with the engine.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._types import Zone
from holdfast.alarms.metric_evaluation import Datapoint
from holdfast.alarms.metric_math import Id, InsightRuleMetric
from holdfast.alarms.metric_queries import QueryPlan
from holdfast.alarms.recent_metrics import MetricWindow
from holdfast.alarms.tree_metrics import WatchedMetric


class AlarmGroup(NamedTuple):
    """Metric alarms with the same expression, which are computed together."""

    plan: QueryPlan | None
    rows: "NDArray[np.int64]"
    """The rows of these alarms."""
    inputs: "dict[Id | InsightRuleMetric | None, NDArray[np.int64]]"
    """The rows of their series in the window."""


class ExpectedData:
    """Finds the periods in which metric alarms could have data."""

    def __init__(self, alarms: Sequence[WatchedMetric]) -> None:
        self._number = len(alarms)
        self._contributors = [row for row, each in enumerate(alarms) if each.counts_contributors]
        self._consumers: defaultdict[Zone, list[int]] = defaultdict(list)
        """By zone, the rows of the alarms on shared resources, as consumers in that zone measure them."""
        for row, each in enumerate(alarms):
            if (zone := each.consumer_zone) is not None:
                self._consumers[zone].append(row)

    def find_watched(self, window: MetricWindow) -> "NDArray[np.bool_]":
        """Return for each alarm and each period whether data could be there.

        Consumers in a zone that is out make no calls. If a zone reports nothing at all, no data about a shared resource
        says nothing about the resource.
        """
        watched = np.tile(np.array(window.watched), (self._number, 1))
        watched[self._contributors] = window.contributors_watched
        for position, (out, silent) in enumerate(zip(window.zones_out, window.silent_zones, strict=True)):
            for zone in out | silent:
                watched[self._consumers.get(zone, []), position] = False
        return watched


def group_alarms(alarms: Sequence[WatchedMetric], window: MetricWindow) -> list[AlarmGroup]:
    """Group alarms by their expression."""
    rows, without = window.rows, len(window.values) - 1
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, each in enumerate(alarms):
        found[_describe_expressions(each)].append(row)
    groups = []
    for members in found.values():
        watched = [alarms[row] for row in members]
        # The names of contributor rules differ between zones: those of the first alarm stand for all.
        names = list(watched[0].inputs)
        columns = [[rows.get(reference, without) for reference in each.inputs.values()] for each in watched]
        inputs = {name: np.array([column[index] for column in columns]) for index, name in enumerate(names)}
        groups.append(AlarmGroup(watched[0].alarm.plan, np.array(members), inputs))
    return groups


def compute_datapoints(groups: Sequence[AlarmGroup], number: int, window: MetricWindow) -> "NDArray[np.float64]":
    """Return the datapoints of `number` alarms, which are in these groups."""
    values = np.empty((number, window.values.shape[1]))
    for group in groups:
        series = {each: window.values[rows] for each, rows in group.inputs.items()}
        if group.plan is None:
            values[group.rows] = series[None]
        else:
            values[group.rows] = group.plan.evaluate(
                {each: found for each, found in series.items() if each is not None}
            )
    return values


def _describe_expressions(watched: WatchedMetric) -> tuple[str, ...]:
    return tuple(
        "INSIGHT_RULE_METRIC" if "INSIGHT_RULE_METRIC" in (query.expression or "") else query.expression or query.id
        for query in watched.alarm.metrics
    )


def build_datapoints(window: MetricWindow, values: "NDArray[np.float64]") -> list[Datapoint]:
    """Return the datapoints of one alarm, oldest first."""
    return [Datapoint(start, value) for start, value in zip(window.starts, list_values(values), strict=True)]


def list_values(values: "NDArray[np.float64]") -> list[float | None]:
    """Return the values of one series, with None for a period without data."""
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN

"""The queries of an alarm on metric math."""

from typing import Any

import numpy as np
import pytest

from holdfast import InvalidValue
from holdfast.alarms import MetricDataQuery, MetricStat
from holdfast.alarms.metric_math import Id, InsightRuleMetric
from holdfast.alarms.metric_queries import QueryPlan
from tests.table import every_row


def metric(name: str, period: int = 60, **more: Any) -> MetricDataQuery:
    stat = MetricStat(namespace="shop", metric_name="5xx", period=period, stat="Sum")
    return MetricDataQuery(id=name, metric_stat=stat, **({"return_data": False} | more))


def expression(name: str, text: str, **more: Any) -> MetricDataQuery:
    return MetricDataQuery(id=name, expression=text, **({"return_data": False} | more))


def test_expressions_may_use_others_in_any_order() -> None:
    plan = QueryPlan(
        (
            expression("share", "faults / total * 100", return_data=True),
            expression("total", "SUM(METRICS())"),
            metric("faults"),
            metric("good"),
        )
    )
    assert (plan.period, plan.returned, plan.inputs) == (60, "share", (Id("faults"), Id("good")))
    found = plan.evaluate({Id("faults"): np.array([1.0, 0.0]), Id("good"): np.array([3.0, 0.0])})
    np.testing.assert_allclose(found, [25, np.nan])


def test_an_alarm_may_watch_a_metric_or_a_rule_of_contributor_insights() -> None:
    plan = QueryPlan((metric("m1", 300, return_data=True),))
    assert plan.evaluate({Id("m1"): np.array([1.0])}).tolist() == [1.0]
    rule = InsightRuleMetric("errors-use1-az1", "UniqueContributors")
    text = 'INSIGHT_RULE_METRIC("errors-use1-az1", "UniqueContributors")'
    plan = QueryPlan((expression("e1", text, period=60, return_data=True),))
    assert (plan.inputs, plan.period) == ((rule,), 60)
    assert plan.evaluate({rule: np.array([3.0])}).tolist() == [3.0]


def test_wrong_queries_are_refused() -> None:
    def check(row: tuple[list[MetricDataQuery], str]) -> None:
        queries, message = row
        with pytest.raises(InvalidValue, match=message):
            QueryPlan(tuple(queries))

    watched = expression("e", "m1", return_data=True)
    every_row(
        [
            ([], "0 queries: expected 1 to 20"),
            ([metric("m1"), *(expression(f"e{number}", "m1") for number in range(20))], "21 queries"),
            ([metric(f"m{number}") for number in range(11)], "11 queries with a metric_stat: expected at most 10"),
            ([metric("m1"), metric("m1"), watched], "several queries m1"),
            ([metric("m1")], "exactly one query, found none"),
            ([metric("m1", return_data=True), watched], "exactly one query, found m1, e"),
            ([metric("m1"), metric("m2", 300), watched], "the same period in all queries, found 60, 300"),
            ([expression("e", "INSIGHT_RULE_METRIC('r', 'Sum')", return_data=True)], "found none"),
            ([metric("m2"), watched], "query e: there is no query m1"),
            (
                [metric("m1"), expression("a", "b"), expression("b", "a + m1", return_data=True)],
                "the queries a, b use each other in a cycle",
            ),
            ([metric("m1"), expression("e", "m1 +", return_data=True)], "query e: expected a number"),
        ],
        check,
        lambda row: row[1],
    )


def test_a_query_has_an_id_and_either_an_expression_or_a_metric() -> None:
    for name in ("2xx", "M1", "", "m-1", "m" * 256):
        with pytest.raises(InvalidValue, match="query id"):
            expression(name, "m1")
    stat = MetricStat(namespace="shop", metric_name="5xx", period=60, stat="p99")
    both: dict[str, Any] = {"expression": "m1", "metric_stat": stat}
    for wrong in ({}, both):
        with pytest.raises(InvalidValue, match="either an expression or a metric_stat"):
            MetricDataQuery(id="m1", **wrong)
    with pytest.raises(InvalidValue, match="statistic 'p99x'"):
        MetricStat(namespace="shop", metric_name="5xx", period=60, stat="p99x")

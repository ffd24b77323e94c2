"""The queries of an alarm on metric math: metrics, expressions over them, and the one that the alarm watches. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast._errors import InvalidValue
from holdfast.alarms.metric_math import Id, InsightRuleMetric, Node, find_inputs, parse_expression
from holdfast.alarms.metric_math_evaluation import Series, evaluate_expression
from holdfast.alarms.statistics import parse_statistic

MAX_QUERIES = 20
MAX_METRICS = 10
_ID = re.compile(r"[a-z]\w{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStat:
    """A metric of CloudWatch, and the statistic of each period."""

    namespace: str
    metric_name: str
    period: int
    stat: str
    dimensions: tuple[tuple[str, str], ...] = ()
    unit: str | None = None

    def __post_init__(self) -> None:
        parse_statistic(self.stat)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDataQuery:
    """A metric or an expression. Fields have CloudWatch's names."""

    id: str
    expression: str | None = None
    metric_stat: MetricStat | None = None
    label: str = ""
    period: int | None = None
    """Seconds of one point of an expression that uses no metric."""
    return_data: bool = True
    """Whether the alarm watches this query. True for exactly one."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvalidValue(
                f"query id {self.id[:40]!r}: expected a lower-case letter, then letters, digits or underscores"
            )
        if (self.expression is None) == (self.metric_stat is None):
            raise InvalidValue(f"query {self.id}: expected either an expression or a metric_stat")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The checked queries of one alarm, in an order in which they can be evaluated."""

    queries: tuple[MetricDataQuery, ...]
    period: int = field(init=False)
    """Seconds of one point."""
    inputs: tuple[Id | InsightRuleMetric, ...] = field(init=False)
    """Series that the caller has to bring: metrics by the id of their query, and metrics of Contributor Insights."""
    returned: str = field(init=False)
    """The id of the query that the alarm watches."""
    _steps: tuple[tuple[str, Node], ...] = field(init=False)
    _metrics: tuple[Id, ...] = field(init=False)

    def __post_init__(self) -> None:
        _check_numbers(self.queries)
        nodes = {each.id: _parse(each) for each in self.queries if each.expression is not None}
        metrics = tuple(Id(each.id) for each in self.queries if each.metric_stat is not None)
        found = [part for node in nodes.values() for part in find_inputs(node)]
        rules = tuple(dict.fromkeys(part for part in found if isinstance(part, InsightRuleMetric)))
        [returned] = [each.id for each in self.queries if each.return_data]
        for name, value in {
            "period": _find_period(self.queries),
            "inputs": (*metrics, *rules),
            "returned": returned,
            "_steps": tuple((each, nodes[each]) for each in _sort(self.queries, nodes)),
            "_metrics": metrics,
        }.items():
            object.__setattr__(self, name, value)

    def evaluate(self, inputs: Mapping[Id | InsightRuleMetric, Series]) -> Series:
        """Return the series that the alarm watches. `inputs` has a series of the same shape for each of `self.inputs`.

        As in `evaluate_expression`, the last axis is time.
        """
        series = dict(inputs)
        metrics = tuple(series[each] for each in self._metrics)
        for name, node in self._steps:
            series[Id(name)] = evaluate_expression(node, series, metrics)
        return series[Id(self.returned)]


def _check_numbers(queries: Sequence[MetricDataQuery]) -> None:
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise InvalidValue(f"metrics: {len(queries)} queries: expected 1 to {MAX_QUERIES}")
    metrics = [each.id for each in queries if each.metric_stat is not None]
    if len(metrics) > MAX_METRICS:
        raise InvalidValue(f"metrics: {len(metrics)} queries with a metric_stat: expected at most {MAX_METRICS}")
    names = [each.id for each in queries]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InvalidValue(f"metrics: expected every id once, found several queries {', '.join(twice)}")
    returned = [each.id for each in queries if each.return_data]
    if len(returned) != 1:
        raise InvalidValue(
            f"metrics: expected return_data for exactly one query, found {', '.join(returned) or 'none'}"
        )


def _parse(query: MetricDataQuery) -> Node:
    try:
        return parse_expression(query.expression or "")
    except InvalidValue as error:
        raise InvalidValue(f"query {query.id}: {error}") from error


def _find_period(queries: Sequence[MetricDataQuery]) -> int:
    found = {each.metric_stat.period for each in queries if each.metric_stat is not None}
    found |= {each.period for each in queries if each.period is not None}
    if len(found) != 1:
        periods = ", ".join(map(str, sorted(found))) or "none"
        raise InvalidValue(f"metrics: expected the same period in all queries, found {periods}")
    return found.pop()


def _sort(queries: Sequence[MetricDataQuery], nodes: Mapping[str, Node]) -> list[str]:
    """Return the ids of expressions, each after those that it uses. Raise InvalidValue for unknown ids and cycles."""
    names = {each.id for each in queries}
    uses: dict[str, set[str]] = {}
    for name, node in nodes.items():
        used = {part.name for part in find_inputs(node) if isinstance(part, Id)}
        if unknown := sorted(used - names):
            raise InvalidValue(f"query {name}: there is no query {', '.join(unknown)}")
        uses[name] = used & nodes.keys()
    ordered: list[str] = []
    while uses:
        ready = [name for name, used in uses.items() if used.isdisjoint(uses)]
        if not ready:
            raise InvalidValue(f"metrics: the queries {', '.join(sorted(uses))} use each other in a cycle")
        ordered += ready
        for name in ready:
            del uses[name]
    return ordered

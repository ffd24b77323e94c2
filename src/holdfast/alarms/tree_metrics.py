"""The metric alarms of a workload's tree: one method for each kind. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._alarm_options import MAX_PATTERN
from holdfast._types import Operation, Side, Zone
from holdfast.alarms.declaration import (
    CHI_SQUARED,
    FAULTS,
    INSTANCES,
    LATENCY,
    REQUESTS,
    THROUGHPUT,
    AlarmDeclaration,
    SeriesReference,
)
from holdfast.alarms.metric_alarm import ComparisonOperator, MetricAlarm, TreatMissingData
from holdfast.alarms.metric_math import Id, InsightRuleMetric
from holdfast.alarms.metric_queries import MetricDataQuery, MetricStat
from holdfast.alarms.statistics import BASIC_STATISTICS


class Pattern(NamedTuple):
    """The number of breaching datapoints, among the last ones, that an alarm needs."""

    name: str
    """The end of the names of such alarms."""
    required: int
    number: int
    text: str
    """The end of their descriptions."""


IN_A_ROW = Pattern("3-in-a-row", 3, 3, "in 3 periods in a row")
M_OF_N = Pattern("3-of-5", 3, MAX_PATTERN, f"in 3 of the last {MAX_PATTERN} periods")
PATTERNS = (IN_A_ROW, M_OF_N)
"""The first finds lasting trouble, the second one that comes and goes."""
_MEASURING = {Side.SERVER: "servers", Side.CLIENT: "clients", Side.CANARY: "canaries"}


@dataclass(frozen=True, slots=True)
class WatchedMetric:
    """A metric alarm, and the series that it reads: by their query, or by None if it has only one metric."""

    alarm: MetricAlarm
    inputs: Mapping[Id | InsightRuleMetric | None, SeriesReference]

    @property
    def counts_contributors(self) -> bool:
        """Whether it counts the instances of a zone."""
        return any(isinstance(each, InsightRuleMetric) for each in self.inputs)

    @property
    def consumer_zone(self) -> Zone | None:
        """The zone whose consumers measure a shared resource; None for an alarm that is not about one."""
        clients = (each for each in self.inputs.values() if each.side is Side.CLIENT and each.operation is not None)
        return next((each.zone for each in clients), None)


class MetricAlarms:
    """Builds the metric alarms of one workload."""

    def __init__(self, declaration: AlarmDeclaration) -> None:
        self._declaration = declaration
        self._options = declaration.options

    @property
    def max_faults(self) -> str:
        """The threshold of availability, in words."""
        return f"More than {100 - self._options.min_availability:g} %"

    @property
    def slowness(self) -> str:
        """The threshold of latency, in words."""
        return f"their {self._options.latency_statistic} latency is above {self._options.max_latency:g} s"

    @property
    def low_throughput(self) -> str:
        """The threshold of throughput, in words."""
        return f"less than {100 - self._options.throughput_drop:g} % of its usual share of all requests"

    def watch_availability(
        self, name: str, series: SeriesReference, pattern: Pattern, missing: TreatMissingData = TreatMissingData.MISSING
    ) -> WatchedMetric:
        inputs: dict[Id | InsightRuleMetric | None, SeriesReference]
        inputs = {Id("requests"): series._replace(metric=REQUESTS), Id("faults"): series._replace(metric=FAULTS)}
        queries = [
            MetricDataQuery(
                id=each, metric_stat=self._describe(series._replace(metric=metric), "Sum"), return_data=False
            )
            for each, metric in (("requests", REQUESTS), ("faults", FAULTS))
        ]
        expression = "100 * (requests - faults) / requests"
        alarm = MetricAlarm(
            alarm_name=f"{name}-{pattern.name}",
            alarm_description=(
                f"{self.max_faults} of the requests of {series.operation} fail in {series.zone}, "
                f"as {_MEASURING[series.side]} measure it, {pattern.text}."
            ),
            metrics=(*queries, MetricDataQuery(id="availability", expression=expression)),
            threshold=self._options.min_availability,
            comparison_operator=ComparisonOperator.LESS_THAN,
            evaluation_periods=pattern.number,
            datapoints_to_alarm=pattern.required,
            treat_missing_data=missing,
        )
        return WatchedMetric(alarm, inputs)

    def watch_latency(
        self, name: str, series: SeriesReference, pattern: Pattern, missing: TreatMissingData = TreatMissingData.MISSING
    ) -> WatchedMetric:
        text = self._options.latency_statistic
        reference = series._replace(metric=LATENCY)
        stat = self._describe(reference, text)
        alarm = MetricAlarm(
            alarm_name=f"{name}-{pattern.name}",
            alarm_description=(
                f"Requests of {series.operation} are slow in {series.zone}: {self.slowness}, "
                f"as {_MEASURING[series.side]} measure it, {pattern.text}."
            ),
            namespace=stat.namespace,
            metric_name=stat.metric_name,
            dimensions=stat.dimensions,
            statistic=text if text in BASIC_STATISTICS else None,
            extended_statistic=None if text in BASIC_STATISTICS else text,
            period=stat.period,
            threshold=self._options.max_latency * 1000,
            comparison_operator=ComparisonOperator.GREATER_THAN,
            evaluation_periods=pattern.number,
            datapoints_to_alarm=pattern.required,
            treat_missing_data=missing,
        )
        return WatchedMetric(alarm, {None: reference})

    def watch_outlier(self, name: str, zone: Zone, operation: Operation, pattern: Pattern) -> WatchedMetric:
        return self._watch_value(
            f"{name}-{pattern.name}",
            SeriesReference(CHI_SQUARED, zone, operation),
            f"The faults of {operation} in {zone} differ from those in other zones by a chi-squared test, "
            f"{pattern.text}.",
            (ComparisonOperator.GREATER_THAN_OR_EQUAL, 1.0),
            pattern,
            missing=TreatMissingData.MISSING,
        )

    def watch_throughput(self, name: str, zone: Zone, pattern: Pattern) -> WatchedMetric:
        """Compare the zone's share of all requests with that of the last hour.

        No data means that the zone is out, or that it has too few requests to tell.
        """
        return self._watch_value(
            f"{name}-{pattern.name}",
            SeriesReference(THROUGHPUT, zone),
            f"{zone} gets {self.low_throughput}, {pattern.text}.",
            (ComparisonOperator.LESS_THAN, 100.0 - self._options.throughput_drop),
            pattern,
            missing=TreatMissingData.NOT_BREACHING,
        )

    def watch_silence(self, zone: Zone) -> WatchedMetric:
        return self._watch_value(
            f"{zone}-silent",
            SeriesReference(REQUESTS, zone),
            f"{zone} reports no request: its other alarms show nothing.",
            (ComparisonOperator.LESS_THAN, 1.0),
            IN_A_ROW,
            missing=TreatMissingData.BREACHING,
        )

    def watch_telemetry(self, zone: Zone) -> WatchedMetric:
        """Find out whether the zone reports anything: as a server, as a client or by canaries."""
        series = {side: SeriesReference(REQUESTS, zone, None, side) for side in Side}
        queries = [
            MetricDataQuery(id=side.value, metric_stat=self._describe(each, "Sum"), return_data=False)
            for side, each in series.items()
        ]
        alarm = MetricAlarm(
            alarm_name=f"{zone}-no-telemetry",
            alarm_description=(
                f"{zone} reports no request of servers, clients or canaries, so it says nothing about shared resources."
            ),
            metrics=(*queries, MetricDataQuery(id="reported", expression=" + ".join(Side))),
            threshold=1.0,
            comparison_operator=ComparisonOperator.LESS_THAN,
            # With its evaluation range of three periods, it is in ALARM before missing data alone makes the alarms on
            # shared resources breach.
            evaluation_periods=1,
            treat_missing_data=TreatMissingData.BREACHING,
        )
        return WatchedMetric(alarm, {Id(side.value): each for side, each in series.items()})

    def count_contributors(self, name: str, zone: Zone, rule: str, what: str) -> WatchedMetric:
        options = self._options
        numbers = InsightRuleMetric(f"{rule}-{zone}", "UniqueContributors")
        totals = InsightRuleMetric(f"{INSTANCES}-{zone}", "UniqueContributors")
        queries = [
            MetricDataQuery(
                id=each,
                expression=f'INSIGHT_RULE_METRIC("{source.rule}", "{source.metric}")',
                period=options.period,
                return_data=False,
            )
            for each, source in (("found", numbers), ("instances", totals))
        ]
        expression = f"IF(found / instances > {options.contributor_share:.4f}, found, 0)"
        alarm = MetricAlarm(
            alarm_name=name,
            alarm_description=(
                f"More than {options.contributors} instances of {zone}, and more than "
                f"{100 * options.contributor_share:g} % of all its instances, have {what}, {M_OF_N.text}."
            ),
            metrics=(*queries, MetricDataQuery(id="contributors", expression=expression, period=options.period)),
            threshold=float(options.contributors),
            comparison_operator=ComparisonOperator.GREATER_THAN,
            evaluation_periods=M_OF_N.number,
            datapoints_to_alarm=M_OF_N.required,
            treat_missing_data=TreatMissingData.NOT_BREACHING,  # no request, so no contributor
        )
        return WatchedMetric(alarm, {numbers: SeriesReference(rule, zone), totals: SeriesReference(INSTANCES, zone)})

    def _watch_value(
        self,
        name: str,
        reference: SeriesReference,
        text: str,
        breach: tuple[ComparisonOperator, float],
        pattern: Pattern,
        *,
        missing: TreatMissingData,
    ) -> WatchedMetric:
        stat = self._describe(reference, "Sum" if reference.metric == REQUESTS else "Maximum")
        alarm = MetricAlarm(
            alarm_name=name,
            alarm_description=text,
            namespace=stat.namespace,
            metric_name=stat.metric_name,
            dimensions=stat.dimensions,
            statistic=stat.stat,
            period=stat.period,
            threshold=breach[1],
            comparison_operator=breach[0],
            evaluation_periods=pattern.number,
            datapoints_to_alarm=pattern.required,
            treat_missing_data=missing,
        )
        return WatchedMetric(alarm, {None: reference})

    def _describe(self, series: SeriesReference, statistic: str) -> MetricStat:
        """Return a series as a metric of CloudWatch."""
        operation = series.operation
        named = () if operation is None else (("Controller", operation.service), ("Action", operation.name))
        side = () if series.side is Side.SERVER else (("Side", series.side.value),)
        return MetricStat(
            namespace=self._declaration.workload,
            metric_name=series.metric,
            dimensions=(*named, ("Region", self._declaration.region), ("AZ-ID", series.zone), *side),
            period=self._options.period,
            stat=statistic,
        )

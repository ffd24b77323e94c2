"""Find how many units the highest load of the last days needs, by the metrics of CloudWatch.

There are three formulas, from the best evidence to the weakest:

1. Policies that keep the requests per target, or the CPU, at a value: the most requests in a minute, or the highest
   product of CPU and units in service, divided by that value. With several policies, the largest number counts.
2. The CPU without such a policy: the same, with an assumed value.
3. The highest desired size that was recorded.

A formula without any datapoint leaves the answer to the next one. Without any data, the current desired size counts.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from holdfast._errors import HoldfastError
from holdfast._names import format_count
from holdfast.evacuate.action import PARALLEL_CALLS
from holdfast.evacuate.refusals import translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = ("cloudwatch:GetMetricData",)
PERIOD = 60
"""Seconds of one datapoint. Target values are per minute. CloudWatch keeps such datapoints for 15 days, and 14 days
have 20,160 of them, so that one metric always fits into one call."""
MAX_QUERIES, MAX_DATAPOINTS = 500, 100_800
"""Metrics and datapoints of one call of GetMetricData, by the limits of AWS. With seven days, that is ten metrics."""
_READ = ("Complete", "PartialData")
"""The codes of results that were read. More values follow partial data, on the next page."""
WELL_KNOWN = 0.9
"""Share of the minutes whose size must be known beside the load. With fewer, the evidence is weak."""
ASSUMED_CPU = 60.0
"""Per cent of CPU that a unit without a policy may use: more leaves too little for requests that come in bursts."""


class Metric(NamedTuple):
    """A metric of CloudWatch, with one of its statistics."""

    namespace: str
    name: str
    statistic: str
    dimensions: tuple[tuple[str, str], ...]


Series = Mapping[float, float]
"""Values by time, in seconds since the epoch."""


class RequestTarget(Struct, frozen=True):
    """The requests per minute that a policy wants for each instance or task, and the metric of all requests."""

    requests: Metric
    per_unit: float


class LoadSource(Struct, frozen=True, kw_only=True):
    """The metrics that show the load of a service, and its size now."""

    unit: str
    """`instance` or `task`."""
    running: float
    """Instances or tasks in service."""
    desired: float
    """The size that is wanted now, in units."""
    weight: float = 1.0
    """Units of one instance, in a group whose instances have weights."""
    request_targets: Sequence[RequestTarget] = ()
    """By the policies with ALBRequestCountPerTarget."""
    cpu: Metric
    cpu_target: float | None = None
    """Per cent, by the policy that tracks the average CPU."""
    past_running: Metric | None = None
    """Instances in service, if the group records them."""
    past_desired: Metric | None = None
    """The size that was wanted, if the group records it."""


class Need(Struct, frozen=True, kw_only=True):
    """Units that the highest load needs."""

    units: float
    basis: str
    """How they were found, in words with numbers."""
    is_weak: bool = False


class Needs(NamedTuple):
    """The need of every service, by its id, and notes about metrics that cannot be read."""

    by_id: Mapping[str, Need]
    notes: list[str]


def find_needs(session: "AwsSession", sources: Mapping[str, LoadSource], *, days: int, now: float) -> Needs:
    """Return the need of services in the last days. If CloudWatch cannot be read, their current sizes count."""
    known: dict[str, Need] = {}
    problems: list[str] = []
    end = now - now % PERIOD
    for formula in _FORMULAS:
        left = {each: source for each, source in sources.items() if each not in known}
        metrics = {each for source in left.values() for each in formula.list_metrics(source)}
        series = read_series(session, metrics, end - days * 86_400, end, problems)
        found = {each: formula.compute(source, series, days) for each, source in left.items()}
        known |= {each: need for each, need in found.items() if need is not None}
    notes = []
    if problems:
        text = f"{format_count(len(problems), 'call')} of CloudWatch failed, so some loads are unknown, and weaker"
        notes.append(f"{text} evidence is used instead: {problems[0]}")
    return Needs({each: known.get(each, use_current_size(source)) for each, source in sources.items()}, notes)


def read_series(
    session: "AwsSession", metrics: Collection[Metric], start: float, end: float, problems: list[str]
) -> dict[Metric, Series]:
    """Return the values of metrics. Those without any value are missing, and so are those that cannot be read.

    The reasons for the latter are added to `problems`.
    """
    size = max(min(MAX_QUERIES, MAX_DATAPOINTS // int((end - start) // PERIOD)), 1)

    def read(batch: Sequence[Metric]) -> list[tuple[Metric, Series]]:
        arguments: dict[str, Any] = {
            "MetricDataQueries": [_build_query(number, each) for number, each in enumerate(batch)],
            "StartTime": datetime.fromtimestamp(start, UTC),
            "EndTime": datetime.fromtimestamp(end, UTC),
        }
        values: list[dict[float, float]] = [{} for _ in batch]
        failed: set[int] = set()
        try:
            with translate_refusals(session):
                # The values of one metric may be on several pages.
                for result in session.paginate("cloudwatch", "get_metric_data", **arguments):
                    number, seconds = int(result["Id"][1:]), (each.timestamp() for each in result["Timestamps"])
                    values[number].update(zip(seconds, result["Values"], strict=True))
                    if result["StatusCode"] not in _READ:
                        failed.add(number)  # some of its values are missing, perhaps the highest
                        problems.append(f"{batch[number].name}: {result['StatusCode']}")
        except HoldfastError as error:
            problems.append(str(error))
            return []
        found = [each for number, each in enumerate(zip(batch, values, strict=True)) if number not in failed]
        return [(metric, series) for metric, series in found if series]

    chosen = sorted(metrics)
    batches = [chosen[number : number + size] for number in range(0, len(chosen), size)]
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        return {metric: found for pairs in pool.map(read, batches) for metric, found in pairs}


def _build_query(number: int, metric: Metric) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    described = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
    return {"Id": f"m{number}", "MetricStat": {"Metric": described, "Period": PERIOD, "Stat": metric.statistic}}


def compute_by_policies(source: LoadSource, series: Mapping[Metric, Series], days: int) -> Need | None:
    """Return the need by the policies that track a target; None without data. Pure.

    With several policies, AWS keeps the largest size that one of them asks for.
    """
    found = [need for each in source.request_targets if (need := _compute_by_requests(each, source, series, days))]
    if source.cpu_target is not None:
        need = _compute_by_cpu(source, series, source.cpu_target, days)
        found += [] if need is None else [need]
    return max(found, key=lambda each: each.units, default=None)


def compute_by_assumed_cpu(source: LoadSource, series: Mapping[Metric, Series], days: int) -> Need | None:
    """Return the need by the CPU, without a policy that says how much of it may be used; None without data. Pure."""
    need = _compute_by_cpu(source, series, ASSUMED_CPU, days)
    if need is None:
        return None
    return Need(units=need.units, basis=f"{need.basis}, which is assumed", is_weak=True)


def compute_by_past_size(source: LoadSource, series: Mapping[Metric, Series], days: int) -> Need | None:
    """Return the highest size that was wanted; None without data. Pure."""
    found = series.get(source.past_desired) if source.past_desired is not None else None
    if found is None:
        return None
    most = max(*found.values(), source.desired)
    return Need(units=most, basis=f"the highest desired size of {days} days, because its load is unknown", is_weak=True)


def use_current_size(source: LoadSource) -> Need:
    """Return the size that is wanted now. Pure."""
    return Need(units=source.desired, basis="its current desired size, because its load is unknown", is_weak=True)


def _compute_by_requests(
    target: RequestTarget, source: LoadSource, series: Mapping[Metric, Series], days: int
) -> Need | None:
    if target.requests not in series:
        return None
    peak = max(series[target.requests].values())
    text = f"{peak:,.0f} requests in the busiest minute of {days} days, and {target.per_unit:,g} for each {source.unit}"
    return Need(units=peak / target.per_unit * source.weight, basis=text)


def _compute_by_cpu(source: LoadSource, series: Mapping[Metric, Series], target: float, days: int) -> Need | None:
    if source.cpu not in series:
        return None
    cpu = series[source.cpu]
    past = series.get(source.past_running, {}) if source.past_running is not None else {}
    # Where the size of the past is unknown, it was at least the one that is wanted now: some units may be failing.
    usual = max(source.running, source.desired / source.weight)
    loads = [(value * past.get(time, usual), value, past.get(time, usual)) for time, value in cpu.items()]
    load, percent, running = max(loads)
    is_weak = sum(time in past for time in cpu) < WELL_KNOWN * len(cpu)
    which = "" if running in past.values() else "current "
    known_days = len({time // 3600 for time in cpu}) / 24  # some metrics have a datapoint every five minutes
    seen = "" if known_days >= WELL_KNOWN * days else f", of which {known_days:.1f} have data"
    text = f"{percent:.3g} % CPU of {running:g} {which}{source.unit}s at the highest load of {days} days{seen}"
    units, basis = load / target * source.weight, f"{text}, and a target of {target:g} %"
    if is_weak and units < source.desired:
        # At the highest load, there may have been many more units than now. So the need is not known to be smaller.
        return Need(
            units=source.desired,
            basis=f"its current desired size, because past sizes are unknown; {basis}",
            is_weak=True,
        )
    return Need(units=units, basis=basis, is_weak=is_weak)


class _Formula(NamedTuple):
    list_metrics: Callable[[LoadSource], Iterator[Metric]]
    compute: Callable[[LoadSource, Mapping[Metric, Series], int], Need | None]


def _list_policy_metrics(source: LoadSource) -> Iterator[Metric]:
    yield from (each.requests for each in source.request_targets)
    if source.cpu_target is not None:
        yield from _list_cpu_metrics(source)


def _list_cpu_metrics(source: LoadSource) -> Iterator[Metric]:
    yield source.cpu
    if source.past_running is not None:
        yield source.past_running


def _list_assumed_metrics(source: LoadSource) -> Iterator[Metric]:
    if source.cpu_target is None:  # otherwise `compute_by_policies` has looked for the CPU already
        yield from _list_cpu_metrics(source)


def _list_size_metrics(source: LoadSource) -> Iterator[Metric]:
    if source.past_desired is not None:
        yield source.past_desired


_FORMULAS = (
    _Formula(_list_policy_metrics, compute_by_policies),
    _Formula(_list_assumed_metrics, compute_by_assumed_cpu),
    _Formula(_list_size_metrics, compute_by_past_size),
)
"""From the best evidence to the weakest. Metrics of a formula are read only for services that still need an answer."""

"""Decide which members of EMF records are read, from the directives in `_aws.CloudWatchMetrics`. Pure.

Nearly all records of a service have the same directives, so the decoder caches a plan by their text. A directive refers
to members at the root of its record. It declares a metric for each of its dimension sets, but the metric has one value:
a plan reads each member once for a workload, so that no request counts twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.telemetry.source import SourceWorkload
from holdfast.telemetry.sources.emf_mapping import OWN_NAMES, EmfMapping
from holdfast.telemetry.sources.emf_values import INVALID, Refused

UNKNOWN_WORKLOAD, NO_REQUESTS, NO_ZONE = "unknown_workload", "no_requests", "no_zone"
_ROOT = "$._aws.CloudWatchMetrics"
_OWN_LABELS = frozenset({"Controller", "Action", "Region", "AZ-ID", "InstanceId"})
_MILLISECONDS = "Milliseconds"
_UNIT_SECONDS = {"Seconds": 1.0, _MILLISECONDS: 0.001, "Microseconds": 1e-6}
_COUNT_UNITS = frozenset({None, "", "None", "Count", "1"})
"""OpenTelemetry's exporter passes units such as `1` and `{request}` on unchanged."""


_HINT = "lines of other programs need a [[telemetry.emf]] for their namespace in the settings of the server"


class _Metric(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=1024)] = msgspec.field(name="Name")
    unit: str | None = msgspec.field(name="Unit", default=None)
    resolution: Literal[1, 60] = msgspec.field(name="StorageResolution", default=60)


_Metrics = Annotated[list[_Metric], Meta(max_length=100)]
_DimensionSet = Annotated[list[Annotated[str, Meta(min_length=1, max_length=250)]], Meta(max_length=30)]
_DimensionSets = Annotated[list[_DimensionSet], Meta(min_length=1)]


class _Directive(Struct):
    namespace: Annotated[str, Meta(min_length=1, max_length=1024)] = msgspec.field(name="Namespace")
    metrics: _Metrics | UnsetType = msgspec.field(name="Metrics", default=UNSET)
    dimensions: _DimensionSets | UnsetType = msgspec.field(name="Dimensions", default=UNSET)


_decode_directives = msgspec.json.Decoder(list[_Directive]).decode


@dataclass(slots=True)
class PlanPart:
    """The members of a record that are measurements of one workload."""

    workload: SourceWorkload
    names: EmfMapping
    counts: dict[str, str] = field(default_factory=dict)
    """The declared metrics that count requests."""
    latency: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The declared metrics with latencies, each with the seconds of its unit."""
    has_high_resolution: bool = False
    """Whether a metric has a StorageResolution of 1. Then the requests of a summary are of one second."""


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """The measurements in records that have Holdfast's own names and units. Such records are decoded in one step."""

    workload: str
    count_faults: Callable[[int, int, int | None], int]
    needs_region: bool
    has_success_latency: bool
    has_fault_latency: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements in all records with the same directives."""

    parts: tuple[PlanPart, ...]
    dimensions: frozenset[str]
    """Members that must be texts, because a dimension set refers to them; without labels, which are read anyway."""
    own: OwnPlan | None


def build_plan(text: bytes, workloads: Mapping[str, SourceWorkload], mappings: Mapping[str, EmfMapping]) -> Plan:
    """Return the plan for records with these directives. Raise Refused if they are invalid, or nothing can be read."""
    parts: dict[tuple[str, int], PlanPart] = {}
    dimensions: set[str] = set()
    read: set[tuple[str, str]] = set()
    problem = Refused(NO_REQUESTS, f"`{_ROOT}`: no metric counts requests or measures their latency; {_HINT}")
    for index, directive in enumerate(_parse(text)):
        path = f"{_ROOT}[{index}]"
        names = mappings.get(directive.namespace, OWN_NAMES)
        name = directive.namespace.partition("/")[0] if names is OWN_NAMES else names.workload
        workload = workloads.get(name)
        if workload is None:
            reason = f"`{path}.Namespace`: no workload {name[:128]!r} is configured; {_HINT}"
            problem = Refused(UNKNOWN_WORKLOAD, reason)
            continue
        metrics = _find_metrics(directive, names)
        if not metrics:
            continue
        if directive.dimensions is not UNSET:
            if not any(names.zone in dimension_set for dimension_set in directive.dimensions):
                problem = Refused(NO_ZONE, f"`{path}.Dimensions`: no set contains {names.zone!r}, the zone")
                continue
            dimensions.update(*directive.dimensions)
        part = parts.setdefault((name, id(names)), PlanPart(workload, names))
        _add_metrics(part, {each: metric for each, metric in metrics.items() if (name, each) not in read}, path)
        read.update((name, each) for each in metrics)
    if not parts:
        raise problem
    for part in parts.values():
        if "faults" in part.counts and "total" not in part.counts:
            raise Refused(INVALID, f"`{_ROOT}` declares {part.counts['faults']!r} without the total of requests")
    own = _build_own_plan([*parts.values()], dimensions)
    for part in parts.values():
        dimensions -= {part.names.service, part.names.operation, part.names.zone, part.names.instance}
    return Plan(tuple(parts.values()), frozenset(dimensions), own)


def _parse(text: bytes) -> list[_Directive]:
    try:
        return _decode_directives(text)
    except (ValueError, RecursionError) as error:
        message, _, below = str(error).partition(" - at `$")
        raise Refused(INVALID, f"`{_ROOT}{below or '`'}: {message}") from error


def _find_metrics(directive: _Directive, names: EmfMapping) -> dict[str, _Metric]:
    """Return the metrics that count requests or measure them. Without Metrics, a directive declares all of them."""
    declared = [_Metric(name) for name in names.metrics] if directive.metrics is UNSET else directive.metrics
    return {metric.name: metric for metric in declared if metric.name in names.metrics}


def _add_metrics(part: PlanPart, metrics: Mapping[str, _Metric], path: str) -> None:
    names = part.names
    for kind, name in names.counts.items():
        if name in metrics:
            unit = metrics[name].unit
            if unit not in _COUNT_UNITS and not f"{unit}".startswith("{"):
                raise Refused(INVALID, f"`{path}.Metrics`: {name!r} has the unit {unit!r}: expected Count")
            part.counts[kind] = name
    for latency, name in names.latency.items():
        if name in metrics:
            unit = metrics[name].unit or (_MILLISECONDS if names is OWN_NAMES else None)
            if unit not in _UNIT_SECONDS:
                expected = ", ".join(_UNIT_SECONDS)
                raise Refused(INVALID, f"`{path}.Metrics`: {name!r} has the unit {unit!r}: expected one of {expected}")
            part.latency[latency] = name, _UNIT_SECONDS[unit]
    part.has_high_resolution |= any(metric.resolution == 1 for metric in metrics.values())


def _build_own_plan(parts: list[PlanPart], dimensions: set[str]) -> OwnPlan | None:
    part = parts[0]
    if len(parts) > 1 or part.names is not OWN_NAMES or not dimensions <= _OWN_LABELS or len(part.counts) < 4:
        return None
    if any(unit_seconds != _UNIT_SECONDS[_MILLISECONDS] for _, unit_seconds in part.latency.values()):
        return None
    return OwnPlan(
        part.workload.name,
        part.workload.count_faults,
        needs_region="Region" in dimensions,
        has_success_latency="success" in part.latency,
        has_fault_latency="fault" in part.latency,
    )

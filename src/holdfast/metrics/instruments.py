"""Define what is measured and logged, once for all exporters. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from holdfast._errors import InvalidValue

AttributeValue = str | bool | int | float
Attributes = Mapping[str, AttributeValue]

ANY_DETAIL = ""
"""Key of `Instrument.cloudwatch_names` for all values of `detail` that are not listed."""
_PART = re.compile(r"^[a-z]+[._][a-z]+[._]")
"""The prefix of a name, `holdfast.queue.` or `holdfast_queue_`: the breakdown's name is inserted after it."""
_UNIT_SUFFIXES = {"s": "_seconds", "By": "_bytes"}


def powers_of_two(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """Return bucket edges from 2^first to 2^last. Counts at these are exact, because histograms have the same edges."""
    return tuple(2.0**exponent for exponent in range(first, last + 1, step))


class InstrumentType(StrEnum):
    """How values of an instrument combine over time."""

    COUNTER = "counter"
    """Values are summed."""
    GAUGE = "gauge"
    """The last value wins."""
    HISTOGRAM = "histogram"
    """The distribution of values is recorded."""


@dataclass(frozen=True, slots=True)
class Label:
    """One dimension of an instrument."""

    name: str
    """Label name in Prometheus; capitalised, it is the dimension in CloudWatch."""
    attribute: str = ""
    """Attribute name in OpenTelemetry; by default `holdfast.<name>`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.attribute or f"holdfast.{self.name}")

    @property
    def dimension(self) -> str:
        return self.name.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instrument:
    """One metric: its names, unit and labels. Validates when built."""

    type: InstrumentType
    name: str
    """Dotted name, as in OpenTelemetry."""
    description: str
    unit: str = ""
    """In UCUM, as OpenTelemetry uses it: `s`, `{message}`."""
    labels: tuple[Label, ...] = ()
    detail: Label | None = None
    """A label with few values, such as an outcome. In CloudWatch it is part of the metric name, not a dimension."""
    breakdown: Label | None = None
    """A label with its own series in addition to the total, such as the busiest tenants.

    Prometheus and CloudWatch get the total and the breakdown, OpenTelemetry only the breakdown. A gauge is set either
    for the total or for the breakdown, because gauge values cannot be summed.
    """
    in_opentelemetry: bool = True
    """False if OpenTelemetry must not have it, because another instrument counts the same events."""
    constants: Attributes = field(default_factory=dict)
    """Constant attributes for OpenTelemetry."""
    boundaries: tuple[float, ...] = ()
    """Buckets for OpenTelemetry if its conventions recommend some; otherwise `buckets` are used."""
    buckets: tuple[float, ...] = powers_of_two(-8, 4)
    """Upper edges of buckets for Prometheus, each a power of two: by default 4 ms to 16 s."""
    prometheus_name: str = ""
    """The name in Prometheus; by default derived from `name` by OpenTelemetry's rules."""
    cloudwatch_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Metric names in CloudWatch by the value of `detail`, or ANY_DETAIL. Empty means not exported to CloudWatch."""
    cloudwatch_zeros: tuple[str, ...] = ()
    """Counters in CloudWatch that are written as 0 instead of being absent: alarms need a value."""
    cloudwatch_shares: Mapping[str, str] = field(default_factory=dict)
    """Names of percentages in CloudWatch, by value of `detail`: the share of the counts that had this value."""
    cloudwatch_unit: str = ""
    """`Milliseconds` for short durations; by default `Seconds` for the unit `s`, otherwise `Count`."""

    def __post_init__(self) -> None:
        if list(self.buckets) != sorted(set(self.buckets)) or not all(edge > 0 for edge in self.buckets):
            raise InvalidValue(f"buckets {self.buckets!r} of {self.name}: expected positive values in ascending order")
        if not self.prometheus_name:
            suffix = _UNIT_SUFFIXES.get(self.unit, "") + ("_total" if self.type is InstrumentType.COUNTER else "")
            object.__setattr__(self, "prometheus_name", self.name.replace(".", "_") + suffix)
        if not self.cloudwatch_unit:
            object.__setattr__(self, "cloudwatch_unit", "Seconds" if self.unit == "s" else "Count")

    def breakdown_name(self, name: str) -> str:
        """Return a dotted or underscored `name` with the breakdown inserted: `holdfast_queue_tenant_messages`."""
        assert self.breakdown is not None
        part = _PART.match(name)
        assert part is not None
        return f"{part[0]}{self.breakdown.name}{part[0][-1]}{name.removeprefix(part[0])}"


class Series(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """An instrument with label values. Reuse an instance that is measured often: it caches its hash."""

    instrument: Instrument
    labels: tuple[str, ...] = ()
    """The values of the instrument's labels, in their order."""
    detail: str = ""
    breakdown: str | None = None
    """Value of the breakdown label; None if the series counts only for the total."""

    def label_values(self) -> list[tuple[Label, str]]:
        """Return the labels, including the breakdown, with their values."""
        found = list(zip(self.instrument.labels, self.labels, strict=True))
        if self.breakdown is not None and self.instrument.breakdown is not None:
            found.append((self.instrument.breakdown, self.breakdown))
        return found


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """One value of a series."""

    series: Series
    value: float
    attributes: Attributes | None = None
    """Attributes for OpenTelemetry instead of `detail`. Built only if an exporter uses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One log record, formatted only if it is written."""

    logger: str
    """The name of the logger: `holdfast.calls`."""
    level: int
    subject: str
    """The dependency or queue of the event. Rate limits apply per subject and `event`."""
    event: str
    message: Callable[[], str]
    fields: Callable[[], dict[str, Any]]
    """Returns the fields for logging's `extra`; their names must not clash with LogRecord attributes."""
    interval: float = 1.0
    """Interval of the rate limit, in seconds. 0: no limit; up to 1: several records per interval; above 1: one."""
    span_event: str | None = None
    """Name of the event that OpenTelemetry adds to the current span; None for no event."""

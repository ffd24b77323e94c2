"""Describe what is measured and logged, once for all exporters. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from holdfast._errors import InvalidValue

AttributeValue = str | bool | int | float
Attributes = Mapping[str, AttributeValue]

_PART = re.compile(r"^[a-z]+[._][a-z]+[._]")
"""What a name begins with, `holdfast.queue.` or `holdfast_queue_`: the breakdown is named after it."""
_UNIT_SUFFIXES = {"s": "_seconds", "By": "_bytes"}


def powers_of_two(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """Return bucket edges from 2^first to 2^last: counts at these are exact, as histograms have the same edges."""
    return tuple(2.0**exponent for exponent in range(first, last + 1, step))


class InstrumentType(StrEnum):
    """What values of an instrument do over time."""

    COUNTER = "counter"
    """They add up."""
    GAUGE = "gauge"
    """The last one holds."""
    HISTOGRAM = "histogram"
    """Their distribution is kept."""


@dataclass(frozen=True, slots=True)
class Label:
    """One dimension of an instrument."""

    name: str
    """In Prometheus; capitalised, it is the dimension of CloudWatch."""
    attribute: str = ""
    """In OpenTelemetry; `holdfast.<name>` unless it is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.attribute or f"holdfast.{self.name}")

    @property
    def dimension(self) -> str:
        """Return the name as CloudWatch writes its own."""
        return self.name.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instrument:
    """One metric: what it is called, what it counts, and by which labels. Validates when built."""

    type: InstrumentType
    name: str
    """In OpenTelemetry, dotted."""
    description: str
    unit: str = ""
    """In UCUM, as OpenTelemetry has it: `s`, `{message}`."""
    labels: tuple[Label, ...] = ()
    detail: Label | None = None
    """One more label, of few values, that CloudWatch has no dimension for: names of metrics stand for its values."""
    breakdown: Label | None = None
    """A label by which values are told apart beside the total, such as the busiest tenants.

    Prometheus and CloudWatch have the total and the breakdown, OpenTelemetry only the latter. A gauge is set for one or
    for the other, because a total is not a sum of what was set.
    """
    in_opentelemetry: bool = True
    """Whether OpenTelemetry has it; not, where another instrument already counts the same events."""
    constants: Attributes = field(default_factory=dict)
    """Attributes that are always the same, for OpenTelemetry."""
    boundaries: tuple[float, ...] = ()
    """Buckets for OpenTelemetry, where its conventions recommend some; else `buckets`."""
    buckets: tuple[float, ...] = powers_of_two(-8, 4)
    """Upper edges of buckets for Prometheus, each a power of two: 4 ms to 16 s unless they are given."""
    prometheus_name: str = ""
    """The name in Prometheus; by default it is made from `name` by OpenTelemetry's rules."""
    cloudwatch_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names in CloudWatch by the value of `detail`, with `""` for all other values; empty: it is not in CloudWatch."""
    cloudwatch_zeros: tuple[str, ...] = ()
    """Counters in CloudWatch that are 0, and not absent, where this one was counted: alarms need a value."""
    cloudwatch_shares: Mapping[str, str] = field(default_factory=dict)
    """Names of percentages in CloudWatch: which share of the counts had this value of `detail`."""
    cloudwatch_unit: str = ""
    """`Milliseconds` where durations are short; by default `Seconds` for the unit `s`, else `Count`."""

    def __post_init__(self) -> None:
        if list(self.buckets) != sorted(set(self.buckets)) or not all(edge > 0 for edge in self.buckets):
            raise InvalidValue(f"buckets {self.buckets!r} of {self.name}: expected positive values in ascending order")
        if not self.prometheus_name:
            suffix = _UNIT_SUFFIXES.get(self.unit, "") + ("_total" if self.type is InstrumentType.COUNTER else "")
            object.__setattr__(self, "prometheus_name", self.name.replace(".", "_") + suffix)
        if not self.cloudwatch_unit:
            object.__setattr__(self, "cloudwatch_unit", "Seconds" if self.unit == "s" else "Count")

    def broken_down(self, name: str) -> str:
        """Return `name`, in either form, with the breakdown in it: `holdfast_queue_tenant_messages`."""
        assert self.breakdown is not None
        part = _PART.match(name)
        assert part is not None
        return f"{part[0]}{self.breakdown.name}{part[0][-1]}{name.removeprefix(part[0])}"


class Series(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """An instrument with values for its labels. Keep one that is measured often: its hash is kept, too."""

    instrument: Instrument
    labels: tuple[str, ...] = ()
    """The values of the instrument's labels, in their order."""
    detail: str = ""
    breakdown: str | None = None
    """None: it counts for the total alone."""

    def named(self) -> list[tuple[Label, str]]:
        """Return the labels and the breakdown with their values."""
        found = list(zip(self.instrument.labels, self.labels, strict=True))
        if self.breakdown is not None and self.instrument.breakdown is not None:
            found.append((self.instrument.breakdown, self.breakdown))
        return found


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """One value of a series."""

    series: Series
    value: float
    attributes: Attributes | None = None
    """What OpenTelemetry is told instead of the detail. Made only if an exporter uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One record for a log, put into words only if somebody reads it."""

    logger: str
    """The name of the logger: `holdfast.calls`."""
    level: int
    subject: str
    """What it is about: a dependency, a queue. Records are limited for each subject and `event`."""
    event: str
    message: Callable[[], str]
    fields: Callable[[], dict[str, Any]]
    """Values by names that no attribute of a log record has."""
    every: float = 1.0
    """Seconds in which only a few of a kind are written; 0: all are. In more than a second, one is."""
    span_event: str | None = None
    """The name under which OpenTelemetry adds it to the current span; None: it does not."""

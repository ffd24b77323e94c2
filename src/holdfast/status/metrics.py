"""Gauges of what a process knows about zones: how many are out, and how old that knowledge is."""

from collections.abc import Iterable
from typing import Protocol

from holdfast._types import Zone
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import ANY_DETAIL, Instrument, InstrumentType, Measurement, Series

__all__ = ["observe_zones"]

ZONES_OUT = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.status.zones_out",
    unit="{zone}",
    description="Zones that are out for at least one workload.",
    cloudwatch_names={ANY_DETAIL: ("ZonesOut",)},
)
AGE = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.status.age",
    unit="s",
    description="Seconds since it was last known which zones are out.",
    cloudwatch_names={ANY_DETAIL: ("StatusAge",)},
)


class KnownZones(Protocol):
    """The zones that are out, and the age of that knowledge; implemented by `ZoneTracker`."""

    @property
    def age(self) -> float | None:
        """Seconds since the zones were last known; None if they never were."""

    def zones_out_for_any(self) -> frozenset[Zone]:
        """Return the zones that are out for at least one workload."""


def observe_zones(zones: KnownZones, *exporters: Exporter) -> None:
    """Export the gauges of `zones`; they are read whenever an exporter asks."""
    for exporter in exporters:
        exporter.observe((ZONES_OUT, AGE), lambda: measure_zones(zones))


def measure_zones(zones: KnownZones) -> Iterable[Measurement]:
    """Yield the current measurements; none if the zones were never known."""
    age = zones.age
    if age is not None:
        yield Measurement(Series(ZONES_OUT), len(zones.zones_out_for_any()))
        yield Measurement(Series(AGE), age)

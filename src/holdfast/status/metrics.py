"""What a process knows of zones, as gauges: how many are out, and how old that knowledge is."""

from collections.abc import Iterable
from typing import Protocol

from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import Instrument, InstrumentType, Measurement, Series

__all__ = ["observe_zones"]

ZONES_OUT = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.status.zones_out",
    unit="{zone}",
    description="Zones that are out for all workloads.",
    cloudwatch_names={"": ("ZonesOut",)},
)
AGE = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.status.age",
    unit="s",
    description="Seconds since it was last known which zones are out.",
    cloudwatch_names={"": ("StatusAge",)},
)


class KnownZones(Protocol):
    """Which zones are out, and since when that is known; a `ZoneTracker` is one."""

    @property
    def age(self) -> float | None:
        """Seconds since it was last known; None: never."""

    def out(self) -> Iterable[str]:
        """Return the zones that are out for all workloads."""


def observe_zones(zones: KnownZones, *exporters: Exporter) -> None:
    """Export the gauges of `zones`, read whenever an exporter asks."""
    for exporter in exporters:
        exporter.observe((ZONES_OUT, AGE), lambda: measure_zones(zones))


def measure_zones(zones: KnownZones) -> Iterable[Measurement]:
    """Yield what is known now; nothing of what never was."""
    age = zones.age
    if age is not None:
        yield Measurement(Series(ZONES_OUT), len(frozenset(zones.out())))
        yield Measurement(Series(AGE), age)

"""The declaration of a workload's alarms, and the series that they read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._alarm_options import AlarmOptions
from holdfast._types import Operation, Side, Zone
from holdfast.telemetry.context import SharedResource

REQUESTS, FAULTS, LATENCY = "Requests", "Faults", "SuccessLatency"
CHI_SQUARED, THROUGHPUT = "multi-az/chi-squared", "RelativeThroughput"
ERRING, SLOW, INSTANCES = "5xx-errors", "slow-requests", "instances"
"""Contributor rules: instances with faults, with slow requests, and with any request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmDeclaration:
    """The part of a workload's settings that its alarms are generated from."""

    workload: str
    zones: tuple[Zone, ...]
    region: str = ""
    options: AlarmOptions = field(default_factory=AlarmOptions)
    operations: tuple[Operation, ...] = ()
    """The operations that have alarms. Empty means all that are measured."""
    resources: tuple[tuple[str, tuple[Operation, ...]], ...] = ()
    """Shared resources, such as `primary-database`, each with the operations by which consumers use it."""
    resource_zones: Mapping[str, Zone] = field(default_factory=dict)
    """The zone that a resource is in, where it is known. Verdicts name it; alarms do not."""

    def list_resources(self) -> tuple[SharedResource, ...]:
        """Return the shared resources as detectors are shown them."""
        return tuple(SharedResource(name, used, self.resource_zones.get(name)) for name, used in self.resources)


class SeriesReference(NamedTuple):
    """A series that alarms read."""

    metric: str
    zone: Zone
    operation: Operation | None = None
    """None means all operations."""
    side: Side = Side.SERVER


class MeasuredOperation(NamedTuple):
    """An operation, and the side that measures it."""

    operation: Operation
    side: Side = Side.SERVER

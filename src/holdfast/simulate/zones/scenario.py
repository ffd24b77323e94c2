"""Describe a scenario: a service in several zones, what happens to it, and what a detector should find. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, VerdictKind, Zone, ZoneState
from holdfast.simulate.zones.traffic import Effect, Fleet, Matrix
from holdfast.telemetry.bins import BIN_SECONDS
from holdfast.telemetry.context import Deployment, SharedResource

WORKLOAD = "shop"
START = 1_767_225_600.0
"""2026-01-01 00:00 UTC: the traffic of a day starts in the middle between its highest and its lowest."""
INCIDENT = 1200.0
"""Seconds that a failure lasts: detectors report it within ten minutes, or never."""
HOURS = 2.0
"""Default length of a scenario: 80 minutes to learn from, the failure, and 20 minutes to recover."""
_LIMITS = {"operations": (1, 2000), "instances": (1, 200), "hours": (1, 744)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a scenario, where the user chooses it. None means the scenario's own."""

    operations: int | None = None
    instances: int | None = None
    """Instances in each zone. With one, measurements do not name the instance."""
    hours: float | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            given = getattr(self, name)
            if given is not None and not least <= given <= most:
                raise InvalidValue(f"{name} is {given}: expected {least} to {most}")


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a scenario. The failure starts with a bin, after two thirds of the time."""

    start: float
    failure: float
    recovery: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A failure that a detector should find, with the verdict that is right."""

    start: float
    end: float
    kind: VerdictKind
    zone: Zone | None = None
    resource: str | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class StateSpan:
    """The state of a zone for some time. At other times it is in."""

    start: float
    end: float
    zone: Zone
    state: ZoneState


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryFault:
    """A fault of telemetry: measurements of some instances do not arrive, arrive late, or have a wrong time."""

    start: float
    end: float
    zone: int | None = None
    """The index of the zone; None means all zones."""
    instance: int | None = None
    """The index of the instance in its zone; None means all instances."""
    lost: float = 0.0
    """Share of the rows that never arrive. A row is one operation on one instance in one bin."""
    delay: float = 0.0
    """Seconds by which rows arrive later than usual."""
    skew: float = 0.0
    """Seconds by which the clock of the instances is ahead: a whole number of bins, negative if it is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A service, everything that happens to it, and the labels."""

    fleet: Fleet
    times: Times
    zones: tuple[Zone, ...]
    operations: tuple[Operation, ...]
    sides: tuple[Side, ...]
    """The side that measures each operation."""
    instances: tuple[tuple[str, ...], ...]
    """The instances of each zone; one without a name stands for all instances of its zone."""
    effects: tuple[Effect, ...] = ()
    labels: tuple[Label, ...] = ()
    """Empty if the service is healthy all the time."""
    states: tuple[StateSpan, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    """The announced deploys."""
    resources: tuple[SharedResource, ...] = ()
    telemetry: tuple[TelemetryFault, ...] = ()
    seconds: float = BIN_SECONDS
    """Length of a bin."""

    def get_states(self, at: float) -> dict[Zone, ZoneState]:
        """Return the zones that are not in at a time, with their states."""
        return {span.zone: span.state for span in self.states if span.start <= at < span.end}


def build_times(random: Generator, size: Size, *, hours: float = HOURS, incident: float = INCIDENT) -> Times:
    """Return the times of a scenario that takes `hours`, if the user does not choose."""
    length = 3600 * (hours if size.hours is None else size.hours)
    bins = math.floor(2 / 3 * length / BIN_SECONDS) - int(random.integers(0, 30))
    failure = START + bins * BIN_SECONDS
    return Times(START, failure, min(failure + incident, START + length), START + length)


def build_fleet(
    random: Generator,
    size: Size,
    *,
    operations: int = 1,
    requests: float = 600.0,
    traffic_spread: float = 0.0,
    base: float | None = 0.005,
    shares: Sequence[float] = (1 / 3, 1 / 3, 1 / 3),
    instances: int = 1,
    **changes: Any,
) -> Fleet:
    """Return a service with the usual noise. `changes` replace other fields of it.

    An operation has `requests` per minute in a zone on average, and a median that varies by `traffic_spread`, the
    standard deviation of its logarithm. `base` is the share of requests that fail; None draws one for each operation.
    """
    count = operations if size.operations is None else size.operations
    traffic = np.exp(random.normal(math.log(requests), traffic_spread, count))
    rates = np.exp(random.uniform(math.log(1e-5), math.log(5e-2), count)) if base is None else np.full(count, base)
    zones = len(shares)
    usual = Fleet(
        requests=traffic[:, None] * np.array(shares) * zones,
        fault_rates=rates[:, None] * np.exp(random.normal(0, 0.15, (count, zones))),
        latency=np.exp(random.normal(math.log(0.05), 0.5, count)),
        spread=np.full(count, 0.6),
        instances=instances if size.instances is None else size.instances,
        daily=0.3,
        cell_shape=3.0,
        clumped=0.2,
        common_noise=0.4,
        zone_noise=0.15,
        latency_common_noise=0.1,
        latency_zone_noise=0.03,
    )
    return replace(usual, **changes)


def build_scenario(fleet: Fleet, times: Times, **parts: Any) -> Scenario:
    """Return a scenario with the usual names. `parts` are other fields of it."""
    operations, count = fleet.requests.shape
    zones = tuple(Zone(f"use1-az{number}") for number in range(1, count + 1))
    names: Mapping[str, Any] = {
        "zones": zones,
        "operations": tuple(Operation("shop", f"operation{number:03}") for number in range(1, operations + 1)),
        "sides": (Side.SERVER,) * operations,
        "instances": tuple(
            tuple(name_instance(zone, each, fleet) for each in range(fleet.instances)) for zone in zones
        ),
    }
    return Scenario(fleet=fleet, times=times, **{**names, **parts})


def name_instance(zone: Zone, index: int, fleet: Fleet) -> str:
    """Return the name of an instance; "" if its zone has only one."""
    return f"{zone}-{index + 1:02}" if fleet.instances > 1 else ""


def in_zone(fleet: Fleet, zone: int, value: float, *, elsewhere: float = 0.0) -> Matrix:
    """Return `value` for all operations in one zone, and `elsewhere` in the other zones."""
    matrix = np.full(fleet.requests.shape, elsewhere)
    matrix[:, zone] = value
    return matrix


def choose_zone(random: Generator, fleet: Fleet) -> int:
    """Return the index of a zone."""
    return int(random.integers(fleet.requests.shape[1]))


def move_traffic(fleet: Fleet, zone: int) -> Matrix:
    """Return the factors of traffic when the other zones get that of one zone, each in proportion to its own."""
    rest = fleet.requests.sum(axis=1) - fleet.requests[:, zone]
    factors = np.repeat((1 + fleet.requests[:, zone] / rest)[:, None], fleet.requests.shape[1], axis=1)
    factors[:, zone] = 0.0
    return factors

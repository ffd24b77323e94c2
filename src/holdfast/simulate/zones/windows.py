"""Turn simulated bins into the windows that a detector gets, with faults of telemetry. Pure.

Windows are built from arrays, without a Bin for each series: a day of 200 operations takes seconds.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.simulate.zones.scenario import WORKLOAD, Scenario
from holdfast.simulate.zones.traffic import Matrix, SimulatedBin, TrafficSimulation
from holdfast.telemetry.block import Histograms
from holdfast.telemetry.collector import GRACE_SECONDS
from holdfast.telemetry.context import DEPLOYMENT_SECONDS, Deployment, SharedResource
from holdfast.telemetry.window import Cells, Window

TRANSPORT = 1.0
"""Seconds from the end of a bin until its measurements arrive, if telemetry works."""


class Arrival(NamedTuple):
    """What telemetry does to the measurements of one bin."""

    received: "NDArray[np.bool_]"
    """By operation, zone and instance; False means lost."""
    delay: Matrix
    """Seconds by which measurements arrive later than usual, by zone and instance."""
    skew: Matrix
    """Seconds by which the clocks are ahead, by zone and instance."""


@dataclass(frozen=True, slots=True)
class ReportedBin:
    """A bin, and how its measurements arrive."""

    measured: SimulatedBin
    arrival: Arrival | None
    """None means in time, complete and with the right times."""


def run_scenario(scenario: Scenario, random: Generator, *, has_latency: bool = True) -> Iterator[ReportedBin]:
    """Yield the bins of a scenario."""
    simulation = TrafficSimulation(scenario.fleet, random, scenario.effects, scenario.seconds, has_latency)
    for measured in simulation.run(scenario.times.start, scenario.times.end):
        yield ReportedBin(measured, _find_arrival(scenario, measured, random))


def _find_arrival(scenario: Scenario, measured: SimulatedBin, random: Generator) -> Arrival | None:
    faults = [fault for fault in scenario.telemetry if fault.start <= measured.start < fault.end]
    if not faults:
        return None
    shape = measured.requests.shape
    arrival = Arrival(np.ones(shape, np.bool_), np.zeros(shape[1:]), np.zeros(shape[1:]))
    for fault in faults:
        zone = slice(None) if fault.zone is None else slice(fault.zone, fault.zone + 1)
        instance = slice(None) if fault.instance is None else slice(fault.instance, fault.instance + 1)
        if fault.lost:
            received = arrival.received[:, zone, instance]
            received &= random.random(received.shape) >= fault.lost
        arrival.delay[zone, instance] += fault.delay
        arrival.skew[zone, instance] += fault.skew
    return arrival


def iterate_windows(scenario: Scenario, random: Generator, *, has_latency: bool = True) -> Iterator[Window]:
    """Yield the windows of a scenario, as the detection loop would build them: late measurements are missing."""
    ahead = max((fault.skew for fault in scenario.telemetry), default=0.0)
    recent: deque[ReportedBin] = deque(maxlen=1 + math.ceil(max(ahead, 0.0) / scenario.seconds))
    for reported in run_scenario(scenario, random, has_latency=has_latency):
        recent.append(reported)
        measured = reported.measured
        if len(recent) > 1 or reported.arrival is not None:
            measured = _collect(recent)
        yield to_window(
            measured,
            zones=scenario.zones,
            operations=scenario.operations,
            instances=scenario.instances,
            sides=scenario.sides,
            seconds=scenario.seconds,
            states=scenario.get_states(measured.start),
            deployments=_list_deployments(scenario, measured.start),
            resources=scenario.resources,
        )


def _list_deployments(scenario: Scenario, start: float) -> tuple[Deployment, ...]:
    """Return the deployments that the detection loop would show: also those of the last 15 minutes."""
    end = start + scenario.seconds
    return tuple(each for each in scenario.deployments if each.start < end and each.end > end - DEPLOYMENT_SECONDS)


def _collect(recent: Sequence[ReportedBin]) -> SimulatedBin:
    """Return the measurements dated to the latest bin that arrive before it is judged."""
    latest = recent[-1].measured
    shape, size = latest.requests.shape, latest.requests.size
    requests, faults = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    parts: list[Histograms] = []
    cells: list[NDArray[np.intp]] = []
    for reported in recent:
        measured = reported.measured
        age = latest.start - measured.start
        if reported.arrival is None:
            kept = np.full(shape, age == 0)
        else:
            arrival = reported.arrival
            is_dated = arrival.skew == age
            is_in_time = TRANSPORT + arrival.delay - age <= GRACE_SECONDS
            kept = arrival.received & is_dated & is_in_time
        if kept.any():
            requests += np.where(kept, measured.requests, 0)
            faults += np.where(kept, measured.faults, 0)
            cells.append(np.flatnonzero(kept))
            parts.append(measured.latencies.take(cells[-1]))
    empty = latest.latencies.take(np.zeros(0, np.intp))
    latencies = Histograms.merge([empty, *parts], np.concatenate([np.zeros(0, np.intp), *cells]), size)
    return SimulatedBin(latest.start, requests, faults, latencies)


def to_window(
    measured: SimulatedBin,
    *,
    zones: tuple[Zone, ...],
    operations: tuple[Operation, ...],
    instances: tuple[tuple[str, ...], ...],
    sides: Sequence[Side] | None = None,
    workload: str = WORKLOAD,
    seconds: float = 10.0,
    states: Mapping[Zone, ZoneState] | None = None,
    deployments: Sequence[Deployment] = (),
    resources: Sequence[SharedResource] = (),
) -> Window:
    """Return the window of one bin. `sides` says which side measures each operation: the server, if it is None."""
    return Window(
        workload=workload,
        start=measured.start,
        seconds=seconds,
        zones=zones,
        operations=operations,
        instances=instances,
        cells=_split_by_side(measured, sides),
        states={} if states is None else states,
        deployments=tuple(deployments),
        resources=tuple(resources),
    )


def _split_by_side(measured: SimulatedBin, sides: Sequence[Side] | None) -> dict[Side, Cells]:
    shape, size = measured.requests.shape, measured.requests.size
    none = np.zeros_like(measured.requests)
    no_latencies = measured.latencies.spread(np.zeros(0, np.intp), np.zeros(0, np.intp), size)
    found = [Side.SERVER] if sides is None else sorted(set(sides))
    if len(found) == 1:
        whole = Cells(measured.requests, measured.faults, none, measured.latencies, no_latencies)
        return {found[0]: whole}
    split = {}
    for side in found:
        is_measured = np.array([each is side for each in sides or ()])[:, None, None]
        cells = np.flatnonzero(np.broadcast_to(is_measured, shape))
        requests, faults = np.where(is_measured, measured.requests, 0), np.where(is_measured, measured.faults, 0)
        split[side] = Cells(requests, faults, none, measured.latencies.spread(cells, cells, size), no_latencies)
    return split

"""Failures of one zone, and how long it takes to find them: by the default detector, and by other methods.

The noise is that of a real service: fault rates fluctuate in each cell and bin (gamma, shape 3), a fifth of the faults
come three at a time, each operation fluctuates in all zones together (AR 0.9, sigma 0.4), each zone in all operations
together (AR 0.5, sigma 0.15), zones differ for ever (sigma 0.15), and traffic follows the day (50 %).

Every fleet is learned for 90 minutes, at any time of the day. Then it fails several times, each time from the same
state with other noise. A delay is the time from the start of the failure to the end of the bin with the right verdict,
so 10 s is the shortest delay that is possible.
"""

import copy
import math
import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks import _detect_peers as peers
from holdfast import Operation, Side, Zone
from holdfast._types import Verdict, VerdictKind
from holdfast.detect.detector import Detector, build_detector
from holdfast.simulate.zones.traffic import LOWEST_BUCKET, Effect, Fleet, SimulatedBin, TrafficSimulation
from holdfast.telemetry.block import Histograms
from holdfast.telemetry.window import Cells, Window

TUNING, PROOF = 1, 2
"""The first word of every seed. Tune the detector with TUNING alone; figures that are published come from PROOF."""
SECONDS = 10.0
WARM_UP, LEARNING = 5400.0, 1800.0
LIMIT = 1200.0
"""Seconds after which a failure that is not found counts as missed."""
DAY = 86_400.0
START = 1_700_006_400.0
"""A midnight."""
ZONES = tuple(Zone(f"use1-az{number}") for number in range(1, 9))
UNANNOUNCED, ANNOUNCED = "unannounced", "announced"

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A failure, and the delay in which it must be found."""

    name: str
    build_fleet: Callable[[Generator], Fleet]
    build_effects: Callable[[Generator, Fleet, int, float], list[Effect]]
    """From a generator, the fleet, the index of the failing zone and the start of the failure."""
    goals: Mapping[str, float] = field(default_factory=dict)
    """Median delay in seconds, for deploys that are announced or not."""
    wanted: VerdictKind = VerdictKind.ISOLATED
    limit: float = LIMIT
    has_instances: bool = False
    may_isolate: bool = True
    """Whether it is right to isolate the zone."""


@dataclass(slots=True)
class Outcome:
    """All runs of a scenario with one method."""

    delays: list[float] = field(default_factory=list)
    """Seconds; infinite where the failure was not found."""
    wrong: int = 0
    """Runs in which another zone was isolated, or a zone that must not be."""
    false: int = 0
    """Isolations before the failure."""
    calm_days: float = 0.0
    """Days without failure that `false` was counted in."""
    held_back: Counter[str] = field(default_factory=Counter)
    """Bins before the verdict, by signal and guard that held the best evidence back."""

    def add(self, other: "Outcome") -> None:
        self.delays += other.delays
        self.wrong += other.wrong
        self.false += other.false
        self.calm_days += other.calm_days
        self.held_back += other.held_back

    @property
    def median(self) -> float:
        return statistics.median(self.delays)

    @property
    def slow(self) -> float:
        """Return the 95th percentile."""
        return sorted(self.delays)[math.ceil(0.95 * len(self.delays)) - 1]

    @property
    def missed(self) -> int:
        return sum(not math.isfinite(each) for each in self.delays)


def build_fleet(
    random: Generator,
    requests: float | Array = 150.0,
    fault_rate: float | Array = 0.005,
    *,
    zones: int = 3,
    operations: int = 1,
    shares: Sequence[float] = (),
    spread: float | Array = 0.6,
    instances: int = 1,
    zone_noise: float = 0.15,
) -> Fleet:
    """Return a fleet with all noise. `requests` is per minute, for each operation in a zone with an even share."""
    share = np.array(shares) * zones if shares else np.ones(zones)
    return Fleet(
        requests=np.broadcast_to(requests, operations)[:, None] * share,
        fault_rates=np.broadcast_to(fault_rate, operations)[:, None]
        * np.exp(random.normal(0.0, 0.15, (operations, zones))),
        latency=np.exp(random.normal(math.log(0.05), 0.5, operations)),
        spread=np.broadcast_to(spread, operations).astype(np.float64),
        instances=instances,
        daily=0.5,
        cell_shape=3.0,
        clumped=0.2,
        common_noise=0.4,
        zone_noise=zone_noise,
        latency_common_noise=0.1,
        latency_zone_noise=0.03,
    )


def fill(fleet: Fleet, usual: float, value: float, zone: int | slice, operations: slice = slice(None)) -> Array:
    """Return an array by operation and zone: `value` in one zone, and `usual` elsewhere."""
    found = np.full(fleet.requests.shape, usual)
    found[operations, zone] = value
    return found


def _fail(added: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    return lambda _, fleet, zone, start: [
        Effect(start=start, end=start + DAY, added=fill(fleet, 0.0, added, zone)),
    ]


def _multiply(factor: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    return lambda _, fleet, zone, start: [
        Effect(start=start, end=start + DAY, factor=fill(fleet, 1.0, factor, zone)),
    ]


def _slow_down(factor: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    return lambda _, fleet, zone, start: [
        Effect(start=start, end=start + DAY, latency=fill(fleet, 1.0, factor, zone)),
    ]


def _fail_unevenly(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    added = fill(fleet, 0.0, 0.45, zone)
    added[:, (zone + 1) % added.shape[1]] = 0.02
    return [Effect(start=start, end=start + DAY, added=added)]


def _fail_in_bursts(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    return [Effect(start=start, end=start + DAY, added=fill(fleet, 0.0, 0.5, zone), period=180.0, burst=20.0)]


def _fail_one_instance(random: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    added = fill(fleet, 0.0, float(random.uniform(0.4, 1.0)), zone)
    bad = int(random.integers(fleet.instances))
    return [Effect(start=start, end=start + DAY, added=added, instance=bad)]


def _fall_silent(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    return [Effect(start=start, end=start + DAY, traffic=fill(fleet, 1.0, 0.0, zone))]


def _move_traffic(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    share = fleet.requests[0] / fleet.requests[0].sum()
    traffic = fill(fleet, 1 / (1 - share[zone]), 0.0, zone)
    return [Effect(start=start, end=start + DAY, traffic=traffic)]


def _stall(random: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    """Stall the telemetry of one zone for 30 to 50 s, again and again."""
    traffic = fill(fleet, 1.0, 0.0, zone)
    length = float(random.choice([30.0, 40.0, 50.0]))
    return [Effect(start=start, end=start + DAY, traffic=traffic, period=300.0, burst=length)]


def list_scenarios() -> list[Scenario]:
    """Return all scenarios, in the order of the table."""
    found = [
        Scenario(
            name=f"40 % fail, base {base:.2%}",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=base),
            build_effects=_fail(0.4),
            goals={UNANNOUNCED: goal},
        )
        for base, goal in ((0.0005, 20.0), (0.005, 20.0), (0.02, 30.0), (0.05, 50.0))
    ]
    found += [
        Scenario(
            name=f"40 % fail, {zones} zones",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005, zones=zones),
            build_effects=_fail(0.4),
            goals={UNANNOUNCED: 20.0},
        )
        for zones in (2, 6)
    ]
    found.append(
        Scenario(
            name="40 % fail, 10 operations",
            build_fleet=partial(build_fleet, requests=15.0, fault_rate=0.005, operations=10),
            build_effects=_fail(0.4),
            goals={UNANNOUNCED: 20.0},
        )
    )
    found += [
        Scenario(
            name=f"x4 to {rate} faults/min",
            build_fleet=partial(build_fleet, requests=rate / 4 / 0.005, fault_rate=0.005),
            build_effects=_multiply(4.0),
            goals={ANNOUNCED: goal, UNANNOUNCED: 540.0},
        )
        for rate, goal in ((12, 360.0), (24, 240.0), (48, 180.0))
    ]
    found += [
        Scenario(
            name=f"x2, 50 operations{suffix}",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005, operations=50, zone_noise=noise),
            build_effects=_multiply(2.0),
            goals={ANNOUNCED: goal},
        )
        for suffix, noise, goal in ((", no zone noise", 0.0, 300.0), ("", 0.15, 600.0))
    ]
    found += [
        Scenario(
            name=f"latency x2, sigma {spread}",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005, spread=spread),
            build_effects=_slow_down(2.0),
            goals={UNANNOUNCED: goal},
        )
        for spread, goal in ((0.6, 40.0), (1.0, 70.0))
    ]
    found += [
        Scenario(
            name="55/98/100 % available",
            build_fleet=partial(build_fleet, requests=200.0, fault_rate=0.0005),
            build_effects=_fail_unevenly,
            goals={UNANNOUNCED: 30.0},
        ),
        Scenario(
            name="bursts, 20 s in 3 min",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005),
            build_effects=_fail_in_bursts,
        ),
        Scenario(
            name="silent zone",
            build_fleet=partial(build_fleet, requests=30.0, fault_rate=0.005),
            build_effects=_fall_silent,
            goals={UNANNOUNCED: 30.0},
            wanted=VerdictKind.UNKNOWN,
            limit=300.0,
            may_isolate=False,
        ),
        Scenario(
            name="silent, traffic moves",
            build_fleet=partial(build_fleet, requests=30.0, fault_rate=0.005),
            build_effects=_move_traffic,
            goals={UNANNOUNCED: 40.0},
            limit=300.0,
        ),
        Scenario(
            name="telemetry stalls",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005, operations=2),
            build_effects=_stall,
            wanted=VerdictKind.UNKNOWN,
            limit=900.0,
            may_isolate=False,
        ),
    ]
    found += [
        Scenario(
            name=f"1 of {instances} instances bad",
            build_fleet=partial(build_fleet, requests=600.0, fault_rate=0.005, instances=instances),
            build_effects=_fail_one_instance,
            wanted=VerdictKind.INSTANCE,
            limit=900.0,
            has_instances=True,
            may_isolate=False,
        )
        for instances in (2, 3, 6, 10)
    ]
    return found


class Arranger:
    """Turns simulated bins into windows."""

    def __init__(self, fleet: Fleet) -> None:
        operations, zones = fleet.requests.shape
        self._zones = ZONES[:zones]
        self._operations = tuple(Operation("Shop", f"Operation{number:03}") for number in range(operations))
        self._instances = tuple(
            tuple(f"i-{zone}-{number:03}" for number in range(fleet.instances)) if fleet.instances > 1 else ("",)
            for zone in range(zones)
        )

    def arrange(self, measured: SimulatedBin) -> Window:
        size = measured.requests.size
        flat = measured.latencies.reshape(size, -1)
        cells, buckets = np.nonzero(flat)
        offsets = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(cells, minlength=size), out=offsets[1:])
        zero, none, unused = np.zeros(size, np.int64), np.zeros(0, np.int64), np.zeros(size)
        latencies = Histograms(offsets, buckets + LOWEST_BUCKET, flat[cells, buckets], zero, unused, unused, unused)
        empty = Histograms(np.zeros(size + 1, np.int64), none, none, zero, unused, unused, unused)
        side = Cells(measured.requests, measured.faults, np.zeros_like(measured.requests), latencies, empty)
        return Window(
            workload="shop",
            start=measured.start,
            seconds=SECONDS,
            zones=self._zones,
            operations=self._operations,
            instances=self._instances,
            cells={Side.SERVER: side},
        )


def build_detectors() -> dict[str, Detector[Any]]:
    """Return the default detector, for deploys that are announced and for those that are not."""
    return {
        UNANNOUNCED: build_detector("calibrated", {}),
        ANNOUNCED: build_detector("calibrated", {"deploys_are_announced": True}),
    }


def seed_random(split: int, *words: str | int) -> Generator:
    """Return a generator for one use. TUNING and PROOF never share one."""
    numbers = [zlib.crc32(word.encode()) if isinstance(word, str) else word for word in words]
    return np.random.default_rng([split, *numbers])


def run_fleet(scenario: Scenario, number: int, failures: int, split: int = PROOF) -> dict[str, Outcome]:
    """Learn one fleet, let it fail several times, and return the outcome by method."""
    random = seed_random(split, scenario.name, number)
    fleet = scenario.build_fleet(random)
    arranger = Arranger(fleet)
    origin = START + 600.0 * int(random.integers(144))  # any time of the day
    # The failure has the traffic that the scenario names, whatever the time of the day.
    level = 1 + fleet.daily * math.sin(2 * math.pi * (origin + WARM_UP) / DAY)
    fleet = replace(fleet, requests=fleet.requests / level)
    simulation = TrafficSimulation(fleet, random)
    from holdfast.detect.calibration import CalibratedState

    detectors = {name: each for name, each in build_detectors().items() if name in (UNANNOUNCED, *scenario.goals)}
    states: dict[str, Any] = {name: CalibratedState() for name in detectors}
    outcomes = {name: Outcome(calm_days=(WARM_UP - LEARNING) / DAY) for name in (*detectors, *peers.METHODS)}
    learned: list[SimulatedBin] = []
    isolated = dict.fromkeys(detectors, "")
    for measured in simulation.run(origin, origin + WARM_UP):
        window = arranger.arrange(measured)
        learned.append(_without_latencies(measured))
        for name, detector in detectors.items():
            states[name], verdict = detector.step(states[name], window)
            now_isolated = verdict.id if verdict.kind is VerdictKind.ISOLATED else ""
            outcomes[name].false += bool(now_isolated and now_isolated != isolated[name])
            isolated[name] = now_isolated
    for failure in range(failures):
        own = seed_random(split, scenario.name, number, failure)
        failing = copy.copy(simulation)
        failing.random = own
        start = origin + WARM_UP
        zone = int(own.integers(fleet.requests.shape[1]))
        failing.effects = scenario.build_effects(own, fleet, zone, start)
        found = _run_failure(scenario, failing, arranger, detectors, states, start, zone, outcomes)
        if scenario.wanted is VerdictKind.ISOLATED:
            _run_peers(learned, found, zone, outcomes, count_false=failure == 0)
    return outcomes


def _run_failure(
    scenario: Scenario,
    simulation: TrafficSimulation,
    arranger: Arranger,
    detectors: Mapping[str, Detector[Any]],
    states: Mapping[str, Any],
    start: float,
    zone: int,
    outcomes: Mapping[str, Outcome],
) -> list[SimulatedBin]:
    current = dict(states)
    waiting = set(detectors)
    delays = dict.fromkeys(waiting, math.inf)
    bins = []
    for measured in simulation.run(start, start + scenario.limit):
        bins.append(_without_latencies(measured))
        window = arranger.arrange(measured)
        for name in sorted(waiting):
            current[name], verdict = detectors[name].step(current[name], window)
            delay = window.end - start
            is_isolated = verdict.kind is VerdictKind.ISOLATED
            if is_isolated and (not scenario.may_isolate or verdict.zone != ZONES[zone]):
                outcomes[name].wrong += 1
                waiting.discard(name)
            elif verdict.kind is scenario.wanted and verdict.zone == ZONES[zone]:
                delays[name] = min(delays[name], delay)
                if scenario.may_isolate:  # else go on, and see that it is not isolated later
                    waiting.discard(name)
            if not math.isfinite(delays[name]):
                outcomes[name].held_back[_explain(verdict, ZONES[zone])] += 1
    for name, delay in delays.items():
        outcomes[name].delays.append(delay)
    return bins


def _explain(verdict: Verdict, zone: Zone) -> str:
    """Return the signal that is nearest to a verdict, and the guard that holds it back."""
    found = [
        (each["evidence"] / each["needed"], f"{signal}: {each['held_back']}")
        for signal, each in dict(verdict.evidence.get(zone, {})).items()
        if isinstance(each, dict) and each.get("needed")
    ]
    return max(found, default=(0.0, "no evidence"))[1]


def _run_peers(
    learned: Sequence[SimulatedBin],
    failing: Sequence[SimulatedBin],
    zone: int,
    outcomes: Mapping[str, Outcome],
    *,
    count_false: bool,
) -> None:
    first, calm = len(learned), round(LEARNING / SECONDS)
    requests = np.stack([each.requests.sum(axis=2) for each in (*learned, *failing)])
    faults = np.stack([each.faults.sum(axis=2) for each in (*learned, *failing)])
    for name, method in peers.METHODS.items():
        zones = method(requests, faults)
        outcome = outcomes[name]
        if count_false:
            outcome.false += peers.count_alarms(zones[calm:first])
        hits = np.flatnonzero(zones[first:] >= 0)
        wrong = np.flatnonzero((zones[first:] >= 0) & (zones[first:] != zone))
        right = np.flatnonzero(zones[first:] == zone)
        outcome.delays.append(float(right[0] + 1) * SECONDS if len(right) else math.inf)
        outcome.wrong += bool(len(wrong) and wrong[0] == hits[0])


def _without_latencies(measured: SimulatedBin) -> SimulatedBin:
    return replace(measured, latencies=np.zeros(0, np.int64))

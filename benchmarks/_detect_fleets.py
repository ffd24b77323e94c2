"""Services whose zones are simulated to measure detection: their noise, their seeds, and events that hit all zones.

The noise is that of a real service: fault rates fluctuate in each cell and bin (gamma, shape 3), a fifth of the faults
come three at a time, each operation fluctuates in all zones together (AR 0.9, sigma 0.4), each zone in all operations
together (AR 0.5, sigma 0.15), zones differ for ever (sigma 0.15), and traffic follows the day (50 %).
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import Operation, Side, Zone
from holdfast.detect.detector import DETECTORS, Detector, build_detector
from holdfast.simulate.zones.traffic import Effect, Fleet, SimulatedBin
from holdfast.simulate.zones.windows import to_window
from holdfast.telemetry.window import Window

TUNING, PROOF = 1, 2
"""The first word of every seed. Tune the detector with TUNING alone; figures that are published come from PROOF."""
SECONDS = 10.0
WARM_UP, LEARNING = 5400.0, 1800.0
"""Seconds for which a fleet is learned before anything happens, and those in which the detector gives no verdict."""
DAY = 86_400.0
START = 1_700_006_400.0
"""A midnight."""
ZONES = tuple(Zone(f"use1-az{number}") for number in range(1, 9))
UNANNOUNCED, ANNOUNCED = "unannounced", "announced"
LARGE = 200
"""Operations of a large service."""
SHARES = ((1 / 3, 1 / 3, 1 / 3), (0.5, 0.3, 0.2), (0.7, 0.2, 0.1))

Array = NDArray[np.float64]


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
    traffic_noise: float = 0.0,
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
        traffic_noise=traffic_noise,
        latency_common_noise=0.1,
        latency_zone_noise=0.03,
    )


def fill(fleet: Fleet, usual: float, value: float, zone: int | slice, operations: slice = slice(None)) -> Array:
    """Return an array by operation and zone: `value` in one zone, and `usual` elsewhere."""
    found = np.full(fleet.requests.shape, usual)
    found[operations, zone] = value
    return found


def build_large_fleet(random: Generator, shares: Sequence[float]) -> Fleet:
    """Return a fleet with operations of all sizes and fault rates."""
    return build_fleet(
        random,
        np.exp(random.normal(math.log(60.0), 1.3, LARGE)),
        np.exp(random.uniform(math.log(1e-5), math.log(5e-2), LARGE)),
        operations=LARGE,
        shares=shares,
        spread=random.uniform(0.4, 1.0, LARGE),
    )


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that is not a failure of one zone, with the time that it takes."""

    kind: str
    start: float
    end: float


def deploy(random: Generator, fleet: Fleet, start: float, effects: list[Effect]) -> Happening:
    """Deploy to one zone after the other."""
    operations, zones = fleet.requests.shape
    touched = random.random((operations, 1)) < random.uniform(0.3, 1.0)
    added, slower = random.uniform(0.002, 0.05), random.uniform(1.05, 1.6)
    at = start
    for zone in random.permutation(zones).tolist():
        end = at + random.uniform(60.0, 180.0)
        here = touched & (np.arange(zones) == zone)
        effects.append(Effect(start=at, end=end, added=np.where(here, added, 0.0), latency=np.where(here, slower, 1.0)))
        at = end
    return Happening("deploy", start, at)


def break_all_zones(random: Generator, fleet: Fleet, start: float, effects: list[Effect]) -> Happening:
    """Break all operations (regional) or some of them (shared) in all zones, unevenly."""
    operations, zones = fleet.requests.shape
    kind = "regional" if random.random() < 0.5 else "shared"
    share = 1.0 if kind == "regional" else random.uniform(0.05, 0.4)
    touched = random.random(operations) < share
    severity = np.exp(random.uniform(math.log(0.01), math.log(0.6)) + random.normal(0.0, 0.25, zones))
    end = start + random.uniform(120.0, 1800.0)
    for zone in range(zones):
        added = np.zeros(fleet.requests.shape)
        added[touched, zone] = min(float(severity[zone]), 1.0)
        effects.append(Effect(start=start + 10.0 * random.integers(2), end=end, added=added))
    return Happening(kind, start, end)


def stall_telemetry(random: Generator, fleet: Fleet, start: float, effects: list[Effect]) -> Happening:
    """Lose the telemetry of one zone, or of all, for some bins."""
    zones = fleet.requests.shape[1]
    stalled = int(random.integers(zones)) if random.random() < 2 / 3 else slice(None)
    end = start + float(random.choice([30.0, 40.0, 50.0]))
    effects.append(Effect(start=start, end=end, traffic=fill(fleet, 1.0, 0.0, stalled)))
    return Happening("stall", start, end)


class Arranger:
    """Turns simulated bins into windows."""

    def __init__(self, fleet: Fleet, sides: Sequence[Side] | None = None) -> None:
        self._sides = sides
        operations, zones = fleet.requests.shape
        self._zones = ZONES[:zones]
        self._operations = tuple(Operation("Shop", f"Operation{number:03}") for number in range(operations))
        self._instances = tuple(
            tuple(f"i-{zone}-{number:03}" for number in range(fleet.instances)) if fleet.instances > 1 else ("",)
            for zone in range(zones)
        )

    def arrange(self, measured: SimulatedBin) -> Window:
        return to_window(
            measured,
            zones=self._zones,
            operations=self._operations,
            instances=self._instances,
            sides=self._sides,
            seconds=SECONDS,
        )


def build_detectors() -> dict[str, Detector[Any]]:
    """Return the default detector, for deploys that are announced and for those that are not."""
    return {
        UNANNOUNCED: build_detector("calibrated", {}),
        ANNOUNCED: build_detector("calibrated", {"deploys_are_announced": True}),
    }


def build_state() -> Any:
    """Return the state of the default detector before its first window."""
    return DETECTORS.get("calibrated").state_type()


def seed_random(split: int, *words: str | int) -> Generator:
    """Return a generator for one use. TUNING and PROOF never share one."""
    numbers = [zlib.crc32(word.encode()) if isinstance(word, str) else word for word in words]
    return np.random.default_rng([split, len(numbers), *numbers])  # without the length, a last 0 would not count

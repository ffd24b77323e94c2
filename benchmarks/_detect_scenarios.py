"""Failures of one zone, and events that must not isolate one: the scenarios in which delays are measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.random import Generator

from benchmarks._detect_fleets import (
    ANNOUNCED,
    DAY,
    SHARES,
    UNANNOUNCED,
    break_all_zones,
    build_fleet,
    build_large_fleet,
    deploy,
    fill,
)
from holdfast._types import Side, VerdictKind
from holdfast.simulate.zones.traffic import Effect, Fleet

LIMIT = 1200.0
"""Seconds after which a failure that is not found counts as missed."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A failure, and the delay in which it must be found."""

    name: str
    build_fleet: Callable[[Generator], Fleet]
    build_effects: Callable[[Generator, Fleet, int, float], list[Effect]]
    """From a generator, the fleet, the index of the failing zone and the start of the failure."""
    goals: Mapping[str, float] = field(default_factory=dict)
    """Median delay in seconds, for deploys that are announced or not."""
    wanted: VerdictKind | None = VerdictKind.ISOLATED
    """The right verdict; None if there is nothing to find."""
    limit: float = LIMIT
    may_isolate: bool = True
    """Whether it is right to isolate the zone."""
    sides: Sequence[Side] | None = None
    """The side that measures each operation; None means the service itself."""
    is_large: bool = False
    """Whether it has so many operations that fewer fleets must do."""


def _fail(added: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    return lambda _, fleet, zone, start: [
        Effect(start=start, end=start + DAY, added=fill(fleet, 0.0, added, zone)),
    ]


def _multiply(factor: float, operations: slice = slice(None)) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    return lambda _, fleet, zone, start: [
        Effect(start=start, end=start + DAY, factor=fill(fleet, 1.0, factor, zone, operations)),
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


def _fall_silent_to_canaries(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    """Lose all requests of the first operation, and fail those of the second, which canaries send."""
    traffic, added = fill(fleet, 1.0, 0.0, zone, slice(1)), fill(fleet, 0.0, 1.0, zone, slice(1, 2))
    return [Effect(start=start, end=start + DAY, traffic=traffic, added=added)]


def _stall(random: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    """Stall the telemetry of one zone for 30 to 50 s, again and again."""
    traffic = fill(fleet, 1.0, 0.0, zone)
    length = float(random.choice([30.0, 40.0, 50.0]))
    return [Effect(start=start, end=start + DAY, traffic=traffic, period=300.0, burst=length)]


def _fail_two_zones(_: Generator, fleet: Fleet, zone: int, start: float) -> list[Effect]:
    added = fill(fleet, 0.3, 0.0, zone)
    return [Effect(start=start, end=start + DAY, added=added)]


def _change_traffic(factor: float, period: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    """Change the traffic of all zones: for good, or in every other half of a period."""
    return lambda _, __, ___, start: [
        Effect(start=start, end=start + DAY, traffic=factor, period=period, burst=period / 2),
    ]


def _build_calm_fleet(faults: float, random: Generator) -> Fleet:
    """Return a service with few faults, which hardly fluctuate."""
    fleet = build_fleet(random, 600.0, faults / 4 / 600.0, operations=4, zone_noise=0.0)
    return replace(fleet, common_noise=0.0, cell_shape=math.inf, clumped=0.0)


def _multiply_everywhere(factor: float) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    """Raise the faults of all zones, unevenly."""

    def build(random: Generator, fleet: Fleet, _: int, start: float) -> list[Effect]:
        uneven = np.exp(random.normal(0.0, 0.15, fleet.requests.shape[1]))
        return [Effect(start=start, end=start + DAY, factor=np.broadcast_to(factor * uneven, fleet.requests.shape))]

    return build


def _happen(
    event: Callable[[Generator, Fleet, float, list[Effect]], object],
) -> Callable[[Generator, Fleet, int, float], list[Effect]]:
    def build(random: Generator, fleet: Fleet, _: int, start: float) -> list[Effect]:
        effects: list[Effect] = []
        event(random, fleet, start, effects)
        return effects

    return build


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
    found.append(
        Scenario(
            name="x4 in 1 of 20 operations, 48 faults/min",
            build_fleet=partial(build_fleet, requests=2400.0, fault_rate=0.005, operations=20),
            build_effects=_multiply(4.0, slice(1)),
        )
    )
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
            name="silent, canaries fail",
            build_fleet=partial(build_fleet, requests=np.array([30.0, 12.0]), fault_rate=0.005, operations=2),
            build_effects=_fall_silent_to_canaries,
            goals={UNANNOUNCED: 40.0},
            limit=300.0,
            sides=(Side.SERVER, Side.CANARY),
        ),
    ]
    found += [
        Scenario(
            name=f"silent, traffic of {requests:.0f}/min moves",
            build_fleet=partial(build_fleet, requests=requests, fault_rate=0.005),
            build_effects=_move_traffic,
            # In 40 s, 30 requests/min are too few to tell a rise by half from chance, six times a day.
            goals={UNANNOUNCED: 40.0} if requests > 30 else {},
            limit=300.0,
        )
        for requests in (30.0, 90.0)
    ]
    found += [
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
            may_isolate=False,
        )
        for instances in (2, 3, 6, 10)
    ]
    found += [
        Scenario(
            name=f"traffic of all zones {text}",
            build_fleet=partial(
                build_fleet, requests=1200.0, fault_rate=0.005, shares=(0.6, 0.2, 0.2), traffic_noise=noise
            ),
            build_effects=_change_traffic(factor, period),
            wanted=None,
            may_isolate=False,
        )
        for text, noise, factor, period in (
            ("falls to 6 %", 0.5, 0.06, 0.0),
            ("rises tenfold, again and again", 0.0, 10.0, 600.0),
        )
    ]
    found += [
        Scenario(
            name=f"calm service, x{factor:.0f} in all zones, {rate:g} faults/min",
            build_fleet=partial(_build_calm_fleet, rate),
            build_effects=_multiply_everywhere(factor),
            wanted=None,
            may_isolate=False,
        )
        for factor in (2.0, 3.0)
        for rate in (2.0, 12.0)
    ]
    found.append(
        Scenario(
            name="two of three zones, 30 % fail",
            build_fleet=partial(build_fleet, requests=150.0, fault_rate=0.005),
            build_effects=_fail_two_zones,
            wanted=VerdictKind.REGIONAL,
            may_isolate=False,
        )
    )
    for event, wanted, limit in ((break_all_zones, VerdictKind.REGIONAL, 2700.0), (deploy, None, 1200.0)):
        found += [
            Scenario(
                name=f"{'deploy' if event is deploy else 'regional or shared'}, {names}",
                build_fleet=partial(build_large_fleet, shares=shares),
                build_effects=_happen(event),
                wanted=wanted,
                limit=limit,
                may_isolate=False,
                is_large=True,
            )
            for names, shares in zip(("even traffic", "50/30/20", "70/20/10"), SHARES, strict=True)
        ]
    return found

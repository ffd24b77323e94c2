"""Scenarios in which no zone fails, though something happens that may look like it. Pure."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from holdfast._types import VerdictKind, ZoneState
from holdfast.simulate.zones.scenario import (
    Label,
    Scenario,
    Size,
    StateSpan,
    TelemetryFault,
    build_fleet,
    build_scenario,
    build_times,
    choose_zone,
    move_traffic,
)
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry.bins import BIN_SECONDS
from holdfast.telemetry.context import Deployment

DEPLOY_EVERY = 1800.0
"""Seconds from one deploy to the next: often enough to have three in a scenario of two hours."""


def healthy_day(random: Generator, size: Size) -> Scenario:
    """Run for a day without a failure."""
    fleet = build_fleet(random, size, operations=20, requests=60, traffic_spread=1.3, base=None, daily=0.5)
    return build_scenario(fleet, build_times(random, size, hours=24))


def overdispersion(random: Generator, size: Size) -> Scenario:
    """Let faults fluctuate more than usual: in each operation, in clumps, and in whole zones."""
    fleet = build_fleet(
        random, size, operations=20, requests=150, cell_shape=1.0, clumped=0.5, common_noise=0.6, zone_noise=0.25
    )
    return build_scenario(fleet, build_times(random, size))


def zone_drained(random: Generator, size: Size) -> Scenario:
    """Take one zone out and bring it back. The others get its traffic meanwhile."""
    fleet, times = build_fleet(random, size, operations=10, requests=150), build_times(random, size)
    zone = choose_zone(random, fleet)
    effect = Effect(start=times.failure + 60, end=times.recovery, traffic=move_traffic(fleet, zone))
    scenario = build_scenario(fleet, times, effects=(effect,))
    name = scenario.zones[zone]
    states = (
        StateSpan(times.failure, times.failure + 60, name, ZoneState.DRAINING),
        StateSpan(times.failure + 60, times.recovery, name, ZoneState.OUT),
    )
    return replace(scenario, states=states)


def autoscaling(random: Generator, size: Size) -> Scenario:
    """Raise and lower the traffic in steps. Zones start and stop instances at different times."""
    fleet = build_fleet(random, size, operations=10, requests=150, instances=6)
    times = build_times(random, size)
    zones = fleet.requests.shape[1]
    effects, at = [], times.start
    while at < times.end:
        end = at + BIN_SECONDS * int(random.integers(30, 180))
        level = random.uniform(0.6, 1.5) * np.exp(random.normal(0, 0.05, zones))
        wanted = np.rint(fleet.instances * level / 1.5).astype(np.int64)
        running = np.clip(wanted + random.integers(-1, 2, zones), 1, fleet.instances)
        effects.append(Effect(start=at, end=end, traffic=level, running=running))
        at = end
    return build_scenario(fleet, times, effects=tuple(effects))


def deploys_announced(random: Generator, size: Size) -> Scenario:
    """Roll announced deploys through the zones. Each adds some faults and slows requests down."""
    return _deploy(random, size, is_announced=True)


def deploys_unannounced(random: Generator, size: Size) -> Scenario:
    """Roll deploys through the zones that nobody announces. Each adds some faults and slows requests down."""
    return _deploy(random, size, is_announced=False)


def _deploy(random: Generator, size: Size, *, is_announced: bool) -> Scenario:
    fleet, times = build_fleet(random, size, operations=20, requests=60), build_times(random, size)
    scenario = build_scenario(fleet, times)
    effects: list[Effect] = []
    deployments: list[Deployment] = []
    at = times.start + DEPLOY_EVERY + BIN_SECONDS * int(random.integers(60))
    while at < times.end:
        affected = random.random(len(fleet.requests)) < random.uniform(0.3, 1)
        begin = at
        for zone in random.permutation(len(scenario.zones)).tolist():
            end = begin + BIN_SECONDS * int(random.integers(6, 19))
            added, latency = np.zeros(fleet.requests.shape), np.ones(fleet.requests.shape)
            added[affected, zone], latency[affected, zone] = random.uniform(0.002, 0.05), random.uniform(1.05, 1.6)
            effects.append(Effect(start=begin, end=end, added=added, latency=latency))
            deployments.append(Deployment(scenario.zones[zone], begin, end))
            begin = end
        at += DEPLOY_EVERY
    return replace(scenario, effects=tuple(effects), deployments=tuple(deployments) if is_announced else ())


def lost_telemetry(random: Generator, size: Size) -> Scenario:
    """Lose a third of the measurements of one zone."""
    fleet, times = build_fleet(random, size, operations=10, requests=150), build_times(random, size)
    fault = TelemetryFault(start=times.failure, end=times.recovery, zone=choose_zone(random, fleet), lost=1 / 3)
    return build_scenario(fleet, times, telemetry=(fault,))


def delayed_telemetry(random: Generator, size: Size) -> Scenario:
    """Delay the measurements of one zone by 30 s. They arrive after their bins have been judged."""
    return _hold_back(random, size, TelemetryFault(start=0, end=0, delay=30.0), seconds=300)


def telemetry_stall(random: Generator, size: Size) -> Scenario:
    """Stop the telemetry of one zone for 40 s."""
    return _hold_back(random, size, TelemetryFault(start=0, end=0, lost=1.0), seconds=40)


def _hold_back(random: Generator, size: Size, fault: TelemetryFault, seconds: float) -> Scenario:
    """Return a scenario in which a zone is not visible for some seconds. No verdict but "unknown" is right then."""
    fleet, times = build_fleet(random, size, operations=10, requests=150), build_times(random, size, incident=seconds)
    zone = choose_zone(random, fleet)
    scenario = build_scenario(fleet, times)
    label = Label(start=times.failure, end=times.recovery, kind=VerdictKind.UNKNOWN, zone=scenario.zones[zone])
    hidden = replace(fault, start=times.failure, end=times.recovery, zone=zone)
    return replace(scenario, telemetry=(hidden,), labels=(label,))

"""Scenarios in which one zone fails, also while another is out, or reports nothing. Pure."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from holdfast._types import VerdictKind, ZoneState
from holdfast.simulate.zones.scenario import (
    Label,
    Scenario,
    Size,
    StateSpan,
    TelemetryFault,
    Times,
    build_fleet,
    build_scenario,
    build_times,
    choose_zone,
    in_zone,
    move_traffic,
)
from holdfast.simulate.zones.traffic import Effect, Fleet


def _fail_zone(fleet: Fleet, times: Times, zone: int, **changes: Any) -> Scenario:
    """Return a scenario in which a zone fails. `changes` are fields of the effect."""
    effect = Effect(start=times.failure, end=times.recovery, **changes)
    return _label(build_scenario(fleet, times, effects=(effect,)), VerdictKind.ISOLATED, zone)


def _label(scenario: Scenario, kind: VerdictKind, zone: int | None = None) -> Scenario:
    name = None if zone is None else scenario.zones[zone]
    times = scenario.times
    return replace(scenario, labels=(Label(start=times.failure, end=times.recovery, kind=kind, zone=name),))


def _raise_faults(random: Generator, size: Size, base: float, to: float, **changes: Any) -> Scenario:
    """Return a scenario in which the fault rate of one zone rises. `changes` are arguments of `build_fleet`."""
    fleet = build_fleet(random, size, base=base, **changes)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size), zone, added=in_zone(fleet, zone, to - base))


def zone_fails(random: Generator, size: Size) -> Scenario:
    """Fail 40 % of the requests to one zone."""
    return _raise_faults(random, size, 0.005, 0.4, operations=10, requests=150)


def availability_55_98_100(random: Generator, size: Size) -> Scenario:
    """Lower the availability of the zones to 55, 98 and 100 %."""
    fleet = build_fleet(random, size, base=0.001)
    return _fail_zone(fleet, build_times(random, size), 0, added=np.array([0.45, 0.02, 0.0]))


def availability_98_100_9999(random: Generator, size: Size) -> Scenario:
    """Lower the availability of the first zone to 98 %. That of the others is 100 and 99.99 %."""
    fleet = build_fleet(random, size, base=0.0001)
    return _fail_zone(fleet, build_times(random, size), 0, added=np.array([0.02, 0.0, 0.0]))


def small_rise(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of one zone from 0.5 to 2 %."""
    return _raise_faults(random, size, 0.005, 0.02)


def rise_at_high_traffic(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of one zone from 0.1 to 0.7 %, with 3000 requests per minute in each zone."""
    return _raise_faults(random, size, 0.001, 0.007, requests=3000)


def noisy_rise(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of one zone from 5 to 12 %."""
    return _raise_faults(random, size, 0.05, 0.12)


def low_traffic(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of one zone from 0.5 to 2 %. Each of 20 operations has 60 requests per minute in a zone."""
    return _raise_faults(random, size, 0.005, 0.02, operations=20, requests=60)


def small_zone_fails(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of the smallest zone from 0.5 to 3 %. The zones get 70, 20 and 10 % of the traffic."""
    fleet = build_fleet(random, size, shares=(0.7, 0.2, 0.1))
    return _fail_zone(fleet, build_times(random, size), 2, added=in_zone(fleet, 2, 0.025))


def bursts(random: Generator, size: Size) -> Scenario:
    """Fail 40 % of the requests to one zone, for 20 seconds in every 3 minutes."""
    fleet = build_fleet(random, size)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size), zone, added=in_zone(fleet, zone, 0.4), period=180, burst=20)


def slow_drift(random: Generator, size: Size) -> Scenario:
    """Raise the fault rate of one zone slowly, from 0.5 to 5 % in 20 minutes."""
    fleet = build_fleet(random, size, operations=10, requests=150)
    zone = choose_zone(random, fleet)
    times = build_times(random, size, incident=2400)
    return _fail_zone(fleet, times, zone, added=in_zone(fleet, zone, 0.045), ramp=1200)


def daily_cycle(random: Generator, size: Size) -> Scenario:
    """Fail 40 % of the requests to one zone, on a day on which the traffic varies from 30 to 170 %."""
    fleet = build_fleet(random, size, operations=10, requests=150, daily=0.7)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size, hours=24), zone, added=in_zone(fleet, zone, 0.4))


def latency_only(random: Generator, size: Size) -> Scenario:
    """Let requests to one zone take twice as long. They do not fail more often."""
    fleet = build_fleet(random, size, operations=5, requests=150)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size), zone, latency=in_zone(fleet, zone, 2.0, elsewhere=1.0))


def throughput_drop(random: Generator, size: Size) -> Scenario:
    """Take 90 % of its traffic from one zone. The others do not get it."""
    fleet = build_fleet(random, size, operations=10, requests=300)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size), zone, traffic=in_zone(fleet, zone, 0.1, elsewhere=1.0))


def client_retries(random: Generator, size: Size) -> Scenario:
    """Fail 30 % of the requests to one zone. Clients try them again in the other zones."""
    fleet = build_fleet(random, size, operations=10, requests=150)
    zone = choose_zone(random, fleet)
    moved = 1 + 0.3 * (move_traffic(fleet, zone) - 1)
    moved[:, zone] = 1.0
    return _fail_zone(fleet, build_times(random, size), zone, added=in_zone(fleet, zone, 0.3), traffic=moved)


def clock_skew(random: Generator, size: Size) -> Scenario:
    """Fail 40 % of the requests to one zone. Some instances have clocks that are 20 s ahead, or 20 s behind."""
    fleet = build_fleet(random, size, operations=5, requests=300, instances=6)
    zone, times = choose_zone(random, fleet), build_times(random, size)
    telemetry = (
        TelemetryFault(start=times.start, end=times.end, instance=0, skew=20.0),
        TelemetryFault(start=times.start, end=times.end, zone=zone, instance=fleet.instances - 1, skew=-20.0),
    )
    return replace(_fail_zone(fleet, times, zone, added=in_zone(fleet, zone, 0.4)), telemetry=telemetry)


def silent_zone(random: Generator, size: Size) -> Scenario:
    """Stop the telemetry of one zone. The traffic of the others stays, so the zone may be healthy."""
    fleet, times = build_fleet(random, size, operations=10, requests=60), build_times(random, size)
    zone = choose_zone(random, fleet)
    fault = TelemetryFault(start=times.failure, end=times.recovery, zone=zone, lost=1.0)
    return _label(build_scenario(fleet, times, telemetry=(fault,)), VerdictKind.UNKNOWN, zone)


def silent_zone_confirmed(random: Generator, size: Size) -> Scenario:
    """Stop the requests to one zone. The others get them, so the zone has failed."""
    fleet = build_fleet(random, size, operations=10, requests=60)
    zone = choose_zone(random, fleet)
    return _fail_zone(fleet, build_times(random, size), zone, traffic=move_traffic(fleet, zone))


def second_zone_fails(random: Generator, size: Size) -> Scenario:
    """Fail 40 % of the requests to one zone while another is out."""
    fleet, times = build_fleet(random, size, operations=10, requests=150), build_times(random, size)
    out, zone = (int(each) for each in random.permutation(fleet.requests.shape[1])[:2])
    taken_out = times.failure - 600
    effects = (
        Effect(start=taken_out, end=times.end, traffic=move_traffic(fleet, out)),
        Effect(start=times.failure, end=times.recovery, added=in_zone(fleet, zone, 0.4)),
    )
    scenario = _label(build_scenario(fleet, times, effects=effects), VerdictKind.REGIONAL)
    return replace(scenario, states=(StateSpan(taken_out, times.end, scenario.zones[out], ZoneState.OUT),))

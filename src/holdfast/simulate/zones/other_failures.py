"""Scenarios in which something else than one zone fails: an instance, a shared resource, or all zones. Pure."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from holdfast._types import Operation, Side, VerdictKind
from holdfast.simulate.zones.scenario import (
    Label,
    Scenario,
    Size,
    build_fleet,
    build_scenario,
    build_times,
    choose_zone,
    in_zone,
)
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry.context import SharedResource

WRITER = "orders-database"


def one_instance(random: Generator, size: Size) -> Scenario:
    """Fail half of the requests to one instance. The others of its zone are healthy."""
    fleet = build_fleet(random, size, operations=5, requests=300, instances=6)
    zone, times = choose_zone(random, fleet), build_times(random, size)
    instance = int(random.integers(fleet.instances))
    effect = Effect(start=times.failure, end=times.recovery, added=in_zone(fleet, zone, 0.5), instance=instance)
    scenario = build_scenario(fleet, times, effects=(effect,))
    label = Label(
        start=times.failure,
        end=times.recovery,
        kind=VerdictKind.INSTANCE,
        zone=scenario.zones[zone],
        instance=scenario.instances[zone][instance],
    )
    return replace(scenario, labels=(label,))


def shared_writer(random: Generator, size: Size) -> Scenario:
    """Fail the writer of a database that all zones use and measure. A third of the operations depends on it."""
    count = 9 if size.operations is None else size.operations
    fleet = build_fleet(random, replace(size, operations=count + 2), requests=150)
    zone, times = choose_zone(random, fleet), build_times(random, size)
    writes = (Operation(WRITER, "insert"), Operation(WRITER, "update"))
    added = np.zeros(fleet.requests.shape)
    added[: max(1, count // 3)] = 0.5
    added[count:] = 0.6
    uneven = np.exp(random.normal(0, 0.1, added.shape))
    effect = Effect(start=times.failure, end=times.recovery, added=np.minimum(added * uneven, 1.0))
    scenario = build_scenario(fleet, times, effects=(effect,))
    label = Label(
        start=times.failure,
        end=times.recovery,
        kind=VerdictKind.SHARED,
        zone=scenario.zones[zone],
        resource=WRITER,
    )
    return replace(
        scenario,
        operations=scenario.operations[:count] + writes,
        sides=(Side.SERVER,) * count + (Side.CLIENT,) * len(writes),
        resources=(SharedResource(WRITER, writes, scenario.zones[zone]),),
        labels=(label,),
    )


def regional(random: Generator, size: Size) -> Scenario:
    """Fail 10 to 60 % of the requests to all zones, unevenly. They start to fail within 10 s of each other."""
    fleet, times = build_fleet(random, size, operations=10, requests=150), build_times(random, size)
    count = fleet.requests.shape[1]
    added = random.uniform(0.1, 0.6) * np.exp(random.normal(0, 0.25, count))
    effects = tuple(
        Effect(
            start=times.failure + 10.0 * int(random.integers(2)),
            end=times.recovery,
            added=in_zone(fleet, zone, min(float(added[zone]), 1.0)),
        )
        for zone in range(count)
    )
    label = Label(start=times.failure, end=times.recovery, kind=VerdictKind.REGIONAL)
    return build_scenario(fleet, times, effects=effects, labels=(label,))

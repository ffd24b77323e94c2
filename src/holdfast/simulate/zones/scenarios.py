"""The scenarios, by name. Pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from holdfast._errors import InvalidValue
from holdfast.simulate.zones import disturbances as healthy
from holdfast.simulate.zones import other_failures as others
from holdfast.simulate.zones import zone_failures as zones
from holdfast.simulate.zones.scenario import Scenario, Size

ScenarioFunction: TypeAlias = Callable[[Generator, Size], Scenario]

DEFAULT_SCENARIO = "zone-fails"
_FUNCTIONS: tuple[ScenarioFunction, ...] = (
    zones.zone_fails,
    zones.availability_55_98_100,
    zones.availability_98_100_9999,
    zones.small_rise,
    zones.rise_at_high_traffic,
    zones.noisy_rise,
    zones.low_traffic,
    zones.small_zone_fails,
    zones.bursts,
    zones.slow_drift,
    zones.daily_cycle,
    zones.latency_only,
    zones.throughput_drop,
    zones.client_retries,
    zones.clock_skew,
    zones.silent_zone,
    zones.silent_zone_confirmed,
    zones.second_zone_fails,
    others.one_instance,
    others.shared_writer,
    others.regional,
    healthy.healthy_day,
    healthy.overdispersion,
    healthy.zone_drained,
    healthy.autoscaling,
    healthy.deploys_announced,
    healthy.deploys_unannounced,
    healthy.lost_telemetry,
    healthy.delayed_telemetry,
    healthy.telemetry_stall,
)
SCENARIOS: Mapping[str, ScenarioFunction] = MappingProxyType(
    {function.__name__.replace("_", "-"): function for function in _FUNCTIONS}
)
"""A function for each scenario, by its name. Its docstring describes the scenario."""


def create_scenario(name: str, seed: int, size: Size | None = None) -> tuple[Scenario, Generator]:
    """Return a scenario, and the generator that draws its measurements. Raise InvalidValue for an unknown name."""
    if name not in SCENARIOS:
        raise InvalidValue(f"no scenario is called {name!r}: expected one of {', '.join(SCENARIOS)}")
    if seed < 0:
        raise InvalidValue(f"seed is {seed}: expected 0 or more")
    random = np.random.default_rng(seed)
    return SCENARIOS[name](random, Size() if size is None else size), random


def describe_scenario(name: str) -> str:
    """Return the description of a scenario."""
    return (SCENARIOS[name].__doc__ or "").strip()

"""Each scenario does to its service what its labels say, and is the same for the same seed."""

from typing import Any

import numpy as np
import pytest

from holdfast import InvalidValue
from holdfast._types import Side, VerdictKind, ZoneState
from holdfast.simulate.zones.scenario import Scenario, Size
from holdfast.simulate.zones.scenarios import DEFAULT_SCENARIO, SCENARIOS, create_scenario, describe_scenario
from holdfast.simulate.zones.traffic import SimulatedBin, TrafficSimulation
from tests.table import sampled

ISOLATED, UNKNOWN, REGIONAL = VerdictKind.ISOLATED, VerdictKind.UNKNOWN, VerdictKind.REGIONAL
SEEDS = pytest.mark.parametrize("seed", sampled([1, 2, 3]))
BINS = 30

# The fault rates of the failing zone before and during the failure.
RISES = {
    "zone-fails": (0.005, 0.4),
    "availability-55-98-100": (0.001, 0.45),
    "availability-98-100-9999": (0.0001, 0.02),
    "small-rise": (0.005, 0.02),
    "rise-at-high-traffic": (0.001, 0.007),
    "noisy-rise": (0.05, 0.12),
    "low-traffic": (0.005, 0.02),
    "small-zone-fails": (0.005, 0.03),
    "daily-cycle": (0.005, 0.4),
    "client-retries": (0.005, 0.3),
    "clock-skew": (0.005, 0.4),
}
LABELS = dict.fromkeys(RISES, ISOLATED) | {
    "bursts": ISOLATED,
    "slow-drift": ISOLATED,
    "latency-only": ISOLATED,
    "throughput-drop": ISOLATED,
    "silent-zone": UNKNOWN,
    "silent-zone-confirmed": ISOLATED,
    "second-zone-fails": REGIONAL,
    "one-instance": VerdictKind.INSTANCE,
    "shared-writer": VerdictKind.SHARED,
    "regional": REGIONAL,
    "delayed-telemetry": UNKNOWN,
    "telemetry-stall": UNKNOWN,
}
HEALTHY = {
    "healthy-day",
    "overdispersion",
    "zone-drained",
    "autoscaling",
    "deploys-announced",
    "deploys-unannounced",
    "lost-telemetry",
}


def create(name: str, seed: int = 1, **size: Any) -> Scenario:
    return create_scenario(name, seed, Size(**size))[0]


def measure(scenario: Scenario, start: float, bins: int = BINS) -> list[SimulatedBin]:
    simulation = TrafficSimulation(scenario.fleet, np.random.default_rng(9), scenario.effects)
    return list(simulation.run(start, start + bins * 10))


def rates(bins: list[SimulatedBin]) -> Any:
    """The share of failed requests by zone."""
    return sum(each.faults.sum(axis=(0, 2)) for each in bins) / np.maximum(requests(bins), 1)


def requests(bins: list[SimulatedBin]) -> Any:
    return sum(each.requests.sum(axis=(0, 2)) for each in bins)


def find_zone(scenario: Scenario) -> int:
    [label] = scenario.labels
    assert label.zone is not None
    return scenario.zones.index(label.zone)


def test_every_scenario_has_the_labels_of_its_kind_or_none() -> None:
    assert {*LABELS} | HEALTHY == SCENARIOS.keys()
    assert DEFAULT_SCENARIO in SCENARIOS
    for name in SCENARIOS:
        scenario = create(name)
        assert [label.kind for label in scenario.labels] == ([LABELS[name]] if name in LABELS else [])
        assert describe_scenario(name).endswith(".")
        for label in scenario.labels:
            assert scenario.times.start < label.start < label.end <= scenario.times.end


@SEEDS
def test_the_fault_rate_of_the_failing_zone_rises_and_that_of_the_others_does_not(seed: int) -> None:
    for name, (before, during) in RISES.items():
        scenario = create(name, seed)
        zone, times = find_zone(scenario), scenario.times
        usual, failing = rates(measure(scenario, times.start, 90)), rates(measure(scenario, times.failure, 90))
        assert usual[zone] == pytest.approx(before, rel=0.7, abs=2e-4), name
        assert failing[zone] == pytest.approx(during, rel=0.4), name
        assert failing[zone] > 1.5 * max(rate for index, rate in enumerate(failing) if index != zone), name
        after = rates(measure(scenario, times.recovery, 6))
        assert after[zone] < during, name


def test_the_other_zones_of_an_availability_of_55_98_and_100_percent_are_at_98_and_100() -> None:
    scenario = create("availability-55-98-100")
    assert rates(measure(scenario, scenario.times.failure, 100)) == pytest.approx([0.45, 0.02, 0.0], abs=0.01)


def test_bursts_come_for_20_seconds_in_every_3_minutes() -> None:
    scenario = create("bursts")
    zone = find_zone(scenario)
    failing = [
        each.faults[:, zone].sum() > 0.2 * each.requests[:, zone].sum()
        for each in measure(scenario, scenario.times.failure, 36)
    ]
    assert failing == [True, True, *[False] * 16] * 2


def test_a_drift_grows_for_20_minutes() -> None:
    scenario = create("slow-drift")
    zone, start = find_zone(scenario), scenario.times.failure
    found = [rates(measure(scenario, start + later))[zone] for later in (0, 600, 1200)]
    assert found == sorted(found)
    assert found[2] == pytest.approx(0.05, rel=0.3)


def test_only_the_latency_of_one_zone_doubles() -> None:
    scenario = create("latency-only")
    zone = find_zone(scenario)

    def mean(start: float) -> Any:
        bins = measure(scenario, start)
        sums = sum(each.latencies.sums.reshape(each.requests.shape).sum(axis=(0, 2)) for each in bins)
        return sums / requests(bins)

    ratio = mean(scenario.times.failure) / mean(scenario.times.start)
    assert ratio == pytest.approx([2.0 if each == zone else 1.0 for each in range(3)], rel=0.2)
    assert rates(measure(scenario, scenario.times.failure)).max() < 0.02


@pytest.mark.parametrize(
    ("name", "in_zone", "elsewhere"),
    [
        ("throughput-drop", 0.1, 1.0),
        ("client-retries", 1.0, 1.15),
        ("silent-zone-confirmed", 0.0, 1.5),
        ("zone-drained", 0.0, 1.5),
        ("second-zone-fails", 0.0, 1.5),
    ],
)
def test_traffic_is_lost_or_moves_to_the_other_zones(name: str, in_zone: float, elsewhere: float) -> None:
    scenario = create(name, 2)
    zone = scenario.zones.index(scenario.states[-1].zone) if scenario.states else find_zone(scenario)
    during = requests(measure(scenario, scenario.times.failure + 60))
    quiet = Scenario(**{part: getattr(scenario, part) for part in scenario.__slots__} | {"effects": ()})
    usual = requests(measure(quiet, scenario.times.failure + 60))
    assert during / usual == pytest.approx([in_zone if each == zone else elsewhere for each in range(3)], rel=0.06)


def test_a_zone_that_is_out_gets_no_traffic_while_its_state_says_so() -> None:
    for name in ("zone-drained", "second-zone-fails"):
        scenario = create(name)
        out = scenario.states[-1]
        assert out.state is ZoneState.OUT
        zone = scenario.zones.index(out.zone)
        assert requests(measure(scenario, out.start, 6))[zone] == 0
        assert requests(measure(scenario, out.start - 60, 6))[zone] > 0
    assert [each.state for each in create("zone-drained").states] == [ZoneState.DRAINING, ZoneState.OUT]


def test_a_second_zone_fails_while_another_is_out() -> None:
    scenario = create("second-zone-fails")
    failing = rates(measure(scenario, scenario.times.failure))
    assert sorted(failing > 0.3) == [False, False, True]
    assert failing[scenario.zones.index(scenario.states[0].zone)] == 0


@SEEDS
def test_one_instance_fails_and_the_label_names_it(seed: int) -> None:
    scenario = create("one-instance", seed)
    [label] = scenario.labels
    zone = find_zone(scenario)
    bins = measure(scenario, scenario.times.failure)
    failed = sum(each.faults.sum(axis=0) for each in bins) / sum(each.requests.sum(axis=0) for each in bins)
    instance = scenario.instances[zone].index(label.instance or "")
    assert failed[zone, instance] > 0.4
    failed[zone, instance] = 0
    assert failed.max() < 0.05


@pytest.mark.parametrize("operations", [None, 1, 12])
def test_all_zones_measure_the_failing_writer_as_its_clients(operations: int | None) -> None:
    scenario = create("shared-writer", operations=operations)
    [label], [resource] = scenario.labels, scenario.resources
    assert (label.resource, label.zone) == (resource.name, resource.zone)
    clients = [index for index, side in enumerate(scenario.sides) if side is Side.CLIENT]
    assert [scenario.operations[index] for index in clients] == list(resource.operations)
    assert len(scenario.operations) - len(clients) == (9 if operations is None else operations)
    bins = measure(scenario, scenario.times.failure)
    failed = sum(each.faults.sum(axis=2) for each in bins) / sum(each.requests.sum(axis=2) for each in bins)
    assert failed[clients].min() > 0.3
    assert failed[0].min() > 0.3


@SEEDS
def test_a_regional_failure_hits_all_zones(seed: int) -> None:
    scenario = create("regional", seed)
    failing = rates(measure(scenario, scenario.times.failure + 20))
    assert failing.min() > 0.04
    assert len(set(failing.round(3))) == 3


def test_deploys_roll_from_zone_to_zone_and_only_one_scenario_announces_them() -> None:
    announced, silent = create("deploys-announced"), create("deploys-unannounced")
    assert silent.deployments == ()
    assert len(announced.deployments) == len(announced.effects) == len(silent.effects) >= 6
    assert {each.zone for each in announced.deployments[:3]} == set(announced.zones)
    for deployment, effect in zip(announced.deployments, announced.effects, strict=True):
        assert (deployment.start, deployment.end) == (effect.start, effect.end)
        assert 60 <= deployment.end - deployment.start <= 180
    first, second = announced.deployments[:2]
    assert first.end == second.start
    zone = announced.zones.index(first.zone or announced.zones[0])
    during, before = (rates(measure(announced, start, 6))[zone] for start in (first.start, first.start - 60))
    assert during > before


def test_autoscaling_changes_traffic_and_instances_but_never_stops_a_zone() -> None:
    scenario = create("autoscaling")
    assert scenario.effects[0].start == scenario.times.start
    assert scenario.effects[-1].end >= scenario.times.end
    running = np.array([effect.running for effect in scenario.effects])
    assert 1 <= running.min() < running.max() <= 6
    assert len({tuple(each) for each in running.tolist()}) > 3
    bins = [measure(scenario, effect.start, 1)[0] for effect in scenario.effects]
    for effect, measured in zip(scenario.effects, bins, strict=True):
        assert effect.running is not None
        assert np.array_equal((measured.requests.sum(axis=0) > 0).sum(axis=1), effect.running)


def test_faults_of_telemetry_hit_the_zone_of_the_label() -> None:
    for name, delay, lost in (("silent-zone", 0, 1.0), ("delayed-telemetry", 30, 0.0), ("telemetry-stall", 0, 1.0)):
        scenario = create(name)
        [fault], [label] = scenario.telemetry, scenario.labels
        assert (fault.start, fault.end, fault.zone) == (label.start, label.end, find_zone(scenario))
        assert (fault.delay, fault.lost) == (delay, lost)
    stall = create("telemetry-stall").labels[0]
    assert stall.end - stall.start == 40
    assert create("lost-telemetry").telemetry[0].lost == pytest.approx(1 / 3)
    assert [each.skew for each in create("clock-skew").telemetry] == [20.0, -20.0]


@SEEDS
def test_a_healthy_scenario_has_no_zone_that_is_much_worse_than_the_others(seed: int) -> None:
    for name in ("healthy-day", "overdispersion", "autoscaling"):
        scenario = create(name, seed)
        found = rates(measure(scenario, scenario.times.failure, 60))
        assert found.max() < 2 * np.median(found), name


def test_equal_seeds_give_equal_scenarios_and_others_give_other_zones() -> None:
    for name in SCENARIOS:
        assert create(name, 5).labels == create(name, 5).labels
    assert len({create("zone-fails", seed).labels[0].zone for seed in range(10)}) == 3


def test_size_and_hours_are_those_of_the_user() -> None:
    for name in SCENARIOS:
        scenario = create(name, operations=4, instances=3, hours=1)
        assert len(scenario.operations) == (6 if name == "shared-writer" else 4)
        assert {len(names) for names in scenario.instances} == {3}
        assert scenario.times.end - scenario.times.start == 3600
    assert create("healthy-day").times.end - create("healthy-day").times.start == 86_400


def test_an_unknown_name_or_a_negative_seed_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no scenario is called 'zone-sings': expected one of zone-fails, "):
        create_scenario("zone-sings", 1)
    with pytest.raises(InvalidValue, match="seed is -1"):
        create_scenario("zone-fails", -1)

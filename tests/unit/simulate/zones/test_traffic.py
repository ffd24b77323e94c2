"""Simulated measurements have the traffic, faults, latencies and noise that were asked for."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from holdfast.simulate.zones.traffic import DAY, Effect, Fleet, SimulatedBin, TrafficSimulation
from tests.table import rows

ZONES = 3


def build(**changes: Any) -> Fleet:
    fleet = Fleet(
        requests=np.full((2, ZONES), 600.0),
        fault_rates=np.full((2, ZONES), 0.1),
        latency=np.array([0.05, 0.2]),
        spread=np.array([0.6, 0.3]),
    )
    return dataclasses.replace(fleet, **changes)


def run(fleet: Fleet, *effects: Effect, bins: int = 200, start: float = 0.0, **options: Any) -> list[SimulatedBin]:
    simulation = TrafficSimulation(fleet, np.random.default_rng(1), effects, **options)
    return list(simulation.run(start, start + 10 * bins))


def rates(bins: list[SimulatedBin]) -> Any:
    """The share of failed requests by zone and instance."""
    return sum(each.faults.sum(axis=0) for each in bins) / sum(each.requests.sum(axis=0) for each in bins)


def requests(bins: list[SimulatedBin]) -> Any:
    return np.mean([each.requests.sum(axis=0) for each in bins], axis=0)


def mean_latencies(bins: list[SimulatedBin]) -> Any:
    """The mean latency by operation and zone."""
    sums = sum(each.latencies.sums.reshape(2, ZONES, -1).sum(axis=2) for each in bins)
    return sums / sum((each.requests - each.faults).sum(axis=2) for each in bins)


def test_equal_seeds_give_equal_bins_and_others_give_others() -> None:
    fleet = build(cell_shape=3.0, clumped=0.2, common_noise=0.4, zone_noise=0.1, latency_zone_noise=0.1)
    first, again = run(fleet, bins=5), run(fleet, bins=5)
    other = list(TrafficSimulation(fleet, np.random.default_rng(2)).run(0, 50))
    for one, same, different in zip(first, again, other, strict=True):
        assert np.array_equal(one.requests, same.requests)
        assert np.array_equal(one.faults, same.faults)
        assert np.array_equal(one.latencies.buckets, same.latencies.buckets)
        assert not np.array_equal(one.requests, different.requests)


def test_a_run_has_a_bin_for_every_ten_seconds() -> None:
    assert [each.start for each in run(build(), bins=3, start=100.0)] == [100.0, 110.0, 120.0]


@pytest.mark.parametrize("clumped", [0.0, 0.5])
def test_traffic_and_faults_are_those_of_the_fleet_on_average(clumped: float) -> None:
    bins = run(build(clumped=clumped, instances=2), has_latency=False, bins=400)
    assert requests(bins) == pytest.approx(np.full((ZONES, 2), 100.0), rel=0.03)
    assert rates(bins) == pytest.approx(np.full((ZONES, 2), 0.1), rel=0.06)


def test_traffic_fluctuates_in_all_zones_together() -> None:
    calm, noisy = (
        np.array([each.requests.sum(axis=(0, 2)) for each in run(build(traffic_noise=noise))]) for noise in (0.0, 0.5)
    )
    assert noisy.std(axis=0).min() > 4 * calm.std(axis=0).max()
    assert np.corrcoef(noisy.T)[0, 1] > 0.9 > 0.5 > np.corrcoef(calm.T)[0, 1]


def test_traffic_follows_the_day() -> None:
    fleet = build(daily=0.5)
    highest = requests(run(fleet, start=DAY / 4, bins=20))
    lowest = requests(run(fleet, start=3 * DAY / 4, bins=20))
    assert highest.sum() / lowest.sum() == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(
    ("noise", "least"),
    [
        ({"clumped": 0.5}, 1.5),
        ({"cell_shape": 3.0}, 2.0),
        ({"common_noise": 0.4}, 2.0),
        ({"zone_noise": 0.4}, 2.0),
    ],
    ids=["clumped", "cell_shape", "common_noise", "zone_noise"],
)
def test_faults_vary_more_than_by_chance_with_noise(noise: dict[str, float], least: float) -> None:
    def dispersion(fleet: Fleet) -> float:
        faults = np.array([each.faults for each in run(fleet, bins=250, has_latency=False)])
        return float((faults.var(axis=0) / faults.mean(axis=0)).mean())

    assert dispersion(build()) == pytest.approx(1.0, abs=0.15)
    assert dispersion(build(**noise)) > least


def test_common_noise_moves_all_zones_and_zone_noise_one() -> None:
    def correlation(fleet: Fleet) -> float:
        faults = np.array([each.faults.sum(axis=(0, 2)) for each in run(fleet, bins=250, has_latency=False)])
        return float(np.corrcoef(faults[:, 0], faults[:, 1])[0, 1])

    assert correlation(build(common_noise=0.4)) > 0.5
    assert abs(correlation(build(zone_noise=0.4))) < 0.2


@pytest.mark.parametrize("per_minute", [300.0, 60_000.0], ids=["few", "many"])
def test_latencies_are_those_of_the_fleet_with_few_and_with_many_requests(per_minute: float) -> None:
    """Few requests are drawn one by one, many by bucket."""
    fleet = build(requests=np.full((2, ZONES), per_minute))
    usual = np.array([0.05, 0.2]) * np.exp(np.array([0.6, 0.3]) ** 2 / 2)  # the mean of a log-normal distribution
    bins = run(fleet, bins=30)
    assert mean_latencies(bins) == pytest.approx(np.repeat(usual[:, None], ZONES, axis=1), rel=0.05)
    slower = run(fleet, Effect(start=0, end=1e9, latency=np.array([1.0, 2.0, 1.0])), bins=30)
    assert mean_latencies(slower)[:, 1] == pytest.approx(2 * usual, rel=0.05)
    second_mode = run(dataclasses.replace(fleet, slow_share=0.25, slow_factor=5.0), bins=30)
    assert mean_latencies(second_mode) == pytest.approx(np.repeat(2 * usual[:, None], ZONES, axis=1), rel=0.08)
    some_slow = run(fleet, Effect(start=0, end=1e9, slow=np.array([0.0, 0.0, 0.2])), bins=30)
    assert mean_latencies(some_slow)[:, 2] == pytest.approx(2.8 * usual, rel=0.1)
    assert mean_latencies(some_slow)[:, 0] == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("noise", ["latency_common_noise", "latency_zone_noise"])
def test_latencies_fluctuate_with_noise(noise: str) -> None:
    def variation(fleet: Fleet) -> float:
        return float(np.std([np.log(mean_latencies([each])[1, 0]) for each in run(fleet, bins=100)]))

    assert variation(build(**{noise: 0.3})) == pytest.approx(0.3, rel=0.35)
    assert variation(build()) < 0.05


@pytest.mark.parametrize("per_minute", [60.0, 60_000.0], ids=["few", "many"])
def test_every_successful_request_has_a_latency_in_its_cell(per_minute: float) -> None:
    [measured] = run(build(requests=np.full((2, ZONES), per_minute), instances=2), bins=1)
    successes = (measured.requests - measured.faults).reshape(-1)
    for cell, count in enumerate(successes.tolist()):
        histogram = measured.latencies.row(cell)
        assert histogram.count == count
        if count:
            assert histogram.min <= histogram.sum / count <= histogram.max
            assert histogram.min <= (histogram.quantile(0.5) or 0.0) <= histogram.max


def test_a_bin_without_requests_or_without_latencies_has_empty_histograms() -> None:
    [quiet] = run(build(requests=np.zeros((2, ZONES))), bins=1)
    [fast] = run(build(), bins=1, has_latency=False)
    for measured in (quiet, fast):
        assert measured.latencies.offsets.tolist() == [0] * (2 * ZONES + 1)
    assert fast.requests.sum() > 0


def test_an_effect_changes_only_its_zone_and_only_while_it_lasts() -> None:
    failure = Effect(
        start=1000,
        end=2000,
        added=np.array([0.0, 0.4, 0.0]),
        factor=np.array([1.0, 1.0, 2.0]),
        traffic=np.array([0.5, 1.0, 1.0]),
    )
    bins = run(build(), failure, has_latency=False)
    before, during = bins[:100], bins[100:]
    assert rates(before)[:, 0] == pytest.approx([0.1, 0.1, 0.1], rel=0.1)
    assert rates(during)[:, 0] == pytest.approx([0.1, 0.5, 0.2], rel=0.1)
    assert (requests(during) / requests(before))[:, 0] == pytest.approx([0.5, 1.0, 1.0], rel=0.05)


def test_one_instance_fails_alone() -> None:
    bins = run(build(instances=3), Effect(start=0, end=1e9, added=np.array([0.0, 0.5, 0.0]), instance=2))
    expected = np.full((ZONES, 3), 0.1)
    expected[1, 2] = 0.6
    assert rates(bins) == pytest.approx(expected, rel=0.1)


def test_instances_that_do_not_run_leave_their_traffic_to_the_others() -> None:
    bins = run(build(instances=4), Effect(start=0, end=1e9, running=np.array([4, 2, 9])))
    expected = [[50.0] * 4, [100.0, 100.0, 0.0, 0.0], [50.0] * 4]
    assert requests(bins) == pytest.approx(np.array(expected), rel=0.05)


@rows(
    ("changes", "at", "strength"),
    [
        ({}, 99, 0.0),
        ({}, 100, 1.0),
        ({}, 199, 1.0),
        ({}, 200, 0.0),
        ({"period": 30, "burst": 10}, 109, 1.0),
        ({"period": 30, "burst": 10}, 110, 0.0),
        ({"period": 30, "burst": 10}, 130, 1.0),
        ({"ramp": 50}, 100, 0.0),
        ({"ramp": 50}, 125, 0.5),
        ({"ramp": 50}, 190, 1.0),
    ],
)
def test_an_effect_is_on_in_its_time_in_bursts_or_growing(changes: dict[str, Any], at: float, strength: float) -> None:
    assert Effect(start=100, end=200, **changes).strength(at) == strength


def test_fault_rates_never_exceed_one() -> None:
    bins = run(build(clumped=0.5), Effect(start=0, end=1e9, added=5.0), bins=5)
    assert all((each.faults <= each.requests).all() for each in bins)
    assert math.isclose(float(rates(run(build(), Effect(start=0, end=1e9, added=5.0), bins=5)).min()), 1.0)

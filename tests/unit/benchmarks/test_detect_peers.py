"""The methods that detection is compared with do what they say, and false isolations are counted right."""

from math import comb

import numpy as np
import pytest

from benchmarks._detect_fleets import PROOF, SHARES, TUNING, Happening, build_large_fleet, seed_random
from benchmarks._detect_peers import METHODS, count_alarms, get_binomial_tail
from benchmarks._detect_year import Part, blame, find_upper_bound, plan, sum_up

BINS = 30
"""Five minutes."""


@pytest.mark.parametrize(
    ("requests", "faults", "static", "share", "chi_squared", "exact"),
    [
        ((100, 100, 100), (0, 0, 0), -1, -1, -1, -1),
        ((100, 100, 100), (0, 8, 0), 1, 1, 1, 1),
        ((100, 100, 100), (2, 9, 0), -1, 1, 1, 1),
        ((100, 100, 100), (5, 5, 5), -1, -1, -1, -1),
        ((1000, 1000, 1000), (5, 11, 5), 1, -1, 1, 1),
        ((700, 200, 100), (70, 20, 10), -1, 0, 0, -1),
        ((100, 100, 100), (10, 10, 0), -1, -1, 2, -1),
    ],
)
def test_each_method_isolates_the_zone_that_it_must_after_five_minutes(
    requests: tuple[int, ...], faults: tuple[int, ...], static: int, share: int, chi_squared: int, exact: int
) -> None:
    n, k = (np.tile(np.array(each, np.int64), (BINS, 1, 1)) for each in (requests, faults))
    found = {name: int(method(n, k)[-1]) for name, method in METHODS.items()}
    assert found == {"static": static, "share": share, "chi-squared": chi_squared, "exact test": exact}


def test_methods_with_whole_minutes_wait_for_three_in_a_row_and_the_exact_test_does_not() -> None:
    n = np.full((BINS, 1, 3), 100, np.int64)
    k = np.zeros((BINS, 1, 3), np.int64)
    k[6:, 0, 2] = 40
    first = {name: int(np.flatnonzero(method(n, k) == 2)[0]) for name, method in METHODS.items()}
    assert first == {"static": 23, "share": 23, "chi-squared": 23, "exact test": 6}


def test_alarms_in_several_zones_isolate_none() -> None:
    n = np.full((BINS, 2, 3), 100, np.int64)
    k = np.zeros((BINS, 2, 3), np.int64)
    k[:, 0, 0] = k[:, 1, 1] = 40
    assert all((method(n, k) == -1).all() for method in METHODS.values())


def test_an_alarm_is_counted_once_as_long_as_it_lasts() -> None:
    assert count_alarms(np.array([-1, 0, 0, -1, 0, 1, 1, -1])) == 3


def test_the_binomial_tail_equals_the_sum_of_its_terms() -> None:
    random = np.random.default_rng(7)
    n = np.concatenate([random.integers(0, 300, 200), [5, 5, 0, 4]])
    k = np.concatenate([(n[:200] * random.random(200)).astype(np.int64), [5, 6, 0, 2]])
    p = np.concatenate([random.uniform(0.01, 0.99, 200), [0.5, 0.5, 0.5, 1.0]])
    terms = [
        sum(comb(size, i) * chance**i * (1 - chance) ** (size - i) for i in range(least, size + 1))
        for size, least, chance in zip(n.tolist(), k.tolist(), p.tolist(), strict=True)
    ]
    assert get_binomial_tail(k, n, p) == pytest.approx(terms, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("count", "bound"), [(0, 2.996), (1, 4.744), (5, 10.513)])
def test_the_upper_bound_of_a_count_is_that_of_the_poisson_distribution(count: int, bound: float) -> None:
    assert find_upper_bound(count) == pytest.approx(bound, abs=0.001)


def test_a_false_isolation_is_blamed_on_the_incident_or_deploy_that_may_have_caused_it() -> None:
    happenings = [Happening("deploy", 1000, 1400), Happening("stall", 1900, 1940), Happening("regional", 5000, 5600)]
    causes = [blame(happenings, at) for at in (1000, 1010, 1950, 2050, 2100, 5010, 6500, 6510)]
    assert causes == [
        ("quiet", 0.0),
        ("deploy", 10.0),
        ("deploy", 950.0),
        ("stall", 150.0),
        ("quiet", 0.0),
        ("regional", 10.0),
        ("regional", 1500.0),
        ("quiet", 0.0),
    ]


def test_rates_are_those_of_a_year_with_two_incidents_a_week() -> None:
    parts = [
        Part(0, 5.0, {"deploy": 60, "regional": 10, "shared": 4}, [{"cause": "regional"}]),
        Part(1, 5.0, {"deploy": 65, "regional": 6, "shared": 5, "stall": 60}, [{"cause": "deploy"}]),
    ]
    rates = {each.cause: each for each in sum_up(parts)}
    assert rates["regional or shared"].rate == pytest.approx(1 / 25 * 2 * 365 / 7)
    assert rates["deploy"].rate == pytest.approx(1 / 125 * 5 * 365)
    assert rates["quiet"].rate == 0.0
    assert rates["quiet"].bound == pytest.approx(2.996 / 10 * 365, abs=0.1)


def test_deploys_of_a_simulated_day_are_at_least_25_minutes_apart_and_all_kinds_of_trouble_occur() -> None:
    random = seed_random(TUNING, "plan")
    effects, happenings = plan(random, build_large_fleet(random, SHARES[1]), 0.0, 10 * 86_400.0)
    deploys = [each.start for each in happenings if each.kind == "deploy"]
    assert min(np.diff(deploys)) >= 1500
    assert {each.kind for each in happenings} == {"deploy", "regional", "shared", "stall"}
    assert [each.start for each in effects] == sorted(each.start for each in effects)


def test_scenarios_for_tuning_and_for_figures_differ_and_so_do_a_fleet_and_its_first_failure() -> None:
    words: list[tuple[str | int, ...]] = [("year", 0), ("year", 0, 0), ("year", 0, 1)]
    found = {seed_random(split, *each).random() for split in (TUNING, PROOF) for each in words}
    assert len(found) == 6

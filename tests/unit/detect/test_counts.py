"""Evidence from counts: compared with a slow reading of the formulas, cell by cell, in plain Python."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.detect.counts import (
    CountState,
    advance_counts,
    build_count_state,
    find_still_failing,
    fit_dispersion,
    get_evidence,
    get_rates,
    get_ratios,
    get_rising_bins,
    learn_counts,
)
from holdfast.detect.cusum import Array, Conditions

RISES = (2.0, 2.8, 4.0, 10.0, 40.0)
MARGIN = 1.25
OPERATIONS, ZONES = 2, 3
THRESHOLDS = [20.0, 20.0, 16.0]
counted = st.integers(0, 40)
Table = list[list[float]]


@dataclass
class Reading:
    """The quantities of one bin by stream and zone."""

    k: Table
    e: Table
    m: Table
    alpha: Table
    evidence: list[Table]
    against_others: list[Table]
    against_past: list[Table]


def accumulate(total: float, step: float, limit: float, ceiling: float) -> float:
    return min(0.995 * max(total, 0.0) + min(step, 0.6 * limit), ceiling)


def measure(k: float, m: float, kappa: float, rise: float) -> float:
    return k * math.log(rise / MARGIN) - (k + kappa) * math.log((kappa + rise * m) / (kappa + MARGIN * m))


def read_slowly(state: CountState, requests: Array, faults: Array, conditions: Conditions) -> Reading:
    """Return the evidence after one bin of ten seconds, as the description of the method has it."""
    zones = range(ZONES)
    clump, noise = fit_dispersion(state.fit)
    past_clump, past_noise = fit_dispersion(state.past_fit)
    active = conditions.active
    k = [[float(faults[o, z]) * bool(active[z]) for z in zones] for o in range(OPERATIONS)]
    e = []
    for o in range(OPERATIONS):
        rate = max((state.faults[o] + 0.5) / (state.requests[o] + 1000), 2e-5)
        ratios = [(state.ratio_faults[o, z] + 20) / (state.ratio_expected[o, z] + 20) for z in zones]
        e.append([requests[o, z] * bool(active[z]) * rate * min(max(ratios[z], 0.3), 3.0) for z in zones])
    extra = [max(1.0, (20 + state.measured[o]) / (20 + state.fitted[o])) for o in range(OPERATIONS)]
    weight = [
        [bool(conditions.in_pool[o]) / (1 + noise * extra[o] * e[o][z]) for z in zones] for o in range(OPERATIONS)
    ]
    k.append([sum(weight[o][z] * k[o][z] for o in range(OPERATIONS)) for z in zones])
    e.append([sum(weight[o][z] * e[o][z] for o in range(OPERATIONS)) for z in zones])
    sums = (state.pool_noise.tolist(), 2.0), (state.past_pool_noise.tolist(), 60.0)
    size = [sum(weight[o][z] * e[o][z] for z in zones) for o in range(OPERATIONS)]
    pool = []
    for ((total, count), highest), by_bin in zip(sums, (noise, 30 * past_noise), strict=True):
        own = sum(by_bin * extra[o] * size[o] ** 2 for o in range(OPERATIONS))
        prior = 0.05 + (own / sum(size) ** 2 if sum(size) else 0.0)
        pool.append(min(max((total + prior * 3) / (count + 3), 0.001), highest))
    found = Reading(k, e, [], [], *([[[0.0] * ZONES for _ in THRESHOLDS] for _ in RISES] for _ in range(3)))
    for s, limit in enumerate(THRESHOLDS):
        is_pool = s == OPERATIONS
        h, unit = (1.0, clump) if is_pool else (extra[s], 1.0)
        rho, past_rho = (pool[0], pool[1]) if is_pool else (noise * h, 30 * past_noise * h)
        found.m.append([])
        found.alpha.append([])
        for z in zones:
            others = [other for other in zones if other != z]
            recent_k = sum(0.8 * state.recent_faults[s, other] + k[s][other] for other in others)
            recent_e = sum(0.8 * state.recent_expected[s, other] + e[s][other] for other in others)
            usual = min(max(30 / (2 * past_rho), 3.0), 100.0)
            keep = math.exp(-10 / 300)
            lasting_k = sum(keep * state.lasting_faults[s, other] + k[s][other] for other in others)
            lasting_e = sum(keep * state.lasting_expected[s, other] + e[s][other] for other in others)
            deviation = 1.0
            for sum_k, sum_e, falling in ((recent_k, recent_e, 0.8), (lasting_k, lasting_e, keep)):
                variance = max(sum_e / unit * (1 / (1 + falling) + sum_e / unit / usual), 0.02)
                deviation = max(deviation, (sum_k - sum_e) ** 2 / unit**2 / (4 * variance))
            prior = max(usual / deviation**2, 3.0)
            alpha = recent_k / unit + prior
            m = e[s][z] * alpha / (recent_e / unit + prior)
            found.m[s].append(m)
            found.alpha[s].append(alpha)
            all_e = sum(e[s])
            shares = [each / all_e if all_e else 0.0 for each in e[s]]
            own_k, other_k = k[s][z] / (clump * h), sum(k[s][other] for other in others) / (clump * h)
            for r, rise in enumerate(RISES):
                is_active = bool(active[z])
                step = measure(k[s][z] / (clump * h), m / (clump * h), 1 / (rho + 1 / alpha), rise)
                past = measure(k[s][z] / (past_clump * h), e[s][z] / (past_clump * h), 1 / past_rho, rise)
                other = compare(own_k, other_k, z, shares, rho, rise) - compare(own_k, other_k, z, shares, rho, MARGIN)
                before = state.evidence[r, s, z], state.against_others[r, s, z], state.against_past[r, s, z]
                found.evidence[r][s][z] = is_active * accumulate(before[0], step, limit, limit + 6)
                found.against_others[r][s][z] = is_active * accumulate(before[1], other, 16.0, 16.0)
                found.against_past[r][s][z] = is_active * accumulate(before[2], past, limit, limit + 6)
        if not any(found.evidence[r][s][z] > 0 for r in range(len(RISES)) for z in zones):
            for r in range(len(RISES)):
                found.against_others[r][s] = [0.0] * ZONES
    return found


def compare(own: float, others: float, zone: int, shares: list[float], noise: float, rise: float) -> float:
    """Return the logarithm of the beta-binomial likelihood of a zone's part of all counts, without its constants."""
    share = shares[zone]
    if not 0 < share < 1:
        return 0.0
    squares = sum((each / (1 - share)) ** 2 for other, each in enumerate(shares) if other != zone)
    size = 1 / (noise * (1 + squares) * share * (1 - share))
    first = rise * share / (1 + (rise - 1) * share) * size
    second = size - first
    grown = math.lgamma(own + first) - math.lgamma(first)
    return grown + math.lgamma(others + second) - math.lgamma(second)


def build_conditions(
    active: tuple[bool, ...] = (True,) * ZONES, in_pool: tuple[bool, ...] = (True,) * OPERATIONS, seconds: float = 10.0
) -> Conditions:
    settled = np.ones(OPERATIONS, np.bool_)
    return Conditions(seconds, np.array(THRESHOLDS), np.array(active), np.array(in_pool), settled)


def learn(state: CountState, requests: float, faults: float) -> CountState:
    """Learn the bin in which every cell has these counts."""
    shape = OPERATIONS, ZONES
    everything = np.ones(shape, np.bool_)
    return learn_counts(state, np.full(shape, requests), np.full(shape, faults), everything, 10.0, has_baseline=False)


bins = st.lists(
    st.lists(st.tuples(counted, st.integers(0, 2000)), min_size=OPERATIONS * ZONES, max_size=OPERATIONS * ZONES),
    min_size=1,
    max_size=7,
)
some = st.tuples(*[st.booleans()] * ZONES)


@settings(max_examples=40)
@given(bins, some, st.tuples(*[st.booleans()] * OPERATIONS), st.integers(0, 50))
def test_the_evidence_is_that_of_the_formulas(
    given_bins: list[list[tuple[int, int]]], active: tuple[bool, ...], in_pool: tuple[bool, ...], usual: int
) -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, float(usual))
    conditions = build_conditions(active, in_pool)
    for cells in given_bins:
        faults, more = (np.array(each, float).reshape(OPERATIONS, ZONES) for each in zip(*cells, strict=True))
        requests = faults + more
        expected = read_slowly(state, requests, faults, conditions)
        step = advance_counts(state, requests, faults, conditions, has_baseline=False)
        np.testing.assert_allclose(step.predicted, expected.m, rtol=1e-9, atol=1e-12)
        # The gamma function of `against_others` is precise to a few millionths.
        for name, precision in (("evidence", 1e-9), ("against_others", 3e-5), ("against_past", 1e-9)):
            np.testing.assert_allclose(getattr(step.state, name), getattr(expected, name), rtol=1e-7, atol=precision)
        state = step.state
    best = [[max(state.evidence[r, s, z] for r in range(5)) for z in range(3)] for s in range(3)]
    np.testing.assert_allclose(get_evidence(state), best)


def test_a_baseline_is_learned_with_a_prior_and_an_hour_of_memory() -> None:
    empty = build_count_state(OPERATIONS, ZONES)
    assert get_rates(empty).tolist() == [0.0005, 0.0005], "half a fault in 1,000 requests"
    once = learn(empty, 1000.0, 2.0)
    assert get_rates(once)[0] == pytest.approx((3 * 2 + 0.5) / (3 * 1000 + 1000))
    twice = learn(once, 1000.0, 0.0)
    keep = math.exp(-10 / 3600)
    assert get_rates(twice)[0] == pytest.approx((6 * keep + 0.5) / (3000 * keep + 3000 + 1000))
    perfect = replace(empty, requests=np.full(OPERATIONS, 1e9))
    assert get_rates(perfect).tolist() == [2e-5, 2e-5], "even perfect services fail once"


def test_a_burst_is_learned_only_up_to_a_limit() -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 900.0)
    expected = 1000 * 0.0005
    _, noise = fit_dispersion(np.zeros(5))
    limit = expected + 4 * math.sqrt(expected + noise * expected**2) + 3
    assert state.faults.tolist() == pytest.approx([3 * limit] * OPERATIONS)


def test_zones_that_are_not_learned_keep_the_baseline_as_it_is() -> None:
    known = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 2.0)
    nothing = np.zeros((OPERATIONS, ZONES), np.bool_)
    ones = np.ones((OPERATIONS, ZONES))
    assert get_rates(learn_counts(known, ones, ones, nothing, 10.0, has_baseline=False)).tolist() == (
        get_rates(known).tolist()
    )


def test_permanent_differences_between_zones_are_learned_within_limits() -> None:
    state = build_count_state(1, ZONES)
    requests, faults = np.full((1, ZONES), 10_000.0), np.array([[50.0, 50.0, 150.0]])
    everything = np.ones((1, ZONES), np.bool_)
    for _ in range(2000):
        state = learn_counts(state, requests, faults, everything, 10.0, has_baseline=False)
    one, two, three = get_ratios(state)[0].tolist()
    assert (one, two) == (pytest.approx(0.6, abs=0.02), one)
    assert three == pytest.approx(1.8, abs=0.05)
    extreme = replace(state, ratio_faults=np.array([[0.0, 1e9, 0.0]]), ratio_expected=np.array([[1e9, 1.0, 0.0]]))
    assert get_ratios(extreme).tolist() == [[0.3, 3.0, 1.0]]


def test_expected_counts_that_are_known_already_need_no_baseline() -> None:
    """The requests above the 99th percentile: one in a hundred is expected to be slow."""
    state = build_count_state(OPERATIONS, ZONES)
    shape = OPERATIONS, ZONES
    expected = np.full(shape, 5.0)
    found = learn_counts(state, expected, np.full(shape, 6.0), np.ones(shape, np.bool_), 10.0, has_baseline=True)
    assert not found.requests.any()
    assert found.ratio_expected.tolist() == expected.tolist()
    step = advance_counts(state, expected, expected, build_conditions(), has_baseline=True)
    assert step.state.expected_40s[:-1].tolist() == expected.tolist()


def sum_fit(means: list[float], clump: float, noise: float, samples: float) -> Array:
    found = np.zeros(5)
    for mean in means:
        variance = clump * mean + noise * mean**2
        weight = samples / (variance + 0.02) ** 2
        found += weight * np.array([mean**2, mean**3, mean**4, variance * mean, variance * mean**2])
    return found


@pytest.mark.parametrize(
    ("clump", "noise", "expected"),
    [(2.0, 0.3, (2.0, 0.3)), (1.0, 0.02, (1.0, 0.02)), (0.1, 0.0, (1.0, 0.02)), (9.0, 7.0, (4.0, 2.0))],
)
def test_the_fit_finds_clumps_and_noise_within_limits(
    clump: float, noise: float, expected: tuple[float, float]
) -> None:
    found = fit_dispersion(sum_fit([0.05, 0.5, 3.0, 20.0], clump, noise, 1e7))
    assert found == pytest.approx(expected, rel=0.02)


def test_without_measurements_the_fit_is_the_prior() -> None:
    assert fit_dispersion(np.zeros(5)) == pytest.approx((1.2, 0.2), rel=0.01)
    assert fit_dispersion(np.array([1e30, 1e30, 1e30, 1.2e30, 0.0]))[0] == pytest.approx(1.2, rel=0.2)


def run_bins(number: int, conditions: Conditions) -> tuple[CountState, list[Reading], list[float]]:
    """Return the state after some bins with random faults, the reading of each bin, and the clumps before it."""
    random = np.random.default_rng(3)
    state, readings, clumps = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 10.0), [], []
    for _ in range(number):
        faults = random.poisson(7.0, (OPERATIONS, ZONES)).astype(float)
        requests = np.full((OPERATIONS, ZONES), 1000.0)
        readings.append(read_slowly(state, requests, faults, conditions))
        clumps.append(fit_dispersion(state.past_fit)[0])
        state = advance_counts(state, requests, faults, conditions, has_baseline=False).state
    return state, readings, clumps


def measure_noise(k: Array, mean: Array, uncertainty: Array, clump: float, number: int) -> list[float]:
    noise = number * ((k - mean) ** 2 - clump * mean - uncertainty) / mean**2
    weight = (mean / (mean + 10)) ** 2
    return [(weight * noise).sum(), weight.sum()]


def test_noise_of_the_pool_is_measured_over_a_minute() -> None:
    before, _, _ = run_bins(5, build_conditions())
    assert not before.pool_noise.any()
    state, readings, _ = run_bins(6, build_conditions())
    k, m = (np.sum([np.array(getattr(each, name)[-1]) for each in readings], axis=0) for name in ("k", "m"))
    unsure = np.sum([np.array(each.m[-1]) ** 2 / np.array(each.alpha[-1]) for each in readings], axis=0)
    expected = measure_noise(k, m, unsure, fit_dispersion(before.fit)[0], 6)
    assert state.pool_noise.tolist() == pytest.approx(expected)
    assert state.block_bins == 0
    assert not state.block.any()


def test_noise_around_the_own_past_is_measured_over_five_minutes() -> None:
    before, _, _ = run_bins(29, build_conditions())
    assert not before.past_pool_noise.any()
    assert not before.past_fit.any()
    state, readings, clumps = run_bins(30, build_conditions())
    k, e = (np.sum([np.array(getattr(each, name)[-1]) for each in readings], axis=0) for name in ("k", "e"))
    assert state.past_pool_noise.tolist() == pytest.approx(measure_noise(k, e, np.zeros(ZONES), clumps[-1], 30))
    assert state.past_fit.all()
    assert state.past_block_bins == 0
    assert not state.past_faults.any()
    assert not state.past_expected.any()


def test_noise_around_the_own_past_is_not_measured_while_all_zones_fail() -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 2.0)
    requests, failing = np.full((2, 3), 1000.0), np.full((2, 3), 500.0)
    found = advance_counts(state, requests, failing, build_conditions(), has_baseline=False).state
    assert (found.block_bins, found.past_block_bins) == (1, 0)
    assert found.past_bins.tolist() == [[1.0] * 3] * 3


def test_a_failure_that_ends_is_no_longer_one_after_some_seconds() -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 2.0)
    requests, failing, well = np.full((2, 3), 1000.0), np.full((2, 3), 500.0), np.zeros((2, 3))
    found = []
    for faults in (*[failing] * 30, *[well] * 5):
        state = advance_counts(state, requests, faults, build_conditions(), has_baseline=False).state
        found.append(bool(find_still_failing(state, 10.0)[0, 0]))
    assert found == [True] * 32 + [False] * 3


def test_noise_is_not_measured_while_a_zone_fails() -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 2.0)
    failing = np.array([[500.0, 2.0, 2.0]] * OPERATIONS)
    found = advance_counts(state, np.full((2, 3), 1000.0), failing, build_conditions(), has_baseline=False).state
    assert not found.fit.any()
    assert (found.block_bins, found.past_block_bins) == (0, 0)
    assert get_rising_bins(found)[:, 0].tolist() == [1, 1, 1]
    assert get_rising_bins(found)[:, 1].tolist() == [0, 0, 0]


def test_a_rise_of_all_zones_that_lasts_is_predicted_even_after_a_minute_without_it() -> None:
    """By chance, the other zones are as usual again and again while the faults of all zones have doubled."""
    conditions, requests = build_conditions(), np.full((OPERATIONS, ZONES), 1000.0)
    state = build_count_state(OPERATIONS, ZONES)
    for _ in range(360):
        state = learn(state, 1000.0, 5.0)
        state = advance_counts(state, requests, np.full((OPERATIONS, ZONES), 5.0), conditions, has_baseline=False).state

    def predict(earlier: float) -> float:
        found, predicted = state, 0.0
        for faults in (*[earlier] * 30, *[5.0] * 5):
            counted = np.full((OPERATIONS, ZONES), faults)
            step = advance_counts(found, requests, counted, conditions, has_baseline=False)
            found, predicted = step.state, float(step.predicted[0, 0])
        return predicted

    assert predict(5.0) == pytest.approx(5.0, rel=0.05)
    assert predict(10.0) > 6.0, "the usual rate of 5 says little about a zone whose neighbours had twice of theirs"


def test_sums_of_the_last_seconds_halve_in_their_time() -> None:
    state = build_count_state(OPERATIONS, ZONES)
    requests, faults = np.full((2, 3), 100.0), np.full((2, 3), 8.0)
    nothing = np.zeros((2, 3))
    first = advance_counts(state, requests, faults, build_conditions(), has_baseline=False).state
    assert first.requests_40s.tolist() == [[100.0] * 3, [100.0] * 3, [200.0] * 3]
    later = [first]
    for _ in range(4):
        later.append(advance_counts(later[-1], nothing, nothing, build_conditions(), has_baseline=False).state)
    assert later[4].faults_40s[0, 0] == pytest.approx(4.0)
    for before, after in pairwise(later):
        assert after.faults_10s[0, 0] == pytest.approx(before.faults_10s[0, 0] / 2)
        assert after.requests_10s[0, 0] == pytest.approx(before.requests_10s[0, 0] / 2)


def test_nothing_that_was_passed_in_is_changed() -> None:
    state = learn(build_count_state(OPERATIONS, ZONES), 1000.0, 2.0)
    arrays = {name: getattr(state, name).copy() for name in state.__struct_fields__ if "block_bins" not in name}
    requests, faults = np.full((2, 3), 1000.0), np.full((2, 3), 20.0)
    advance_counts(state, requests, faults, build_conditions(), has_baseline=False)
    learn(state, 500.0, 3.0)
    for name, array in arrays.items():
        assert np.array_equal(getattr(state, name), array), name

"""Find zones with more faults, or more slow requests, than expected. Pure.

The expected count of a zone follows from its own past and from the other zones now: a common rise shows in both. The
evidence of a bin is a ratio of likelihoods under negative binomial distributions, because faults come in clumps and
rates fluctuate: a plain Poisson test would raise an alarm all the time. Dispersion is measured, not assumed.

A stream is one operation, or all operations together: the pool, the last row of every array. An array has a row for
each stream and a column for each zone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from holdfast.detect import cusum
from holdfast.detect.cusum import (
    BIN,
    HEADROOM,
    LONG_HALF_LIFE,
    PAST_BEGINS,
    SHORT_HALF_LIFE,
    STILL_FAILING,
    SUSPICIOUS,
    Array,
    Conditions,
    Mask,
    add_evidence,
    decay,
    halve,
)

RISES = np.array([2.0, 2.8, 4.0, 10.0, 40.0])[:, None, None]
"""Rises that are looked for, as multiples of the expected count."""
DEPLOY_RISES = [0, 2]
"""The rises, by index, whose evidence must outlast a deploy."""
MARGIN = 1.25
"""A rise up to this is no failure."""
BASELINE_MEMORY, RATIO_MEMORY, DISPERSION_MEMORY = 3600.0, 4 * 3600.0, 4 * 3600.0
"""Time constants in seconds. Rates change within the day; differences between zones and the noise are more constant."""
PRIOR_FAULTS, PRIOR_REQUESTS, LOWEST_RATE = 0.5, 1000.0, 2e-5
"""The baseline rate of an operation without data, as counts, and the lowest rate: even perfect services fail once."""
PRIOR_EXPECTED = 20.0
LOWEST_RATIO, HIGHEST_RATIO = 0.3, 3.0
"""Permanent differences between zones: a prior of no difference, as a count, and limits."""
OTHERS_WEIGHT = 0.8
"""Weight of a bin of the other zones for each bin of age: they are averaged over about 50 s."""
PRIOR_OTHERS, HIGHEST_PRIOR_OTHERS = 3.0, 100.0
"""Weight, as a count, of the usual rate beside the counts of the other zones, for a rate that fluctuates much or hardly
at all. It follows from the noise around the own past."""
USUAL_DEVIATION = 2.0
"""Standard deviations up to which the other zones are as usual. Beyond, their usual rate says less about this one."""
LASTING_MEMORY = 300.0
"""Time constant in seconds of sums that show whether a rise lasts. In one minute, a doubled rate can be as usual by
chance, again and again."""
LOWEST_CLUMP, HIGHEST_CLUMP = 1.0, 4.0
LOWEST_NOISE, HIGHEST_NOISE = 0.02, 2.0
LOWEST_POOL_NOISE = 0.001
CLIP_VARIANCE, CLIP_COUNT = 40.0, 9.0
"""Limits of one bin's influence on the measured dispersion."""
PRIOR_VARIANCE = 20.0
SMALL_VARIANCE = 0.02
"""Variance below which cells no longer get more weight."""
PRIOR_POOL_NOISE, PRIOR_BLOCKS = 0.05, 3.0
FEW_COUNTS = 10.0
"""Counts of a block below which it says little about noise."""
BLOCK, PAST_BLOCK = 60.0, 300.0
"""Seconds over which the noise of the pool, and the noise around the own past, are measured. The noise of a zone lasts
longer than a bin, and what all zones have in common lasts for minutes."""
DEPLOY_CLIP = 3.0
"""Maximum evidence of one bin in the test whether evidence outlasts a deploy."""
CEILING_OTHERS = 16.0
PEAK, STILL_FAULTS = 150.0, 1.5
"""Half-life of the highest excess, and the excess below which a failure may be over."""


class CountState(Struct):
    """Knowledge about the counts of a workload. Arrays are never changed in place."""

    faults: Array
    requests: Array
    """By operation: learned sums, for the baseline rate."""
    ratio_faults: Array
    ratio_expected: Array
    """By operation and zone: learned sums, for the permanent difference between zones."""
    fit: Array
    past_fit: Array
    """Sums for the fit of the dispersion: of bins against the prediction, and of blocks against the own past."""
    measured: Array
    fitted: Array
    """By operation: variance as measured, and as fitted."""
    pool_noise: Array
    past_pool_noise: Array
    """Sum and weight of the pool's noise: against the prediction, and against the own past."""
    block: Array
    """By zone: sums of the current block of the pool: counts, predictions, and their uncertainty."""
    block_bins: int
    past_faults: Array
    past_expected: Array
    """By stream and zone: sums of the current block for the noise around the own past."""
    past_block_bins: int
    recent_faults: Array
    recent_expected: Array
    """By stream and zone: weighted sums over about 50 s, from which the other zones are predicted."""
    lasting_faults: Array
    lasting_expected: Array
    """The same sums over about five minutes."""
    faults_40s: Array
    expected_40s: Array
    requests_40s: Array
    """Sums with a half-life of 40 s."""
    faults_10s: Array
    expected_10s: Array
    requests_10s: Array
    """Sums with a half-life of 10 s."""
    evidence: Array
    """By rise, stream and zone: the zone against its prediction."""
    against_others: Array
    """By rise, stream and zone: the zone against the other zones only."""
    against_past: Array
    """By rise, stream and zone: the zone against its own past only. A regional failure shows here."""
    past_bins: Array
    """By stream and zone: bins since there was no evidence against its own past."""
    peak: Array
    """By stream and zone: the highest excess of the last minutes."""
    rising_bins: Array
    """By rise, stream and zone: bins since the evidence was last zero."""


AXES = (
    ("faults", "requests", "ratio_faults", "ratio_expected", "measured", "fitted"),
    (
        "recent_faults",
        "recent_expected",
        "lasting_faults",
        "lasting_expected",
        "faults_40s",
        "expected_40s",
        "requests_40s",
        "faults_10s",
        "expected_10s",
        "requests_10s",
        "past_bins",
        "past_faults",
        "past_expected",
        "peak",
    ),
    ("evidence", "against_others", "against_past", "rising_bins"),
)
"""The arrays with a row for each operation; for each stream; and for each stream in the second axis."""


class CountStep(NamedTuple):
    """The state after one bin, and the evidence of it."""

    state: CountState
    predicted: Array
    """Expected counts by stream and zone, from the own past and the other zones."""
    deploy_evidence: Array
    """By rise of DEPLOY_RISES, stream and zone: clipped evidence of this bin."""
    dispersion: "Dispersion"


class Dispersion(NamedTuple):
    """The measured noise: the variance of a count `m` is `clump * m + noise * m^2`, by stream."""

    clump: Array
    noise: Array
    weights: Array
    """By operation and zone: the weight in the pool. Noisy operations count less."""


def build_count_state(operations: int, zones: int) -> CountState:
    """Return the state without any knowledge."""
    arrays: dict[str, Array] = {name: np.zeros((operations, zones)) for name in AXES[0]}
    arrays |= {name: np.zeros(operations) for name in ("faults", "requests", "measured", "fitted")}
    arrays |= {name: np.zeros((operations + 1, zones)) for name in AXES[1]}
    arrays |= {name: np.zeros((len(RISES), operations + 1, zones)) for name in AXES[2]}
    return CountState(
        fit=np.zeros(5),
        past_fit=np.zeros(5),
        pool_noise=np.zeros(2),
        past_pool_noise=np.zeros(2),
        block=np.zeros((3, zones)),
        block_bins=0,
        past_block_bins=0,
        **arrays,
    )


def get_rates(state: CountState) -> Array:
    """Return the baseline rate of each operation."""
    return np.maximum((state.faults + PRIOR_FAULTS) / (state.requests + PRIOR_REQUESTS), LOWEST_RATE)


def get_ratios(state: CountState) -> Array:
    """Return the permanent ratio of each zone to the baseline, by operation."""
    ratios = (state.ratio_faults + PRIOR_EXPECTED) / (state.ratio_expected + PRIOR_EXPECTED)
    return np.clip(ratios, LOWEST_RATIO, HIGHEST_RATIO)


def get_evidence(state: CountState) -> Array:
    """Return the evidence by stream and zone: the best of all rises."""
    best: Array = state.evidence.max(axis=0)
    return best


def get_rising_bins(state: CountState) -> Array:
    """Return, by stream and zone, the bins since the best evidence was last zero."""
    return cusum.get_rising_bins(state.evidence, state.rising_bins)


def get_rises(state: CountState) -> Array:
    """Return the counts of the last minute or so, divided by the expected ones, by stream and zone."""
    found: Array = (state.faults_40s + 0.5) / (state.expected_40s + 0.5)
    return found


def find_still_failing(state: CountState, seconds: float) -> Mask:
    """Return, by stream and zone, whether it has an excess in the last seconds that is not small beside the highest."""
    slow, fast = 1 - halve(LONG_HALF_LIFE, seconds), 1 - halve(SHORT_HALF_LIFE, seconds)
    excess = state.faults_40s - state.expected_40s
    recent = (state.faults_10s - state.expected_10s) * fast
    is_large = excess > np.maximum(STILL_FAULTS, STILL_FAILING * state.peak)
    found: Mask = is_large & (recent > STILL_FAILING * excess * slow)
    return found


def learn_counts(
    state: CountState, requests: Array, faults: Array, learned: Mask, seconds: float, *, has_baseline: bool
) -> CountState:
    """Learn a bin of some minutes ago. `learned` says for each operation and zone whether it is taken.

    With `has_baseline`, `requests` are expected counts already, and only the differences between zones are learned.
    """
    ratio_keep = decay(RATIO_MEMORY, seconds)
    rates = np.ones(len(state.faults)) if has_baseline else get_rates(state)
    base = requests * rates[:, None]
    expected = base * get_ratios(state)
    noise = fit_dispersion(state.fit)[1]
    highest = expected + 4 * np.sqrt(expected + noise * expected**2) + 3
    counted = np.where(learned, np.minimum(faults, highest), 0.0)
    base = np.where(learned, base, 0.0)
    changes: dict[str, Array | int] = {
        "ratio_faults": state.ratio_faults * ratio_keep + counted,
        "ratio_expected": state.ratio_expected * ratio_keep + base,
    }
    if not has_baseline:
        keep = decay(BASELINE_MEMORY, seconds)
        taken = np.where(learned, requests, 0.0).sum(axis=1)
        factor = np.where(learned.any(axis=1), keep, 1.0)
        changes["faults"] = state.faults * factor + counted.sum(axis=1)
        changes["requests"] = state.requests * factor + taken
    return replace(state, **changes)


def fit_dispersion(sums: Array) -> tuple[float, float]:
    """Return the clump size and the noise that explain the measured variances best."""
    squares, cubes, fourths, with_mean, with_square = (sums + _PRIOR_FIT).tolist()
    determinant = squares * fourths - cubes * cubes
    clump = (with_mean * fourths - with_square * cubes) / determinant if determinant > 0 else 1.0
    clump = min(max(clump, LOWEST_CLUMP), HIGHEST_CLUMP)
    noise = min(max((with_square - clump * cubes) / fourths, LOWEST_NOISE), HIGHEST_NOISE)
    # If a limit applies to one of them, the other is the best that fits to it.
    clump = min(max((with_mean - noise * cubes) / squares, LOWEST_CLUMP), HIGHEST_CLUMP)
    return clump, noise


def _build_prior(clump: float, noise: float, samples: float) -> Array:
    """Return the sums of bins with 0.1, 1 and 10 faults, each with the weight of `samples` bins."""
    mean = np.array([0.1, 1.0, 10.0])
    variance = clump * mean + noise * mean**2
    w = samples / (variance + 0.02) ** 2
    parts = (mean**2, mean**3, mean**4, variance * mean, variance * mean**2)
    return np.array([(w * part).sum() for part in parts])


_PRIOR_FIT = _build_prior(1.2, 0.2, 10.0)


def advance_counts(
    state: CountState, requests: Array, faults: Array, conditions: Conditions, *, has_baseline: bool
) -> CountStep:
    """Add one bin of requests and faults by operation and zone. `has_baseline` as for `learn_counts`."""
    active, seconds = conditions.active, conditions.seconds
    requests, faults = requests * active, faults * active
    rates = np.ones(len(requests)) if has_baseline else get_rates(state)
    expected = requests * rates[:, None] * get_ratios(state)
    clump, noise = fit_dispersion(state.fit)
    past_clump, past_noise = fit_dispersion(state.past_fit)
    extra = np.maximum(1.0, (PRIOR_VARIANCE + state.measured) / (PRIOR_VARIANCE + state.fitted))
    weights = conditions.in_pool[:, None] / (1.0 + noise * extra[:, None] * expected)
    # By stream, for the operations and the pool.
    size = (weights * expected).sum(axis=1)
    pool_noise = _get_pool_noise(state.pool_noise, _expect_pool_noise(noise * extra, size), HIGHEST_NOISE)
    noises = np.append(noise * extra, pool_noise)[:, None]
    clumps = np.append(clump * extra, clump)[:, None]
    # Noise that lasts for a block adds up. It is counted as if all of it were in one bin.
    block = max(PAST_BLOCK / seconds, 1.0)
    past_by_operation = past_noise * block * extra
    past_prior = _expect_pool_noise(past_by_operation, size)
    past_pool = _get_pool_noise(state.past_pool_noise, past_prior, HIGHEST_NOISE * block)
    past_noises = np.append(past_by_operation, past_pool)[:, None]
    k, e = _with_pool(faults, weights), _with_pool(expected, weights)
    recent = _Sums(state.recent_faults, state.recent_expected, OTHERS_WEIGHT ** (seconds / BIN)).add(k, e)
    lasting = _Sums(state.lasting_faults, state.lasting_expected, decay(LASTING_MEMORY, seconds)).add(k, e)
    unit = np.append(np.ones(len(requests)), clump)[:, None]
    others = recent.of_other_zones(unit)
    prior = _weigh_usual_rate((others, lasting.of_other_zones(unit)), past_noises / block)
    shape = others.faults + prior
    m = e * shape / (others.expected + prior)
    step = measure_evidence(k / clumps, m / clumps, 1.0 / (noises + 1.0 / shape))
    limits = conditions.thresholds[:, None]
    evidence = add_evidence(state.evidence, step, limits, limits + HEADROOM, seconds) * active
    is_suspicious = (evidence.max(axis=0) > SUSPICIOUS).any(axis=1)
    is_calm = active & ~is_suspicious[:-1, None] & ~is_suspicious[-1] & (expected > 0) & conditions.settled[:, None]
    changes: dict[str, Array | int] = {
        "recent_faults": recent.faults,
        "recent_expected": recent.expected,
        "lasting_faults": lasting.faults,
        "lasting_expected": lasting.expected,
        "evidence": evidence,
        "rising_bins": np.where(evidence > 0, state.rising_bins + 1, 0.0),
    }
    # Only streams with evidence are compared, because it takes long.
    rising = np.flatnonzero((evidence > 0).any(axis=(0, 2)))
    compared = np.zeros_like(evidence)
    compared[:, rising] = add_evidence(
        state.against_others[:, rising],
        _compare_with_others(k[rising] / clumps[rising], e[rising], noises[rising]),
        CEILING_OTHERS,
        CEILING_OTHERS,
        seconds,
    )
    past_clumps = np.append(past_clump * extra, past_clump)[:, None]
    past_step = measure_evidence(k / past_clumps, e / past_clumps, 1.0 / past_noises)
    past = add_evidence(state.against_past, past_step, limits, limits + HEADROOM, seconds)
    past_bins = np.where(past.max(axis=0) > PAST_BEGINS, state.past_bins + 1, 0.0)
    changes |= {"against_others": compared * active, "against_past": past * active, "past_bins": past_bins}
    in_pool = conditions.in_pool[:, None].astype(np.float64)
    summed = np.array([_with_pool(each, in_pool) for each in (requests, faults, expected)])
    changes |= _sum_up(state, summed, seconds)
    changes |= _measure_dispersion(state, faults, m[:-1], shape[:-1], is_calm=is_calm, seconds=seconds)
    if not is_suspicious[-1]:
        changes |= _measure_pool(state, np.array([k[-1], m[-1], m[-1] ** 2 / shape[-1]]), clump, seconds)
        if not (past.max(axis=0)[-1] > SUSPICIOUS).any():
            is_used = np.vstack([is_calm, active])
            changes |= _measure_past(state, k * is_used, e * is_used, past_clump, seconds)
    deploy_evidence = np.minimum(step[DEPLOY_RISES], DEPLOY_CLIP)
    return CountStep(replace(state, **changes), m, deploy_evidence, Dispersion(clumps[:, 0], noises[:, 0], weights))


def measure_evidence(k: Array, m: Array, kappa: Array) -> Array:
    """Return, for each rise, by how much a rise explains the counts better than none (negative binomial)."""
    found: Array = k * np.log(RISES / MARGIN) - (k + kappa) * np.log((kappa + RISES * m) / (kappa + MARGIN * m))
    return found


class _Sums(NamedTuple):
    """Counts and expected counts by stream and zone, summed with weights that fall by `keep` from bin to bin."""

    faults: Array
    expected: Array
    keep: float

    def add(self, faults: Array, expected: Array) -> "_Sums":
        """Return the sums after one more bin."""
        return _Sums(self.faults * self.keep + faults, self.expected * self.keep + expected, self.keep)

    def of_other_zones(self, unit: Array) -> "_Sums":
        """Return, for each zone, the sums of all others, in units of clumps."""
        faults, expected = ((each.sum(axis=1, keepdims=True) - each) / unit for each in self[:2])
        return _Sums(faults, expected, self.keep)


def _weigh_usual_rate(others: Sequence[_Sums], past_noise: Array) -> Array:
    """Return the weight of the usual rate beside the recent counts of the other zones, which are few.

    If the other zones are far from their usual rate in any of the sums, the zone that is predicted probably is, too. A
    block averages about half of the noise that the counts of the last minute have.
    """
    usual = np.clip(1.0 / (2.0 * past_noise), PRIOR_OTHERS, HIGHEST_PRIOR_OTHERS)
    deviation = np.ones(1)
    for each in others:
        # Counts that are summed with falling weights vary less than their sum.
        variance = np.maximum(each.expected * (1.0 / (1.0 + each.keep) + each.expected / usual), SMALL_VARIANCE)
        deviation = np.maximum(deviation, (each.faults - each.expected) ** 2 / (variance * USUAL_DEVIATION**2))
    found: Array = np.maximum(usual / deviation**2, PRIOR_OTHERS)
    return found


def _compare_with_others(k: Array, e: Array, noise: Array) -> Array:
    """Return, for each rise, by how much a rise explains a zone's part of all counts (beta-binomial distribution).

    The sum of the two parameters of the distribution is such that the zone's rate and those of the others fluctuate by
    `noise`, each for itself.
    """
    total_k, total_e = k.sum(axis=1, keepdims=True), e.sum(axis=1, keepdims=True)
    share = np.divide(e, total_e, out=np.zeros_like(e), where=total_e > 0)
    rest = np.maximum(1.0 - share, 1e-9)
    squares = (share**2).sum(axis=1, keepdims=True) - share**2
    size = 1.0 / np.maximum(noise * (1.0 + squares / rest**2) * share * rest, 1e-9)
    rises = np.concatenate([RISES, np.full((1, 1, 1), MARGIN)])
    first = np.maximum(rises * share / (1.0 + (rises - 1.0) * share), 1e-9) * size
    second = np.maximum(size - first, 1e-9)
    likelihood = _get_log_gamma_ratio(first, k) + _get_log_gamma_ratio(second, total_k - k)
    found: Array = np.where((share > 0) & (share < 1), likelihood[:-1] - likelihood[-1], 0.0)
    return found


def _get_log_gamma_ratio(x: Array, added: Array) -> Array:
    """Return ln(gamma(x + added) / gamma(x)), by Stirling's series."""
    return _get_log_gamma(x + added) - _get_log_gamma(x)


def _get_log_gamma(x: Array) -> Array:
    """Return ln(gamma(x)) without its constant. The series is precise from 3 on."""
    y = x + 3.0
    found: Array = (
        (y - 0.5) * np.log(y) - y + 1.0 / (12.0 * y) - 1.0 / (360.0 * y**3) - np.log(x * (x + 1.0) * (x + 2.0))
    )
    return found


def _sum_up(state: CountState, found: Array, seconds: float) -> dict[str, Array | int]:
    """Return the sums of requests, faults and expected faults over the last minute or so, and the last seconds."""
    requests, faults, expected = found
    slow, fast = halve(LONG_HALF_LIFE, seconds), halve(SHORT_HALF_LIFE, seconds)
    faults_40s, expected_40s = state.faults_40s * slow + faults, state.expected_40s * slow + expected
    return {
        "faults_40s": faults_40s,
        "expected_40s": expected_40s,
        "requests_40s": state.requests_40s * slow + requests,
        "faults_10s": state.faults_10s * fast + faults,
        "expected_10s": state.expected_10s * fast + expected,
        "requests_10s": state.requests_10s * fast + requests,
        "peak": np.maximum(state.peak * halve(PEAK, seconds), faults_40s - expected_40s),
    }


def _measure_dispersion(
    state: CountState, k: Array, m: Array, shape: Array, *, is_calm: Mask, seconds: float
) -> dict[str, Array | int]:
    """Add a bin to the fit of the dispersion against the prediction."""
    keep = decay(DISPERSION_MEMORY, seconds)
    sums, (y, v) = _add_to_fit(state.fit * keep, k, m, m**2 / shape, is_calm)
    weight = np.where(is_calm, 1.0 / (v + SMALL_VARIANCE), 0.0)
    return {
        "fit": sums,
        "measured": state.measured * keep + (weight * y).sum(axis=1),
        "fitted": state.fitted * keep + (weight * v).sum(axis=1),
    }


def _add_to_fit(
    sums: Array, k: Array, mean: Array, uncertainty: Array, is_calm: Mask
) -> tuple[Array, tuple[Array, Array]]:
    """Return the sums of the fit after one more bin, and the variances of its cells as measured and as fitted."""
    clump, noise = fit_dispersion(sums)
    fitted = clump * mean + noise * mean**2
    measured = np.minimum((k - mean) ** 2, CLIP_VARIANCE * fitted + CLIP_COUNT) - uncertainty
    weighted = np.where(is_calm, mean / (fitted + SMALL_VARIANCE), 0.0)
    scaled = np.where(is_calm, measured / (fitted + SMALL_VARIANCE), 0.0)
    parts = weighted * weighted, weighted * weighted * mean, (weighted * mean) ** 2, scaled * weighted
    added = [part.sum() for part in (*parts, scaled * weighted * mean)]
    return sums + added, (measured, fitted)


def _measure_pool(state: CountState, found: Array, clump: float, seconds: float) -> dict[str, Array | int]:
    """Add a bin to the block of the pool. At the end of the block, measure its noise."""
    block, bins = state.block + found, state.block_bins + 1
    if bins * seconds < BLOCK:
        return {"block": block, "block_bins": bins}
    k, m, uncertainty = block
    noise = _measure_noise(k, m, uncertainty, clump, bins)
    kept = state.pool_noise * decay(DISPERSION_MEMORY, bins * seconds)
    return {"pool_noise": kept + noise, "block": np.zeros_like(block), "block_bins": 0}


def _measure_past(state: CountState, k: Array, e: Array, clump: float, seconds: float) -> dict[str, Array | int]:
    """Add a bin to the blocks of all streams. At the end of the blocks, measure the noise around the own past."""
    faults, expected, bins = state.past_faults + k, state.past_expected + e, state.past_block_bins + 1
    if bins * seconds < PAST_BLOCK:
        return {"past_faults": faults, "past_expected": expected, "past_block_bins": bins}
    none = np.zeros_like(faults)
    keep = decay(DISPERSION_MEMORY, bins * seconds)
    fit, _ = _add_to_fit(state.past_fit * keep, faults[:-1], expected[:-1], none[:-1], expected[:-1] > 0)
    noise = _measure_noise(faults[-1], expected[-1], none[-1], clump, bins)
    return {
        "past_fit": fit,
        "past_pool_noise": state.past_pool_noise * keep + noise,
        "past_faults": none,
        "past_expected": none,
        "past_block_bins": 0,
    }


def _measure_noise(k: Array, mean: Array, uncertainty: Array, clump: float, bins: int) -> list[float]:
    """Return the noise of a block of the pool, as a weighted sum over its zones, and the sum of the weights."""
    measured = np.minimum((k - mean) ** 2, CLIP_VARIANCE * (clump * mean + mean**2 / bins) + CLIP_COUNT)
    excess = measured - clump * mean - uncertainty
    noise = np.divide(bins * excess, mean**2, out=np.zeros_like(mean), where=mean > 0)
    # The variance of such an estimate falls with the square of its counts.
    weight = (mean / (mean + FEW_COUNTS)) ** 2
    return [float((weight * noise).sum()), float(weight.sum())]


def _expect_pool_noise(noise: Array, size: Array) -> float:
    """Return the noise of the pool before it is measured: that of its operations averages out, if there are many."""
    total = float(size.sum())
    return PRIOR_POOL_NOISE + (float((noise * size**2).sum()) / total**2 if total > 0 else 0.0)


def _get_pool_noise(sums: Array, prior: float, highest: float) -> float:
    total, weight = sums.tolist()
    found = (total + prior * PRIOR_BLOCKS) / (weight + PRIOR_BLOCKS)
    return float(min(max(found, LOWEST_POOL_NOISE), highest))


def _with_pool(values: Array, weights: Array) -> Array:
    return np.vstack([values, (values * weights).sum(axis=0)])

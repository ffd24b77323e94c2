"""Find zones whose requests take longer than expected. Pure.

Each request scores by its rank among the requests of its operation in the last hour, in all zones: scores have mean 0
and variance 1 whatever the distribution of latencies is. A zone is slow if its mean score is above its usual one by
more than that of the other zones.

As in `counts.py`, the last row of an array by stream is the pool of all operations.
"""

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from holdfast.detect import cusum
from holdfast.detect.cusum import (
    HEADROOM,
    LONG_HALF_LIFE,
    PAST_BEGINS,
    SHORT_HALF_LIFE,
    SUSPICIOUS,
    Array,
    Conditions,
    Mask,
    add_evidence,
    decay,
    halve,
)

SHIFTS = np.array([0.15, 0.35, 0.8])[:, None, None]
"""Shifts of the mean score that are looked for. Twice the latency is 0.8 for most operations."""
DEPLOY_SHIFTS = [0, 1]
"""The shifts, by index, whose evidence must outlast a deploy."""
MARGIN = 0.05
"""A shift up to this is no failure."""
REFERENCE_MEMORY, MEAN_MEMORY, DISPERSION_MEMORY = 3600.0, 4 * 3600.0, 4 * 3600.0
PRIOR_SCORES = 50.0
PRIOR_VARIANCE = 20.0
CLIP = 40.0
BLOCK = 60.0
DEPLOY_CLIP = 3.0
PRIOR_NOISE, HIGHEST_NOISE = 0.01, 1.0
PRIOR_BLOCKS = 3.0
TAIL = 0.01
"""Share of requests above the limit from which a request counts as slow."""


class LatencyState(Struct):
    """Knowledge about the latencies of a workload. Arrays are never changed in place."""

    reference: Array
    """By operation and bucket: requests of the last hour, in all zones."""
    score_sums: Array
    score_counts: Array
    log_sums: Array
    """By operation and zone: learned sums of scores and of logarithms of latencies."""
    noise: Array
    """Sums for the dispersion of scores, noise and weight: against the other zones, and against the own past."""
    measured: Array
    fitted: Array
    """By operation: variance as measured, and as fitted."""
    pool_variance: Array
    """Sum and weight of the pool's variance: against the other zones, and against the own past."""
    block: Array
    block_bins: int
    logs_40s: Array
    counts_40s: Array
    """Sums with a half-life of 40 s, by operation and zone."""
    logs_10s: Array
    counts_10s: Array
    """Sums with a half-life of 10 s, by operation and zone."""
    evidence: Array
    """By shift, stream and zone: the zone against the other zones."""
    against_past: Array
    """By shift, stream and zone: the zone against its own past."""
    past_bins: Array
    """By stream and zone: bins since there was no evidence against its own past."""
    rising_bins: Array
    """By shift, stream and zone: bins since the evidence was last zero."""


AXES = (
    (
        "reference",
        "score_sums",
        "score_counts",
        "log_sums",
        "measured",
        "fitted",
        "logs_40s",
        "counts_40s",
        "logs_10s",
        "counts_10s",
    ),
    ("past_bins",),
    ("evidence", "against_past", "rising_bins"),
)
"""The arrays with a row for each operation; for each stream; and for each stream in the second axis."""
RECENT_FIELDS = (*AXES[1], *AXES[2], "logs_40s", "counts_40s", "logs_10s", "counts_10s")
"""The arrays that say something about the last minutes."""


class Scores(NamedTuple):
    """The latencies of one bin, by operation and zone."""

    counts: Array
    scores: Array
    """Sums of scores."""
    logs: Array
    """Sums of logarithms of latencies."""


class LatencyStep(NamedTuple):
    """The state after one bin, and the evidence of it."""

    state: LatencyState
    deploy_evidence: Array
    """By shift of DEPLOY_SHIFTS, stream and zone: clipped evidence of this bin."""
    dispersion: Array
    """By operation and zone: the factor by which evidence is divided, because scores are not independent."""
    pool_dispersion: float
    """The factor by which the evidence of the pool is divided."""


def build_latency_state(operations: int, zones: int, buckets: int) -> LatencyState:
    """Return the state without any knowledge."""
    arrays: dict[str, Array] = {name: np.zeros((operations, zones)) for name in AXES[0]}
    arrays |= {name: np.zeros(operations) for name in ("measured", "fitted")}
    arrays |= {name: np.zeros((operations + 1, zones)) for name in AXES[1]}
    arrays |= {name: np.zeros((len(SHIFTS), operations + 1, zones)) for name in AXES[2]}
    arrays["reference"] = np.zeros((operations, buckets))
    return LatencyState(
        noise=np.zeros((2, 2)), pool_variance=np.zeros((2, 2)), block=np.zeros((4, zones)), block_bins=0, **arrays
    )


def build_weights(reference: Array, cumulative: Array) -> Array:
    """Return the score of each bucket, by operation: its middle rank in the reference, scaled to variance 1.

    `cumulative` has the cumulative sums of the reference.
    """
    total = cumulative[:, -1:]
    ranks = np.divide(cumulative - reference / 2, total, out=np.full_like(reference, 0.5), where=total > 0)
    weights: Array = (ranks - 0.5) * math.sqrt(12)
    return weights


def find_tails(cumulative: Array) -> tuple[NDArray[np.intp], Array]:
    """Return, for each operation, the last bucket that is not slow, and the share of requests above it.

    `cumulative` has the cumulative sums of the reference.
    """
    total = np.maximum(cumulative[:, -1], 1e-9)
    above = total[:, None] - cumulative
    last = np.argmax(above <= TAIL * total[:, None], axis=1)
    return last, np.maximum(above[np.arange(len(last)), last] / total, 0.0)


def get_evidence(state: LatencyState) -> Array:
    """Return the evidence by stream and zone: the best of all shifts."""
    best: Array = state.evidence.max(axis=0)
    return best


def get_rising_bins(state: LatencyState) -> Array:
    """Return, by stream and zone, the bins since the best evidence was last zero."""
    return cusum.get_rising_bins(state.evidence, state.rising_bins)


def get_shifts(state: LatencyState, *, is_latest: bool) -> Array:
    """Return by how much the logarithm of the latency is above its usual mean, by stream and zone.

    `is_latest` chooses the sums of the last seconds, not of the last minute. The pool is weighted by traffic.
    """
    logs, counts = (state.logs_10s, state.counts_10s) if is_latest else (state.logs_40s, state.counts_40s)
    now = np.divide(logs, counts, out=np.zeros_like(logs), where=counts > 0)
    usual = np.divide(state.log_sums, state.score_counts, out=now.copy(), where=state.score_counts > 0)
    shifts = np.where(counts > 0, now - usual, 0.0)
    total = counts.sum(axis=0)
    pool = np.divide((shifts * counts).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return np.vstack([shifts, pool])


def learn_scores(state: LatencyState, scores: Scores, learned: Mask, seconds: float) -> LatencyState:
    """Learn the means of a bin of some minutes ago, for each operation and zone that is `learned`."""
    keep = np.where(learned, decay(MEAN_MEMORY, seconds), 1.0)
    taken = learned.astype(float)
    return replace(
        state,
        score_sums=state.score_sums * keep + scores.scores * taken,
        score_counts=state.score_counts * keep + scores.counts * taken,
        log_sums=state.log_sums * keep + scores.logs * taken,
    )


def learn_reference(state: LatencyState, histograms: Array, learned: Mask, seconds: float) -> LatencyState:
    """Learn the distribution of a time some minutes ago, by operation and bucket, for operations that are `learned`."""
    keep = np.where(learned, decay(REFERENCE_MEMORY, seconds), 1.0)[:, None]
    return replace(state, reference=state.reference * keep + histograms * learned[:, None])


def advance_latency(state: LatencyState, scores: Scores, conditions: Conditions) -> LatencyStep:
    """Add one bin."""
    active, seconds = conditions.active, conditions.seconds
    n = scores.counts * active
    usual = state.score_sums / (state.score_counts + PRIOR_SCORES)
    s = scores.scores * active - n * usual
    others_n, others_s = n.sum(axis=1, keepdims=True) - n, s.sum(axis=1, keepdims=True) - s
    both = (n > 0) & (others_n > 0)
    size = np.divide(n * others_n, n + others_n, out=np.zeros_like(n), where=both)
    difference = _divide(s, n) - np.where(both, _divide(others_s, others_n), _divide(s, n))
    noise, own_noise = (_get_noise(sums) for sums in state.noise.tolist())
    extra = np.maximum(1.0, (PRIOR_VARIANCE + state.measured) / (PRIOR_VARIANCE + state.fitted))[:, None]
    phi = np.maximum(1.0, 1 + (size - 1) * noise)
    own_phi = np.maximum(1.0, 1 + (n - 1) * own_noise)
    pool, own_pool = (_get_pool_variance(sums) for sums in state.pool_variance.tolist())
    in_pool = conditions.in_pool[:, None]
    shifted, weight = (_with_pool(each / (phi * extra), in_pool / pool) for each in (size * difference, size))
    own_shifted, own_weight = (_with_pool(each / (own_phi * extra), in_pool / own_pool) for each in (s, n))
    step = _measure_evidence(shifted, weight)
    limits = conditions.thresholds[:, None]
    evidence = add_evidence(state.evidence, step, limits, limits + HEADROOM, seconds) * active
    past_step = _measure_evidence(own_shifted, own_weight)
    past = add_evidence(state.against_past, past_step, limits, limits + HEADROOM, seconds)
    slow, fast = halve(LONG_HALF_LIFE, seconds), halve(SHORT_HALF_LIFE, seconds)
    changes: dict[str, Array | int] = {
        "evidence": evidence,
        "against_past": past * active,
        "past_bins": np.where(past.max(axis=0) > PAST_BEGINS, state.past_bins + 1, 0.0),
        "rising_bins": np.where(evidence > 0, state.rising_bins + 1, 0.0),
        "logs_40s": state.logs_40s * slow + scores.logs * active,
        "counts_40s": state.counts_40s * slow + n,
        "logs_10s": state.logs_10s * fast + scores.logs * active,
        "counts_10s": state.counts_10s * fast + n,
    }
    is_suspicious = (evidence.max(axis=0) > SUSPICIOUS).any(axis=1)
    is_calm = active & ~is_suspicious[:-1, None] & ~is_suspicious[-1] & both & conditions.settled[:, None]
    changes |= _measure_dispersion(state, (size, difference, phi), (n, _divide(s, n), own_phi), is_calm, seconds)
    if not is_suspicious[-1] and conditions.in_pool.any():
        found = [shifted[-1] * pool, weight[-1] * pool, own_shifted[-1] * own_pool, own_weight[-1] * own_pool]
        changes |= _measure_pool(state, np.array(found), (pool, own_pool), seconds)
    deploy_evidence = np.minimum(step[DEPLOY_SHIFTS], DEPLOY_CLIP)
    return LatencyStep(replace(state, **changes), deploy_evidence, phi * extra, pool)


def _measure_evidence(shifted: Array, weight: Array) -> Array:
    """Return, for each shift, by how much a shift explains the scores better than none (normal distribution)."""
    found: Array = (SHIFTS - MARGIN) * shifted - (SHIFTS**2 - MARGIN**2) / 2 * weight
    return found


def _measure_dispersion(
    state: LatencyState,
    others: tuple[Array, Array, Array],
    past: tuple[Array, Array, Array],
    is_calm: Mask,
    seconds: float,
) -> dict[str, Array | int]:
    """Add a bin to the measured dispersion of scores, each as sizes, differences and fitted variances."""
    keep = decay(DISPERSION_MEMORY, seconds)
    sums = []
    for size, difference, phi in (others, past):
        squared = np.minimum(size * difference**2, CLIP * phi)
        noise = (squared - 1) * size / phi**2, size**2 / phi**2
        sums.append([np.where(is_calm, each, 0.0).sum() for each in noise])
    size, difference, phi = others
    squared = np.minimum(size * difference**2, CLIP * phi)
    return {
        "noise": state.noise * keep + sums,
        "measured": state.measured * keep + np.where(is_calm, squared / phi, 0.0).sum(axis=1),
        "fitted": state.fitted * keep + is_calm.sum(axis=1),
    }


def _measure_pool(
    state: LatencyState, found: Array, pools: tuple[float, float], seconds: float
) -> dict[str, Array | int]:
    """Add a bin to the block of the pool. At the end of the block, measure its variance."""
    block, bins = state.block + found, state.block_bins + 1
    if bins * seconds < BLOCK:
        return {"block": block, "block_bins": bins}
    sums = []
    for (shifted, weight), pool in zip((block[:2], block[2:]), pools, strict=True):
        variance = np.minimum(_divide(shifted**2, weight), CLIP * pool)
        sums.append([variance.sum(), (weight > 0).sum()])
    keep = decay(DISPERSION_MEMORY, bins * seconds)
    return {"pool_variance": state.pool_variance * keep + sums, "block": np.zeros_like(block), "block_bins": 0}


def _get_noise(sums: list[float]) -> float:
    return min(max((sums[0] + PRIOR_NOISE) / (sums[1] + 1.0), 0.0), HIGHEST_NOISE)


def _get_pool_variance(sums: list[float]) -> float:
    return max(1.0, (sums[0] + PRIOR_BLOCKS) / (sums[1] + PRIOR_BLOCKS))


def _divide(sums: Array, counts: Array) -> Array:
    """Return means; 0 where nothing was counted."""
    return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)


def _with_pool(values: Array, share: Array) -> Array:
    return np.vstack([values, (values * share).sum(axis=0)])

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
from msgspec.structs import asdict

from holdfast.detect.cusum import HEADROOM, SUSPICIOUS, Array, Mask, add_evidence, decay, halve

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
HIGHEST_NOISE = 1.0
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
    """Sums for the dispersion of scores: noise and weight."""
    measured: Array
    fitted: Array
    """By operation: variance as measured, and as fitted."""
    pool_variance: Array
    """Sum and weight of the pool's variance."""
    block: Array
    block_bins: int
    slow_logs: Array
    slow_counts: Array
    """Sums with a half-life of 40 s, by operation and zone."""
    fast_logs: Array
    fast_counts: Array
    """Sums with a half-life of 10 s, by operation and zone."""
    evidence: Array
    """By shift, stream and zone: the zone against the other zones."""
    against_past: Array
    """By shift, stream and zone: the zone against its own past."""
    rising_bins: Array


AXES = (
    (
        "reference",
        "score_sums",
        "score_counts",
        "log_sums",
        "measured",
        "fitted",
        "slow_logs",
        "slow_counts",
        "fast_logs",
        "fast_counts",
    ),
    ("rising_bins",),
    ("evidence", "against_past"),
)
"""The arrays with a row for each operation; for each stream; and for each stream in the second axis."""
RECENT = ("slow_logs", "slow_counts", "fast_logs", "fast_counts", "rising_bins", "evidence", "against_past")
"""The arrays that say something about the last minutes."""


class Scores(NamedTuple):
    """The latencies of one bin, by operation and zone."""

    counts: Array
    scores: Array
    """Sums of scores."""
    logs: Array
    """Sums of logarithms of latencies."""


class LatencyStep(NamedTuple):
    """The surprise of one bin."""

    state: LatencyState
    deploy_evidence: Array
    dispersion: Array
    """By stream and zone: the factor by which the evidence is divided, because scores are not independent."""


def build_latency_state(operations: int, zones: int, buckets: int) -> LatencyState:
    """Return the state without any knowledge."""
    by_zone = np.zeros((operations, zones))
    by_shift = np.zeros((len(SHIFTS), operations + 1, zones))
    return LatencyState(
        np.zeros((operations, buckets)),
        by_zone,
        by_zone,
        by_zone,
        np.zeros(2),
        np.zeros(operations),
        np.zeros(operations),
        np.zeros(2),
        np.zeros((2, zones)),
        0,
        *[by_zone] * 4,
        by_shift,
        by_shift,
        np.zeros((operations + 1, zones)),
    )


def build_weights(reference: Array) -> Array:
    """Return the score of each bucket, by operation: its middle rank in the reference, scaled to variance 1."""
    total = reference.sum(axis=1, keepdims=True)
    below = np.cumsum(reference, axis=1) - reference / 2
    ranks = np.divide(below, total, out=np.full_like(reference, 0.5), where=total > 0)
    weights: Array = (ranks - 0.5) * math.sqrt(12)
    return weights


def find_tails(reference: Array) -> tuple["np.ndarray[tuple[int], np.dtype[np.intp]]", Array]:
    """Return, for each operation, the last bucket that is not slow, and the share of requests above it."""
    total = np.maximum(reference.sum(axis=1), 1e-9)
    above = total[:, None] - np.cumsum(reference, axis=1)
    last = np.argmax(above <= TAIL * total[:, None], axis=1)
    return last, np.maximum(above[np.arange(len(last)), last] / total, 0.0)


def get_evidence(state: LatencyState) -> Array:
    """Return the evidence by stream and zone: the best of all shifts, less the price of having tried several."""
    best: Array = state.evidence.max(axis=0) - math.log(len(SHIFTS))
    return best


def get_shifts(state: LatencyState, *, fast: bool) -> Array:
    """Return by how much the logarithm of the latency is above its usual mean, by stream and zone.

    That of the pool is weighted by traffic.
    """
    logs, counts = (state.fast_logs, state.fast_counts) if fast else (state.slow_logs, state.slow_counts)
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
    return _change(
        state,
        {
            "score_sums": state.score_sums * keep + scores.scores * taken,
            "score_counts": state.score_counts * keep + scores.counts * taken,
            "log_sums": state.log_sums * keep + scores.logs * taken,
        },
    )


def learn_reference(state: LatencyState, histograms: Array, learned: Mask, seconds: float) -> LatencyState:
    """Learn the distribution of a time some minutes ago, by operation and bucket, for operations that are `learned`."""
    keep = np.where(learned, decay(REFERENCE_MEMORY, seconds), 1.0)[:, None]
    return _change(state, {"reference": state.reference * keep + histograms * learned[:, None]})


def advance_latency(
    state: LatencyState,
    scores: Scores,
    active: Mask,
    thresholds: Array,
    seconds: float,
    *,
    in_pool: Mask,
    settled: Mask,
) -> LatencyStep:
    """Add one bin. Zones that are not `active` are left out; `in_pool` and `settled` as for counts."""
    n = scores.counts * active
    usual = state.score_sums / (state.score_counts + PRIOR_SCORES)
    s = scores.scores * active - n * usual
    others_n, others_s = n.sum(axis=1, keepdims=True) - n, s.sum(axis=1, keepdims=True) - s
    both = (n > 0) & (others_n > 0)
    size = np.divide(n * others_n, n + others_n, out=np.zeros_like(n), where=both)
    own = np.divide(s, n, out=np.zeros_like(n), where=n > 0)
    difference = np.where(both, own - np.divide(others_s, others_n, out=np.zeros_like(n), where=both), 0.0)
    noise = min(max(float((state.noise[0] + 0.01) / (state.noise[1] + 1.0)), 0.0), HIGHEST_NOISE)
    extra = np.maximum(1.0, (PRIOR_VARIANCE + state.measured) / (PRIOR_VARIANCE + state.fitted))[:, None]
    phi = np.maximum(1.0, 1 + (size - 1) * noise)
    divisor = phi * extra
    weight, surprise = size / divisor, size * difference / divisor
    own_divisor = np.maximum(1.0, 1 + (n - 1) * noise) * extra
    own_weight, own_surprise = n / own_divisor, s / own_divisor
    total, variance = state.pool_variance.tolist()
    pool = max(1.0, (total + 3.0) / (variance + 3.0))
    share = in_pool[:, None] / pool
    weight, surprise = _with_pool(weight, share), _with_pool(surprise, share)
    own_weight, own_surprise = _with_pool(own_weight, share), _with_pool(own_surprise, share)
    gap, square = SHIFTS - MARGIN, (SHIFTS**2 - MARGIN**2) / 2
    step = gap * surprise - square * weight
    limits = thresholds[:, None]
    evidence = add_evidence(state.evidence, step, limits, limits + HEADROOM, seconds) * active
    past = add_evidence(
        state.against_past, gap * own_surprise - square * own_weight, limits, limits + HEADROOM, seconds
    )
    slow, fast = halve(40.0, seconds), halve(10.0, seconds)
    changes: dict[str, Array | int] = {
        "evidence": evidence,
        "against_past": past * active,
        "rising_bins": np.where((evidence > 0).any(axis=0), state.rising_bins + 1, 0.0),
        "slow_logs": state.slow_logs * slow + scores.logs * active,
        "slow_counts": state.slow_counts * slow + n,
        "fast_logs": state.fast_logs * fast + scores.logs * active,
        "fast_counts": state.fast_counts * fast + n,
    }
    hot = (evidence.max(axis=0) > SUSPICIOUS).any(axis=1)
    calm = active & ~hot[:-1, None] & ~hot[-1] & both & settled[:, None]
    keep = decay(DISPERSION_MEMORY, seconds)
    squared = np.minimum(size * difference**2, CLIP * phi)
    changes["noise"] = state.noise * keep + [
        np.where(calm, (squared - 1) * size / phi**2, 0.0).sum(),
        np.where(calm, size**2 / phi**2, 0.0).sum(),
    ]
    changes["measured"] = state.measured * keep + np.where(calm, squared / phi, 0.0).sum(axis=1)
    changes["fitted"] = state.fitted * keep + calm.sum(axis=1)
    if not hot[-1] and in_pool.any():
        changes |= _measure_pool(state, surprise[-1] * pool, weight[-1] * pool, active, pool, seconds)
    return LatencyStep(
        _change(state, changes),
        np.minimum(step[DEPLOY_SHIFTS], DEPLOY_CLIP),
        np.vstack([divisor, np.full(n.shape[1], pool)]),
    )


def _measure_pool(
    state: LatencyState, surprise: Array, weight: Array, active: Mask, pool: float, seconds: float
) -> dict[str, Array | int]:
    block, bins = state.block + np.array([surprise, weight]), state.block_bins + 1
    if bins * seconds < BLOCK:
        return {"block": block, "block_bins": bins}
    used = active & (block[1] > 0)
    variance = np.divide(block[0] ** 2, block[1], out=np.zeros(len(used)), where=used)
    variance = np.minimum(variance, CLIP * pool)
    keep = decay(DISPERSION_MEMORY, bins * seconds)
    found = [np.where(used, variance, 0.0).sum(), used.sum()]
    return {"pool_variance": state.pool_variance * keep + found, "block": np.zeros_like(block), "block_bins": 0}


def _with_pool(values: Array, share: Array) -> Array:
    return np.vstack([values, (values * share).sum(axis=0)])


def _change(state: LatencyState, changes: dict[str, Array | int]) -> LatencyState:
    return LatencyState(**(asdict(state) | changes))

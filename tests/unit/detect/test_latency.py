"""Evidence from latencies: compared with a slow reading of the formulas, cell by cell, in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.detect.cusum import Array, Conditions
from holdfast.detect.latency import (
    LatencyState,
    Scores,
    advance_latency,
    build_latency_state,
    build_weights,
    find_tails,
    get_evidence,
    get_rising_bins,
    get_shifts,
    learn_reference,
    learn_scores,
)

SHIFTS, MARGIN = (0.15, 0.35, 0.8), 0.05
OPERATIONS, ZONES, BUCKETS = 2, 3, 6
THRESHOLDS = [20.0, 20.0, 16.0]
SHAPE = OPERATIONS, ZONES


def build_conditions(
    active: tuple[bool, ...] = (True,) * ZONES, in_pool: tuple[bool, ...] = (True,) * OPERATIONS
) -> Conditions:
    settled = np.ones(OPERATIONS, np.bool_)
    return Conditions(10.0, np.array(THRESHOLDS), np.array(active), np.array(in_pool), settled)


def read_slowly(
    state: LatencyState, scores: Scores, conditions: Conditions
) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Return the evidence of each zone against the others and against its own past, after one bin of ten seconds."""
    zones, operations = range(ZONES), range(OPERATIONS)
    active, in_pool = conditions.active.tolist(), conditions.in_pool.tolist()
    noise, own_noise = (min(max((sums[0] + 0.01) / (sums[1] + 1), 0.0), 1.0) for sums in state.noise.tolist())
    pool_variances = [max(1.0, (total + 3) / (blocks + 3)) for total, blocks in state.pool_variance.tolist()]
    weighted = [[[0.0, 0.0] for _ in zones] for _ in range(OPERATIONS + 1)]
    own = [[[0.0, 0.0] for _ in zones] for _ in range(OPERATIONS + 1)]
    for o in operations:
        n = [float(scores.counts[o, z]) * active[z] for z in zones]
        usual = [state.score_sums[o, z] / (state.score_counts[o, z] + 50) for z in zones]
        s = [float(scores.scores[o, z]) * active[z] - n[z] * usual[z] for z in zones]
        extra = max(1.0, (20 + state.measured[o]) / (20 + state.fitted[o]))
        for z in zones:
            others_n = sum(n) - n[z]
            if n[z] and others_n:
                size = n[z] * others_n / (n[z] + others_n)
                difference = s[z] / n[z] - (sum(s) - s[z]) / others_n
                divisor = max(1.0, 1 + (size - 1) * noise) * extra
                weighted[o][z] = [size * difference / divisor, size / divisor]
            own_divisor = max(1.0, 1 + (n[z] - 1) * own_noise) * extra
            own[o][z] = [s[z] / own_divisor, n[z] / own_divisor]
            for found, pool_variance in zip((weighted, own), pool_variances, strict=True):
                for part in range(2):
                    found[-1][z][part] += in_pool[o] * found[o][z][part] / pool_variance

    def add(before: Array, parts: list[list[list[float]]]) -> list[list[list[float]]]:
        found = [[[0.0] * ZONES for _ in THRESHOLDS] for _ in SHIFTS]
        for d, shift in enumerate(SHIFTS):
            for stream, limit in enumerate(THRESHOLDS):
                for z in zones:
                    surprise, weight = parts[stream][z]
                    step = (shift - MARGIN) * surprise - (shift**2 - MARGIN**2) / 2 * weight
                    total = 0.995 * max(before[d, stream, z], 0.0) + min(step, 0.6 * limit)
                    found[d][stream][z] = min(total, limit + 6) * active[z]
        return found

    return add(state.evidence, weighted), add(state.against_past, own)


counts = st.lists(st.integers(0, 300), min_size=6, max_size=6)
means = st.lists(st.floats(-1.0, 1.7), min_size=6, max_size=6)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(counts, means), min_size=1, max_size=7),
    st.tuples(*[st.booleans()] * ZONES),
    st.tuples(*[st.booleans()] * OPERATIONS),
)
def test_the_evidence_is_that_of_the_formulas(
    bins: list[tuple[list[int], list[float]]], active: tuple[bool, ...], in_pool: tuple[bool, ...]
) -> None:
    state = build_latency_state(OPERATIONS, ZONES, BUCKETS)
    everything = np.ones(SHAPE, np.bool_)
    state = learn_scores(state, Scores(np.full(SHAPE, 90.0), np.full(SHAPE, 20.0), np.zeros(SHAPE)), everything, 10.0)
    conditions = build_conditions(active, in_pool)
    for numbers, averages in bins:
        n = np.array(numbers, float).reshape(SHAPE)
        scores = Scores(n, n * np.array(averages).reshape(SHAPE), np.zeros(SHAPE))
        against_others, against_past = read_slowly(state, scores, conditions)
        state = advance_latency(state, scores, conditions).state
        np.testing.assert_allclose(state.evidence, against_others, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(state.against_past, against_past, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(get_evidence(state), state.evidence.max(axis=0))


def test_a_score_is_the_middle_rank_scaled_to_variance_one() -> None:
    """Of four requests, one, two and one in three buckets: ranks 1/8, 1/2 and 7/8."""
    reference = np.array([[0.0, 1.0, 2.0, 1.0, 0.0], [0.0] * 5])
    weights = build_weights(reference, np.cumsum(reference, axis=1))
    assert (weights[0] / math.sqrt(12)).tolist() == pytest.approx([-0.5, -0.375, 0.0, 0.375, 0.5])
    assert weights[1].tolist() == [0.0] * 5, "without a reference every latency is usual"
    even = np.ones((1, 1000))
    assert float((build_weights(even, np.cumsum(even, axis=1)) ** 2).mean()) == pytest.approx(1.0, abs=1e-5)


def test_the_tail_begins_after_the_bucket_with_the_99th_percentile() -> None:
    last, share = find_tails(np.array([[980.0, 992.0, 997.0, 1000.0], [100.0, 100.0, 100.0, 100.0]]))
    assert last.tolist() == [1, 0]
    assert share.tolist() == pytest.approx([0.008, 0.0])


def test_shifts_compare_the_mean_logarithm_with_the_usual_one() -> None:
    state = build_latency_state(OPERATIONS, ZONES, BUCKETS)
    everything = np.ones(SHAPE, np.bool_)
    n = np.full(SHAPE, 100.0)
    usual = np.log(np.array([[0.1] * 3, [0.4] * 3]))
    state = learn_scores(state, Scores(n, np.zeros(SHAPE), n * usual), everything, 10.0)
    now = usual + np.log([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    counts = np.array([[100.0, 100.0, 0.0], [300.0, 300.0, 0.0]])
    state = advance_latency(state, Scores(counts, np.zeros(SHAPE), counts * now), build_conditions()).state
    for fast in (True, False):
        shifts = get_shifts(state, is_latest=fast)
        assert shifts[0].tolist() == pytest.approx([0.0, math.log(2), 0.0])
        assert shifts[2].tolist() == pytest.approx([0.0, math.log(2) / 4, 0.0]), "weighted by traffic"
    unknown = replace(state, score_counts=np.zeros(SHAPE))
    assert not get_shifts(unknown, is_latest=True).any()


def test_a_reference_is_learned_for_the_operations_that_are_calm() -> None:
    state = build_latency_state(OPERATIONS, ZONES, BUCKETS)
    histograms = np.ones((OPERATIONS, BUCKETS))
    learned = np.array([True, False])
    state = learn_reference(learn_reference(state, histograms, learned, 60.0), histograms, learned, 60.0)
    assert state.reference[0].tolist() == pytest.approx([1 + math.exp(-60 / 3600)] * BUCKETS)
    assert not state.reference[1].any()


def test_variance_of_the_pool_is_measured_over_a_minute() -> None:
    """Zones that fluctuate together for longer than a bin are no evidence."""
    random = np.random.default_rng(5)
    state = build_latency_state(OPERATIONS, ZONES, BUCKETS)
    n = np.full(SHAPE, 100.0)
    for number in range(6):
        assert state.block_bins == number
        assert not state.pool_variance.any()
        shift = np.array([0.0, 0.04, -0.04]) + random.normal(0, 0.02, SHAPE)
        state = advance_latency(state, Scores(n, n * shift, np.zeros(SHAPE)), build_conditions()).state
    total, zones = state.pool_variance[0].tolist()
    assert (zones, state.block_bins, bool(state.block.any())) == (3, 0, False)
    assert total > 3
    step = advance_latency(state, Scores(n, np.zeros(SHAPE), np.zeros(SHAPE)), build_conditions())
    assert step.pool_dispersion == pytest.approx((total + 3) / (zones + 3))


def test_dispersion_is_not_measured_while_a_zone_is_slow() -> None:
    state = build_latency_state(OPERATIONS, ZONES, BUCKETS)
    n = np.full(SHAPE, 500.0)
    slow = n * np.array([[1.2, 0.0, 0.0]] * OPERATIONS)
    found = advance_latency(state, Scores(n, slow, np.zeros(SHAPE)), build_conditions()).state
    assert not found.noise.any()
    assert found.block_bins == 0
    assert get_rising_bins(found)[:, 0].tolist() == [1, 1, 1]
    assert get_rising_bins(found)[:, 1].tolist() == [0, 0, 0]
    calm = advance_latency(state, Scores(n, n * 0.01, np.zeros(SHAPE)), build_conditions()).state
    assert (calm.noise[:, 1] > 0).all()
    without_pool = advance_latency(state, Scores(n, n * 0.0, n), build_conditions(in_pool=(False, False))).state
    assert without_pool.block_bins == 0

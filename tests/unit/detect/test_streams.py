"""What is learned of the operations of a workload, when, and how rows come and go."""

from collections.abc import Iterable
from dataclasses import replace as replace_window

import numpy as np
import pytest
from msgspec.structs import replace

from holdfast import Operation, Side
from holdfast.detect import counts
from holdfast.detect.measurements import StreamKey
from holdfast.detect.streams import (
    InstanceBin,
    StreamState,
    arrange,
    arrange_instances,
    build_stream_state,
    find_suspicious,
    keep_only_baseline,
    pack_evidence,
)
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry import Window
from tests.unit.detect.service import (
    CART,
    HOME,
    QUERY,
    START,
    ZONES,
    failing,
    simulate,
    without_cells,
)
from tests.unit.detect.steps import BEGIN, get_warm, run


def find_row(state: StreamState, operation: Operation, side: Side = Side.SERVER) -> int:
    return state.keys.index(StreamKey(side, operation))


def test_operations_get_rows_in_the_order_in_which_they_appear() -> None:
    cart, home = StreamKey(Side.SERVER, CART), StreamKey(Side.SERVER, HOME)
    state = arrange(build_stream_state(ZONES, START), [home], (), START + 10)
    assert (state.keys, state.first_seen.tolist()) == ((home,), [START + 10])
    state = replace(state, counts=replace(state.counts, faults=np.array([7.0])), frozen=np.array([3.0]))
    both = arrange(state, [cart], (), START + 20)
    assert (both.keys, both.first_seen.tolist()) == ((home, cart), [START + 10, START + 20])
    assert (both.counts.faults.tolist(), both.frozen.tolist()) == ([7.0, 0.0], [3.0, 0.0])
    assert both.counts.evidence.shape == (5, 3, len(ZONES))
    seen = arrange(both, [home], (), START + 30)
    assert seen.last_seen.tolist() == [START + 30, START + 20]


def test_an_operation_without_requests_for_a_day_loses_its_row_and_the_others_keep_theirs() -> None:
    warm = get_warm()
    other = [key for key in warm.keys if key.operation != HOME]
    rows = [warm.keys.index(key) for key in other]
    later = arrange(replace(warm, last_seen=warm.last_seen - 86_000), other, {QUERY}, BEGIN + 500)
    assert later.keys == tuple(other)
    assert np.array_equal(later.counts.requests, warm.counts.requests[rows])
    assert np.array_equal(later.latency.reference, warm.latency.reference[rows])
    assert np.array_equal(later.counts.evidence, warm.counts.evidence[:, [*rows, -1]])
    for before, after in zip(warm.pending, later.pending, strict=True):
        assert np.array_equal(after.values, before.values[:, rows])
    for packed, kept in zip(warm.deploy_faults, later.deploy_faults, strict=True):
        assert np.array_equal(kept, packed[:, [*rows, -1]])
    assert len(later.minutes[0].histograms) == len(rows)


def test_operations_of_a_shared_resource_are_not_those_of_the_service() -> None:
    """They are in one zone, and move to another when the resource fails over."""
    warm = get_warm()
    own = {key for key, is_own in zip(warm.keys, warm.is_server, strict=True) if is_own}
    assert own == {StreamKey(Side.SERVER, CART), StreamKey(Side.SERVER, HOME)}
    undeclared = arrange(warm, warm.keys, (), BEGIN + 10)
    assert undeclared.is_server[find_row(warm, QUERY)]


def test_after_half_an_hour_the_baseline_is_that_of_the_traffic() -> None:
    warm = get_warm()
    assert counts.get_rates(warm.counts).tolist() == pytest.approx([0.005] * 4, rel=0.3)
    shares = warm.throughput.shares / warm.throughput.shares.sum()
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert warm.usual[find_row(warm, CART)].tolist() == pytest.approx([50 * (1 - np.exp(-1))] * 3, rel=0.1)


def test_a_bin_is_learned_ten_minutes_late() -> None:
    """Twice the traffic shows in what was learned only after ten minutes."""
    warm = get_warm()
    row = find_row(warm, CART)
    double = Effect(start=BEGIN, end=np.inf, traffic=2.0)
    windows = list(simulate([double], length=700))
    before, _ = run(warm, windows[:60])
    after, _ = run(before, windows[60:])
    keep = np.exp(-600 / 3600)
    usual = 150.0 * 360 * (1 - keep)
    assert before.counts.requests[row] == pytest.approx(warm.counts.requests[row], rel=0.02), "new bins were learned"
    grown = after.counts.requests[row] - before.counts.requests[row] * np.exp(-100 / 3600)
    assert grown == pytest.approx(10 * 300, rel=0.1)
    assert usual < before.counts.requests[row]


def test_an_operation_is_not_learned_while_there_is_evidence_against_it() -> None:
    warm = get_warm()
    cart, home = find_row(warm, CART), find_row(warm, HOME)
    state, _ = run(warm, simulate([failing(0, 1, 0.05)], length=900))
    assert find_suspicious(state)[cart]
    assert state.frozen[cart] > 0
    quiet, _ = run(warm, simulate(length=900))
    assert not find_suspicious(quiet).any()
    assert quiet.frozen[cart] == quiet.frozen[home] == 0
    assert counts.get_rates(state.counts)[cart] < 1.2 * counts.get_rates(quiet.counts)[cart]


def test_nothing_is_learned_while_a_verdict_is_open_but_after_six_hours_the_change_is_normal() -> None:
    warm = get_warm()
    windows = list(simulate(length=1300))
    open_, _ = run(warm, windows, is_learning=False)
    assert np.array_equal(open_.counts.requests, warm.counts.requests)
    assert open_.frozen.tolist() == [1300.0] * 4
    long_ago = replace(open_, frozen=np.full(4, 6 * 3600.0))
    later, _ = run(long_ago, simulate(start=BEGIN + 1300, length=100), is_learning=False)
    assert not np.array_equal(later.counts.requests, warm.counts.requests)


def test_a_bin_of_a_zone_that_was_out_is_not_learned_when_it_is_back() -> None:
    warm = get_warm()
    state, _ = run(warm, simulate(length=300), zones_out=[1])
    back, _ = run(state, simulate(start=BEGIN + 300, length=700))
    shares = back.throughput.shares / back.throughput.shares.sum()
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert not state.missing[:, 1].any(), "a zone that is out misses nothing"


def test_missing_requests_are_counted_since_the_last_one() -> None:
    warm = get_warm()
    row = find_row(warm, QUERY, Side.CLIENT)

    def without_answers(windows: Iterable[Window]) -> Iterable[Window]:
        return [without_cells(window, Side.CLIENT, QUERY, 0) for window in windows]

    state, _ = run(warm, without_answers(simulate(length=30)))
    assert state.missing[row, 0] == pytest.approx(3 * warm.usual[row, 0], rel=0.02)
    assert state.missing[row, 1:].tolist() == [0, 0]
    back, _ = run(state, simulate(start=BEGIN + 30, length=10))
    assert not back.missing[row].any()


def test_new_operations_give_no_evidence_and_have_no_part_in_the_pool() -> None:
    cart = StreamKey(Side.SERVER, CART)
    warm = get_warm()
    young = replace(warm, first_seen=np.where([key == cart for key in warm.keys], BEGIN - 600, warm.first_seen))
    state, step = run(young, simulate([failing(0, 1, 0.6)], length=60))
    row = find_row(state, CART)
    assert step.is_known.tolist() == [key != cart for key in warm.keys] + [True]
    assert not state.counts.evidence[:, row].any()
    assert not step.fault_step.dispersion.weights[row].any()
    assert state.counts.evidence[:, -1, 1].max() < 2
    known, _ = run(warm, simulate([failing(0, 1, 0.6)], length=60))
    assert known.counts.evidence[:, row, 1].max() > 15


def test_a_gap_forgets_evidence_and_keeps_what_was_learned() -> None:
    warm = get_warm()
    state, _ = run(warm, simulate([failing(0, 1, 0.6)], length=60))
    assert find_suspicious(state).any()
    after = keep_only_baseline(state)
    assert not find_suspicious(after).any()
    assert not after.counts.requests_40s.any()
    assert (after.pending, after.minutes, after.deploy_faults, after.deploy_latency) == ([], [], [], [])
    assert np.array_equal(after.counts.requests, state.counts.requests)
    assert np.array_equal(after.latency.reference, state.latency.reference)
    assert np.array_equal(after.throughput.shares, state.throughput.shares)


def test_measurements_of_instances_follow_the_rows_of_operations() -> None:
    _, step = run(get_warm(), simulate(length=10))
    found = step.instances
    new = StreamKey(Side.SERVER, Operation("New", "One"))
    keys = (new, found.keys[2], found.keys[0])
    [moved] = arrange_instances([found], keys)
    for name in ("requests", "faults", "latencies", "slow", "scores"):
        before, after = getattr(found, name), getattr(moved, name)
        assert not after[0].any()
        assert np.array_equal(after[1:], before[[2, 0]])
    assert np.array_equal(moved.predicted[1:], found.predicted[[2, 0, -1]])
    assert arrange_instances([moved], keys)[0] is moved
    nothing: list[InstanceBin] = arrange_instances([], keys)
    assert nothing == []


def test_packed_evidence_is_exact_to_a_sixteenth_within_its_limits() -> None:
    assert (pack_evidence(np.array([0.5, -1.03, 3.0, -20.0, 20.0])) / 16).tolist() == [0.5, -1.0, 3.0, -8.0, 127 / 16]


def test_latencies_without_a_reference_are_neither_slow_nor_scored() -> None:
    """With fewer than 200 requests, the distribution is not known."""
    empty = build_stream_state(ZONES, START)
    _, step = run(empty, simulate(start=START, length=10))
    assert step.instances.latencies.sum() > 0
    assert not step.instances.scores.any()
    assert not step.instances.slow.any()
    _, later = run(get_warm(), simulate(length=10))
    assert later.instances.scores.any()


def test_two_bins_of_half_a_minute_are_a_minute() -> None:
    first, second = (
        replace_window(window, start=START + 30 * index, seconds=30.0)
        for index, window in enumerate(simulate(start=START, length=20))
    )
    state, _ = run(build_stream_state(ZONES, START), [first])
    assert (state.minute_bins, len(state.minutes)) == (1, 0)
    state, _ = run(state, [second])
    assert (state.minute_bins, len(state.minutes)) == (0, 1)

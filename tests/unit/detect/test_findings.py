"""Which evidence isolates a zone, and which guard holds the rest back."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from holdfast.detect import latency
from holdfast.detect.cusum import Array
from holdfast.detect.findings import (
    Finding,
    Guard,
    GuardConditions,
    Signal,
    find_all,
    find_strongest,
    is_regional,
    outlasts_deploy,
)
from holdfast.detect.streams import StreamState, StreamStep, pack_evidence
from tests.table import every_row
from tests.unit.detect.service import failing, simulate
from tests.unit.detect.steps import (
    BEGIN,
    HOME,
    POOL,
    ZONE,
    build_conditions,
    build_slow_step,
    build_step,
    change_cell,
    change_part,
    get_warm,
    run,
)


def find(step: StreamStep, signal: Signal, row: int, conditions: GuardConditions | None = None) -> Finding:
    [found] = [
        each for each in find_all(step, conditions or build_conditions()) if (each.signal, each.row) == (signal, row)
    ]
    assert found.zone == ZONE
    return found


def test_a_failing_zone_passes_all_guards_and_no_other_zone_has_evidence() -> None:
    found = find_all(build_step(), build_conditions())
    assert {each.zone for each in found} == {ZONE}
    assert find(build_step(), Signal.FAULTS, HOME).guard is None
    pool = find(build_step(), Signal.FAULTS, POOL)
    assert (pool.guard, pool.exceeds_deploy, pool.since) == (None, True, BEGIN)
    assert pool.evidence >= pool.threshold


def test_each_guard_holds_evidence_from_counts_back() -> None:
    state = build_step().state.counts
    other = 2

    def check(row: tuple[Guard, int, Callable[[], dict[str, Any]]]) -> None:
        guard, stream, build = row
        step = change_part(build_step(), "counts", **build())
        assert find(step, Signal.FAULTS, stream).guard is guard

    def set_cell(name: str, stream: int, zone: int, value: float) -> dict[str, Any]:
        return {name: change_cell(getattr(state, name), (stream, zone), value)}

    slow = state.faults_40s[HOME, ZONE]
    expected = state.expected_40s[HOME, ZONE]
    rise = (slow + 0.5) / (expected + 0.5)
    others_expected = state.expected_40s[HOME, other]

    def lift_other(share: float) -> dict[str, Any]:
        """Return the counts with which another zone has this share of the rise of the failing one."""
        return set_cell("faults_40s", HOME, other, share * rise * (others_expected + 0.5) - 0.5)

    # The other zone is as usual at the moment, but was not in the last minutes.
    lasting = state.lasting_expected[HOME, other]
    barely = set_cell("against_others", HOME, ZONE, 11.0)

    every_row(
        [
            (Guard.OTHERS_TOO, HOME, lambda: set_cell("against_others", HOME, ZONE, math.log(200) - 0.1)),
            (
                Guard.OTHERS_TOO,
                HOME,
                lambda: (
                    set_cell("against_others", HOME, other, math.log(200) + 0.1)
                    | set_cell("evidence", HOME, other, 0.1)
                ),
            ),
            (Guard.NOT_WORSE, HOME, lambda: lift_other(0.7)),
            (Guard.UNWELL, HOME, lambda: lift_other(0.3)),
            (Guard.UNWELL, POOL, lambda: set_cell("evidence", POOL, other, 9.0) | pool_rise(0.3)),
            (Guard.UNWELL, HOME, lambda: set_cell("lasting_faults", HOME, other, 2.1 * lasting + 3.0) | barely),
            (Guard.SMALL, HOME, lambda: set_cell("requests_40s", HOME, ZONE, 1e7)),
            (Guard.ENDED, HOME, lambda: set_cell("faults_10s", HOME, ZONE, 0.0)),
        ],
        check,
        lambda row: f"{row[0].name} in stream {row[1]}",
    )

    well = lift_other(0.1) | {"against_others": change_cell(state.against_others, (HOME, ZONE), 16.0)}
    assert find(change_part(build_step(), "counts", **well), Signal.FAULTS, HOME).guard is None
    weak = lift_other(0.1) | {"against_others": change_cell(state.against_others, (HOME, ZONE), 11.0)}
    assert find(change_part(build_step(), "counts", **weak), Signal.FAULTS, HOME).guard is Guard.UNWELL


def pool_rise(share: float) -> dict[str, Any]:
    state = build_step().state.counts
    rise = (state.faults_40s[POOL, ZONE] + 0.5) / (state.expected_40s[POOL, ZONE] + 0.5)
    value = share * rise * (state.expected_40s[POOL, 2] + 0.5) - 0.5
    return {"faults_40s": change_cell(state.faults_40s, (POOL, 2), value)}


def test_after_a_regional_failure_only_the_pool_isolates() -> None:
    regional = build_conditions(regional_until=BEGIN + 61)
    assert find(build_step(), Signal.FAULTS, HOME, regional).guard is Guard.REGIONAL
    assert find(build_step(), Signal.FAULTS, POOL, regional).guard is None
    assert find(build_slow_step(), Signal.LATENCY, POOL, regional).guard is Guard.REGIONAL


def test_a_zone_that_is_out_is_not_one_of_the_others() -> None:
    state = build_step().state.counts
    against_others = change_cell(state.against_others, (HOME, 2), 9.0)
    evidence = change_cell(state.evidence, (HOME, 2), 1.0)
    step = change_part(build_step(), "counts", against_others=against_others, evidence=evidence)
    only_two = np.array([True, True, False])
    assert find(step, Signal.FAULTS, HOME).guard is Guard.OTHERS_TOO
    assert find(step, Signal.FAULTS, HOME, build_conditions(active=only_two)).guard is None


def test_each_guard_holds_evidence_from_latency_back() -> None:
    state = build_slow_step().state.latency
    assert find(build_slow_step(), Signal.LATENCY, HOME).guard is None
    assert find(build_slow_step(), Signal.LATENCY, HOME).exceeds_deploy
    shifts = latency.get_shifts(state, is_latest=False)[HOME]

    def slow_down(zone: int, shift: float) -> dict[str, Any]:
        more = (shift - shifts[zone]) * state.counts_40s[HOME, zone]
        return {"logs_40s": change_cell(state.logs_40s, (HOME, zone), state.logs_40s[HOME, zone] + more)}

    rows: list[tuple[Guard, dict[str, Any]]] = [
        (Guard.OWN_PAST, {"against_past": change_cell(state.against_past, (HOME, ZONE), 5.0)}),
        (Guard.OTHERS_TOO, {"evidence": change_cell(state.evidence, (HOME, 2), 7.0)}),
        (Guard.SMALL, slow_down(ZONE, math.log(1.14))),
        (Guard.NOT_WORSE, slow_down(2, shifts[ZONE] / 2.9)),
        (Guard.ENDED, {"logs_10s": state.log_sums / np.maximum(state.score_counts, 1) * state.counts_10s}),
    ]

    def check(row: tuple[Guard, dict[str, Any]]) -> None:
        assert find(change_part(build_slow_step(), "latency", **row[1]), Signal.LATENCY, HOME).guard is row[0]

    every_row(rows, check, lambda row: row[0].name)


def test_evidence_that_a_deploy_explains_is_held_back_where_one_may_run() -> None:
    """Few requests are affected, because the zone has many other ones."""
    requests = change_cell(build_step().state.counts.requests_10s, (POOL, ZONE), 1e6)
    quiet = change_part(build_step(), "counts", requests_10s=requests)
    assert find(quiet, Signal.FAULTS, HOME).guard is Guard.DEPLOY
    elsewhere = np.array([True, False, True])
    assert find(quiet, Signal.FAULTS, HOME, build_conditions(must_outlast_deploy=elsewhere)).guard is None
    recent = [pack_evidence(np.full((2, POOL + 1, 3), 2.0)) for _ in range(60)]
    lasting = replace(quiet, state=replace(quiet.state, deploy_faults=recent))
    found = find(lasting, Signal.FAULTS, HOME)
    assert (found.guard, found.exceeds_deploy) == (None, False)


def repeat(*parts: tuple[int, float]) -> list[Array]:
    """Return the evidence of bins for one rise."""
    return [np.array([value]) for number, value in parts for _ in range(number)]


@pytest.mark.parametrize(
    ("recent", "needed", "expected"),
    [
        (repeat((19, 3.0)), 1.0, False),  # as long as a deploy
        (repeat((20, 3.0)), 3.0, True),  # ten seconds longer
        (repeat((20, 3.0)), 3.1, False),
        (repeat((19, 3.0), (10, 0.5)), 5.0, True),
        (repeat((19, 3.0), (10, 0.5)), 5.1, False),
        (repeat((10, 3.0), (20, -0.1), (9, 3.0)), 1.0, True),  # the best minutes are those of both bursts
        (repeat((25, 3.0), (3, -0.1)), 5.0, False),  # it has ended
        (repeat((30, 3.0), (40, -3.0), (10, 3.0)), 1.0, False),  # the evidence was zero in between
        ([], 1.0, False),
        ([np.array([-1.0, 1.0])] * 30, 11.0, True),  # any of the rises suffices
    ],
)
def test_evidence_outlasts_a_deploy_if_enough_remains_without_its_best_minutes(
    recent: list[Array], needed: float, expected: bool
) -> None:
    assert outlasts_deploy(recent, needed, 10.0) is expected


def with_throughput(zone: int, evidence: float, predicted: float, silent_bins: float = 0.0) -> StreamStep:
    step = build_step()
    found = step.state.throughput
    state = replace(
        found,
        evidence=np.where(np.arange(3) == zone, evidence, 0.0) * np.ones((3, 1)),
        silent_bins=np.where(np.arange(3) == zone, silent_bins, 0.0),
        rising_bins=np.full(3, 4.0),
    )
    return replace(step, state=replace(step.state, throughput=state), predicted_requests=np.full(3, predicted))


def test_a_drop_of_traffic_isolates_where_enough_is_expected_and_silence_does_not() -> None:
    found = find(with_throughput(ZONE, 30.0, 100.0), Signal.THROUGHPUT, POOL)
    assert (found.guard, found.since, found.exceeds_deploy) == (None, BEGIN + 20, True)
    assert find(with_throughput(ZONE, 30.0, 99.0), Signal.THROUGHPUT, POOL).guard is Guard.TRAFFIC
    silent = find_all(with_throughput(ZONE, 30.0, 100.0, silent_bins=1.0), build_conditions())
    assert Signal.THROUGHPUT not in {each.signal for each in silent}


def test_the_strongest_evidence_of_every_zone_and_signal_is_shown() -> None:
    found = {(each.zone, each.signal): each for each in find_strongest(build_step(), build_conditions())}
    assert len(found) == 3 * 4
    assert found[ZONE, Signal.FAULTS].evidence > 15
    assert found[0, Signal.FAULTS].evidence < 5
    assert found[0, Signal.FAULTS].guard is Guard.EVIDENCE
    assert all(each.evidence >= 0 for each in found.values())
    step = replace(build_step(), is_known=np.zeros(POOL + 1, np.bool_))
    guards = {each.guard for each in find_strongest(step, build_conditions()) if each.signal is Signal.FAULTS}
    assert guards == {Guard.LEARNING}


def test_two_zones_that_are_worse_than_usual_are_regional_by_faults_or_by_latency() -> None:
    assert not is_regional(build_step().state)
    both, _ = run(get_warm(), simulate([failing(slice(0, 2), slice(0, 2), 0.2)], length=60))
    assert is_regional(both)
    assert not is_regional(get_warm())
    state: StreamState = build_slow_step().state
    past = state.latency.against_past.copy()
    past[:, POOL, 2] = past[:, POOL, ZONE]
    assert not is_regional(state)
    assert is_regional(replace(state, latency=replace(state.latency, against_past=past)))


def test_a_slowdown_that_all_zones_have_is_not_that_of_a_zone() -> None:
    """Two of the zones are three times as slow, and the third a little more. A deploy explains the difference."""
    state = build_slow_step().state.latency
    logs = state.logs_10s + math.log(2.5) * state.counts_10s
    logs[:, ZONE] = state.logs_10s[:, ZONE]
    step = change_part(build_slow_step(), "latency", logs_10s=logs)
    assert find(build_slow_step(), Signal.LATENCY, POOL).exceeds_deploy
    assert not find(step, Signal.LATENCY, POOL).exceeds_deploy
    alone = np.array([False, True, False])
    assert find(step, Signal.LATENCY, POOL, build_conditions(active=alone)).exceeds_deploy

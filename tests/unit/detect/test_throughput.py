"""Zones that get less traffic than their share, or none."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.detect.counts import fit_dispersion
from holdfast.detect.cusum import Mask
from holdfast.detect.throughput import (
    ThroughputState,
    advance_throughput,
    build_throughput_state,
    find_silent,
    get_evidence,
    get_isolating_evidence,
    has_moved,
    learn_shares,
)

ZONES = 3
EVERY = np.ones(ZONES, np.bool_)
THRESHOLD = 16.0
REMAINING_SHARES, MARGIN = (0.5, 0.2, 0.02), 0.7


def without(zone: int) -> Mask:
    return np.array([each != zone for each in range(ZONES)])


def learn(*requests: float, bins: int = 400) -> ThroughputState:
    state = build_throughput_state(ZONES)
    for _ in range(bins):
        state = learn_shares(state, np.array(requests), EVERY, EVERY, 10.0)
    return state


def run(state: ThroughputState, *bins: tuple[float, float, float], active: Mask = EVERY) -> ThroughputState:
    for requests in bins:
        state = advance_throughput(state, np.array(requests), active, THRESHOLD, 10.0).state
    return state


requests_by_zone = st.tuples(*[st.integers(0, 400)] * ZONES)


@settings(max_examples=40)
@given(requests_by_zone, st.lists(requests_by_zone, min_size=1, max_size=5), st.tuples(*[st.booleans()] * ZONES))
def test_the_evidence_is_that_of_the_formula(
    usual: tuple[int, ...], bins: list[tuple[int, ...]], given_active: tuple[bool, ...]
) -> None:
    state = learn(*map(float, usual), bins=3)
    active = np.array(given_active)
    for requests in bins:
        clump, noise = fit_dispersion(state.fit)
        n = [float(count) * is_active for count, is_active in zip(requests, given_active, strict=True)]
        shares = [float(share) * is_active for share, is_active in zip(state.shares, given_active, strict=True)]
        before = state.evidence
        step = advance_throughput(state, np.array(requests, float), active, THRESHOLD, 10.0)
        for zone in range(ZONES):
            share = shares[zone] / sum(shares) if sum(shares) else 0.0
            m = (sum(n) - n[zone]) * share / (1 - share) if share < 1 else 0.0
            assert step.predicted[zone] == pytest.approx(m)
            for row, drop in enumerate(REMAINING_SHARES):
                k, kappa = n[zone] / clump, 1 / (noise + 1 / max(sum(n) - n[zone], 1.0))
                surprise = k * math.log(drop / MARGIN)
                surprise -= (k + kappa) * math.log((kappa + drop * m / clump) / (kappa + MARGIN * m / clump))
                total = 0.995 * max(before[row, zone], 0.0) + min(surprise * given_active[zone], 0.6 * THRESHOLD)
                assert step.state.evidence[row, zone] == pytest.approx(min(total, THRESHOLD + 6), abs=1e-9)
        state = step.state


def test_a_zone_is_silent_after_three_bins_without_requests() -> None:
    usual = (60.0, 60.0, 60.0)
    state = run(learn(*usual), usual, usual)
    assert not find_silent(run(state, (60, 60, 0), (60, 60, 0)), 10.0).any()
    silent = run(state, (60, 60, 0), (60, 60, 0), (60, 60, 0))
    assert find_silent(silent, 10.0).tolist() == [False, False, True]
    assert not find_silent(silent, 5.0).any(), "three short bins are a short pause"
    assert silent.silent_bins.tolist() == [0, 0, 3]
    assert silent.moved[:2].tolist() == [0, 0]
    assert silent.moved[2] < 0, "the others have no more than usual"
    assert not find_silent(run(silent, usual), 10.0).any()
    assert not find_silent(run(state, *[(60.0, 60.0, 0.0)] * 3, active=without(2)), 10.0).any(), "it is out"


def test_a_zone_with_hardly_any_traffic_is_not_called_silent() -> None:
    state = run(learn(100.0, 100.0, 0.3), *[(100.0, 100.0, 0.0)] * 5)
    assert not find_silent(state, 10.0).any()
    never = run(learn(100.0, 100.0, 0.0), *[(100.0, 100.0, 0.0)] * 9)
    assert never.silent_bins.tolist() == [0, 0, 0]


def test_a_drop_of_a_half_is_shown_but_does_not_isolate() -> None:
    usual = (300.0, 300.0, 300.0)
    known = run(learn(*usual), *[usual] * 60)
    half = run(known, *[(300.0, 300.0, 140.0)] * 30)
    assert get_evidence(half)[2] > THRESHOLD > get_isolating_evidence(half)[2]
    most = run(known, *[(300.0, 300.0, 50.0)] * 4)
    assert get_isolating_evidence(most)[2] > THRESHOLD


def test_a_common_rise_and_fall_of_traffic_is_no_evidence() -> None:
    state = run(learn(300.0, 300.0, 300.0), *[(300.0 * f, 300.0 * f, 300.0 * f) for f in (1, 3, 0.2, 0.1, 5)])
    assert (get_evidence(state) <= 0).all()


def test_the_usual_traffic_of_the_others_counts_beside_their_few_requests_in_a_silence() -> None:
    usual = (5.0, 5.0, 5.0)
    state = run(learn(*usual), *[usual] * 60)
    few = run(state, (3.0, 4.0, 0.0), (4.0, 3.0, 0.0), (5.0, 3.0, 0.0))
    assert few.silence[2] > 7 > get_evidence(few)[2], "7 requests are few by chance, if 10 are usual"
    assert find_silent(few, 10.0).tolist() == [False, False, True]
    assert run(few, usual).silence.tolist() == [0.0] * ZONES


def test_a_fall_of_all_traffic_is_no_silence_of_a_zone() -> None:
    usual = (5.0, 5.0, 5.0)
    state = run(learn(*usual), *[usual] * 60)
    night = run(state, *[(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)])
    assert not find_silent(night, 10.0).any()
    assert not find_silent(run(state, *[(0.0, 0.0, 0.0)] * 5), 10.0).any(), "the traffic of all zones has ended"


def test_bursts_of_all_traffic_are_no_evidence_even_if_they_are_usual() -> None:
    state = learn(60.0, 20.0, 20.0)
    for factor in (1.0, 10.0) * 30:
        state = run(state, *[(60.0 * factor, 20.0 * factor, 20.0 * factor)] * 30)
        assert (get_evidence(state) <= 0).all()
    assert (get_evidence(run(state, *[(4.0, 1.0, 1.0)] * 30)) < THRESHOLD).all()


def test_shares_are_learned_from_bins_in_which_all_zones_have_theirs() -> None:
    state = learn(100.0, 100.0, 200.0)
    assert (state.shares / state.shares.sum()).tolist() == pytest.approx([0.25, 0.25, 0.5])
    moved = np.array([200.0, 200.0, 0.0])
    assert learn_shares(state, moved, EVERY, without(2), 10.0) is state, "the zone was out"
    assert learn_shares(state, np.zeros(ZONES), EVERY, EVERY, 10.0) is state, "there was no traffic"
    later = learn_shares(state, moved, EVERY, EVERY, 10.0)
    assert later.shares.tolist() == pytest.approx((state.shares * math.exp(-10 / 1800) + moved).tolist())
    new = learn_shares(build_throughput_state(ZONES), moved, EVERY, without(2), 10.0)
    assert new.shares.tolist() == moved.tolist(), "a zone that was always out has no share that could be forgotten"


def test_a_suspicious_share_is_the_new_normal_after_six_hours() -> None:
    state = learn(100.0, 100.0, 100.0)
    changed, suspicious = np.array([100.0, 100.0, 20.0]), without(2)
    for _ in range(2160):
        state = learn_shares(state, changed, suspicious, EVERY, 10.0)
    assert (state.shares[2] / state.shares.sum(), state.frozen) == (pytest.approx(1 / 3), 21_600)
    for _ in range(720):
        state = learn_shares(state, changed, suspicious, EVERY, 10.0)
    assert state.shares[2] / state.shares.sum() < 0.12
    assert learn_shares(state, changed, EVERY, EVERY, 10.0).frozen == 0


def test_traffic_has_moved_if_the_others_get_the_share_of_a_silent_zone() -> None:
    state = run(learn(100.0, 100.0, 100.0), *[(100.0, 100.0, 100.0)] * 60)
    assert not has_moved(state, 2, 0.2), "it is not silent"
    stalled = run(state, *[(100.0, 100.0, 0.0)] * 3)
    assert stalled.levels.tolist() == pytest.approx([100.0] * 3, rel=0.02), "a silent zone does not change the levels"
    assert not has_moved(stalled, 2, 0.2)
    assert has_moved(run(state, *[(150.0, 150.0, 0.0)] * 3), 2, 0.2)
    assert not has_moved(run(state, *[(115.0, 115.0, 0.0)] * 30), 2, 0.2), "far less than its share"
    assert not has_moved(run(learn(0.0, 0.0, 0.0), *[(150.0, 150.0, 0.0)] * 3), 2, 0.2), "it never had any"
    few = run(learn(2.0, 2.0, 2.0), *[(2.0, 2.0, 2.0)] * 60)
    assert not has_moved(run(few, *[(3.0, 3.0, 0.0)] * 3), 2, 0.2), "chance explains it"
    assert has_moved(run(few, *[(3.0, 3.0, 0.0)] * 30), 2, 0.2)


def test_traffic_has_not_moved_if_only_one_of_the_other_zones_has_more() -> None:
    state = run(learn(700.0, 200.0, 100.0), *[(700.0, 200.0, 100.0)] * 60)
    assert has_moved(run(state, *[(778.0, 222.0, 0.0)] * 7), 2, 0.2)
    scaled = run(state, *[(1050.0, 200.0, 100.0)] * 2, *[(1050.0, 200.0, 0.0)] * 7)
    assert not has_moved(scaled, 2, 0.2), "the first zone was scaled shortly before the third one's telemetry stalled"
    assert not has_moved(run(state, *[(700.0, 300.0, 0.0)] * 7), 2, 0.2)


def test_the_levels_follow_the_day_while_a_zone_has_less_than_its_share() -> None:
    """The third zone is scaled down for an hour, in which the traffic of the others rises slowly by a tenth."""
    state = run(learn(700.0, 200.0, 100.0), *[(700.0, 200.0, 100.0)] * 60)
    for number in range(360):
        day = 1 + number / 3600
        state = run(state, (980.0 * day, 200.0 * day, 60.0))
    assert state.levels.tolist() == pytest.approx([1062.0, 217.0, 60.0], rel=0.02)
    assert not has_moved(run(state, *[(1078.0, 220.0, 0.0)] * 5), 2, 0.2), "its telemetry stalls"


def test_traffic_that_fluctuates_for_minutes_has_not_moved() -> None:
    """All zones together often have a fifth more or less than usual, for ten minutes each time."""
    state = learn(1000.0, 1000.0, 200.0)
    for factor in (0.8, 1.2) * 30:
        state = run(state, *[(1000.0 * factor, 1000.0 * factor, 200.0 * factor)] * 60)
    assert not has_moved(run(state, *[(1200.0, 1200.0, 0.0)] * 5), 2, 0.2)
    steady = run(learn(1000.0, 1000.0, 200.0), *[(1000.0, 1000.0, 200.0)] * 720)
    assert has_moved(run(steady, *[(1200.0, 1200.0, 0.0)] * 5), 2, 0.2)


def test_a_rise_of_the_traffic_some_minutes_after_a_zone_fell_silent_has_another_reason() -> None:
    state = run(learn(100.0, 100.0, 100.0), *[(100.0, 100.0, 100.0)] * 60)
    later = run(state, *[(100.0, 100.0, 0.0)] * 30, *[(150.0, 150.0, 0.0)] * 30)
    assert not has_moved(later, 2, 0.2)
    kept = run(state, *[(150.0, 150.0, 0.0)] * 10, *[(100.0, 100.0, 0.0)] * 60)
    assert kept.moved[2] == run(kept, (100.0, 100.0, 0.0)).moved[2]


def test_a_zone_with_all_of_the_traffic_moves_it_nowhere() -> None:
    state = run(learn(0.0, 0.0, 100.0), *[(0.0, 0.0, 100.0)] * 60)
    assert run(state, *[(0.0, 0.0, 0.0)] * 3).moved.tolist() == [0, 0, 0]


def test_the_level_follows_the_traffic_although_a_zone_is_never_used() -> None:
    state = run(learn(100.0, 100.0, 0.0), *[(100.0, 100.0, 0.0)] * 3, *[(200.0, 200.0, 0.0)] * 300)
    assert state.levels.sum() == pytest.approx(400.0, rel=0.01)

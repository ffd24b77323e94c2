"""The calibrated detector as a whole, on a simulated service: which verdict, when, and in which words.

Some tests need more than a second: before a scenario begins, the detector learns for half an hour, or 180 windows.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from holdfast import Side, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect.calibration import CalibratedState
from holdfast.detect.detectors.calibrated import CalibratedDetector
from holdfast.detect.encoding import decode_state, encode_state
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry import Deployment, SharedResource, Window
from tests.unit.detect.service import (
    CART,
    HOME,
    ONE,
    QUERY,
    START,
    THREE,
    TWO,
    WARM,
    ZONES,
    by_cell,
    failing,
    find_first,
    kinds,
    silence,
    simulate,
    warm_up,
    watch,
    without_cells,
)

BOTH = slice(0, 2)
"""The two operations of the service itself."""
ALL = slice(0, 3)
BEGIN = START + WARM


def after(verdict: Verdict) -> float:
    """Return the seconds from the begin of the failure to the verdict."""
    return verdict.at - BEGIN


def test_the_first_half_hour_is_one_unknown_verdict() -> None:
    """With an id of its own for each window, half an hour would be 180 verdicts."""
    verdicts, state = watch(simulate(start=START, length=100))
    assert kinds(verdicts) == ["unknown"]
    assert {each.id for each in verdicts} == {f"shop/unknown/unknown/{START:.12g}"}
    assert verdicts[0].summary == "learning the usual behaviour until 22:50:10 UTC"
    assert state.verdict is None, "it learns"


def test_a_failing_zone_is_isolated_with_a_sentence_that_says_what_fails() -> None:
    verdicts, state = watch(simulate([failing(BOTH, 1, 0.6)], length=120), warm_up())
    assert kinds(verdicts) == ["healthy", "isolated"]
    found = find_first(verdicts, "isolated")
    assert (found.zone, found.since, found.resource) == (TWO, BEGIN, None)
    assert after(found) <= 30
    assert found.summary.startswith("use1-az2 fails 43 % of Cart/Add, the others 0.3 %; ")
    assert found.summary.endswith("3 of 3 instances; since 22:50:00 UTC")
    assert {each.id for each in verdicts if each.kind == "isolated"} == {found.id}
    assert state.verdict is not None
    evidence = found.evidence[TWO]["faults"]
    assert evidence["evidence"] >= evidence["needed"]
    assert evidence["held_back"] is None
    assert found.evidence[ONE]["faults"]["held_back"] == "there is too little evidence"


def test_a_slow_zone_is_isolated() -> None:
    slow = Effect(start=BEGIN, end=np.inf, latency=by_cell(slice(None), 2, 2.0, 1.0))
    verdicts, _ = watch(simulate([slow], length=120), warm_up())
    found = find_first(verdicts, "isolated")
    assert (found.zone, kinds(verdicts)) == (THREE, ["healthy", "isolated"])
    assert "use1-az3 takes 2." in found.summary or "use1-az3 takes 1.9" in found.summary
    assert "the others 1.0 times" in found.summary


def test_one_failing_instance_is_named_and_its_zone_is_not_isolated() -> None:
    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.9, instance=1)], length=180), warm_up())
    assert kinds(verdicts) == ["healthy", "instance"]
    found = find_first(verdicts, "instance")
    assert found.zone == TWO
    assert found.summary.startswith("use1-az2-i1 in use1-az2 fails")
    assert "the other 2 instances of the zone do not" in found.summary
    assert found.evidence[TWO]["worst_instances"] == ["use1-az2-i1"]


def test_faults_of_the_other_instances_before_the_failure_do_not_blame_the_zone() -> None:
    """A short burst of the whole zone, and three minutes later one instance fails."""
    effects = [failing(BOTH, 1, 0.3, end=BEGIN + 10), failing(BOTH, 1, 0.9, start=BEGIN + 190, instance=1)]
    verdicts, _ = watch(simulate(effects, length=370), warm_up())
    assert kinds(verdicts) == ["healthy", "instance"]


def test_a_zone_with_one_instance_says_that_the_two_cannot_be_told_apart() -> None:
    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.6)], instances=1, length=60), warm_up(1))
    found = find_first(verdicts, "isolated")
    assert found.zone == TWO
    assert "; the zone has only one instance, which may be what fails; since " in found.summary


def test_two_failing_zones_are_regional() -> None:
    verdicts, _ = watch(simulate([failing(BOTH, BOTH, 0.3)], length=120), warm_up())
    assert kinds(verdicts) == ["healthy", "regional"]
    found = find_first(verdicts, "regional")
    assert found.zone is None
    assert found.summary.startswith("use1-az1, use1-az2: several zones are worse than usual in ")


@pytest.mark.parametrize(
    ("effects", "kind", "observability"),
    [
        ([], "healthy", "healthy"),
        ([failing(2, ALL, 0.3)], "shared", "gray"),
        ([failing(2, ALL, 0.3), failing(3, ALL, 0.3)], "shared", "detected"),
        ([failing(3, 1, 0.3)], "healthy", "masked"),
    ],
)
def test_a_shared_resource_is_seen_by_its_consumers_and_by_itself(
    effects: Sequence[Effect], kind: str, observability: str
) -> None:
    """Only its own zone has its own measurements. It fails there, but that does not make it a failure of the zone."""
    verdicts, _ = watch(simulate(effects, length=100), warm_up())
    assert kinds(verdicts)[-1] == kind
    assert verdicts[-1].evidence["primary-database"]["observability"] == observability
    if kind == "shared":
        found = find_first(verdicts, "shared")
        assert (found.zone, found.resource) == (TWO, "primary-database")
        assert found.summary.startswith("consumers of primary-database, which is in use1-az2, are affected in use1-az1")
        assert "fail it over, do not evacuate a zone" in found.summary
        assert after(found) <= 30


def test_consumers_that_get_no_answers_are_affected() -> None:
    def without_answers(window: Window) -> Window:
        return without_cells(without_cells(window, Side.CLIENT, QUERY, 0), Side.CLIENT, QUERY, 2)

    verdicts, _ = watch(simulate(length=60), warm_up(), without_answers)
    found = find_first(verdicts, "shared")
    assert after(found) == 30, "one or two bins may be missing for other reasons"
    assert "no answers in use1-az1, use1-az3" in found.summary


@pytest.mark.no_cover
def test_a_resource_that_is_rarely_used_is_not_blamed_for_pauses() -> None:
    """One request in five minutes, in each zone: several minutes without a request are no failure."""
    rare = SharedResource("report-store", (HOME,))

    def rarely(window: Window) -> Window:
        own = window.cells[Side.SERVER]
        requests = np.zeros_like(own.requests)
        requests[window.operations.index(HOME), :, 0] = int(window.start) % 300 == 0
        client = replace(own, requests=requests, faults=np.zeros_like(requests))
        return replace(window, cells={**window.cells, Side.CLIENT: client}, resources=(rare,))

    verdicts, _ = watch(simulate(start=START, length=WARM + 600, instances=1), change=rarely)
    assert kinds(verdicts) == ["unknown", "healthy"]


def test_a_silent_zone_is_unknown_until_the_others_get_its_traffic() -> None:
    verdicts, _ = watch(simulate(length=60), warm_up(), lambda window: silence(window, 2))
    assert kinds(verdicts) == ["healthy", "unknown"]
    found = find_first(verdicts, "unknown")
    assert (found.zone, found.since, after(found)) == (THREE, BEGIN, 30)
    assert found.summary == (
        "use1-az3 reports no requests since 22:50:00 UTC: it may have failed, or only its telemetry"
    )
    moved = Effect(start=BEGIN, end=np.inf, traffic=1.5)
    verdicts, _ = watch(simulate([moved], length=60), warm_up(), lambda window: silence(window, 2))
    found = find_first(verdicts, "isolated")
    assert (found.zone, after(found)) == (THREE, 30)
    assert found.summary.endswith("and the other zones get its traffic")


def test_a_silent_zone_is_isolated_if_canaries_fail_there() -> None:
    def fail_canaries(window: Window) -> Window:
        window = silence(window, 2)
        own = window.cells[Side.SERVER]
        requests = np.zeros_like(own.requests)
        requests[0, :, 0] = 1
        faults = np.zeros_like(requests)
        faults[0, 2, 0] = 1
        canary = replace(own, requests=requests, faults=faults)
        return replace(window, cells={**window.cells, Side.CANARY: canary})

    verdicts, _ = watch(simulate(length=60), warm_up(), fail_canaries)
    found = find_first(verdicts, "isolated")
    assert (found.zone, found.summary.rpartition(" and ")[2]) == (THREE, "canaries fail")


def test_a_stall_of_telemetry_never_isolates() -> None:
    """It ends, and the verdict ends five minutes later."""
    for length in (30, 90):

        def stall(window: Window, until: float = BEGIN + length) -> Window:
            return silence(window, 2) if window.start < until else window

        verdicts, _ = watch(simulate(length=480), warm_up(), stall)
        assert kinds(verdicts) == ["healthy", "unknown", "healthy"]
        assert verdicts[-1].kind is VerdictKind.HEALTHY


def test_two_silent_zones_are_unknown_and_so_is_a_single_zone_with_data() -> None:
    verdicts, _ = watch(simulate(length=60), warm_up(), lambda window: silence(silence(window, 2), 1))
    assert kinds(verdicts) == ["unknown"]
    assert verdicts[0].summary.startswith("fewer than two zones report requests")
    assert len({each.id for each in verdicts}) == 1
    one_is_out = {ONE: ZoneState.OUT}
    verdicts, _ = watch(simulate(length=60), warm_up(), lambda window: replace(silence(window, 2), states=one_is_out))
    assert kinds(verdicts) == ["unknown"]
    slowly, _ = watch(
        simulate(length=60), warm_up(), lambda window: silence(window, 2) if window.start < BEGIN else window
    )
    assert kinds(slowly) == ["healthy"]


def test_unknown_without_data_ends_with_the_next_window_that_has_data() -> None:
    def without_data(window: Window) -> Window:
        return replace(window, cells={}, operations=(), instances=((),) * 3) if window.start < BEGIN + 30 else window

    verdicts, state = watch(simulate(length=60), warm_up(), without_data)
    assert kinds(verdicts) == ["unknown", "healthy"]
    assert [each.kind for each in verdicts[:4]] == ["unknown"] * 3 + ["healthy"]
    assert state.verdict is None

    def without_second(window: Window) -> Window:
        is_second = window.start == BEGIN + 10
        return replace(window, cells={}, operations=(), instances=((),) * 3) if is_second else window

    verdicts, _ = watch(simulate([failing(0, 1, 0.2)], length=60), warm_up(), without_second)
    before, after_gap = (verdicts[index].evidence[TWO]["faults"]["evidence"] for index in (0, 2))
    assert after_gap > before > 1, "the evidence from before still counts"


def test_an_open_verdict_survives_windows_without_data() -> None:
    def without_data(window: Window) -> Window:
        is_gone = BEGIN + 60 <= window.start < BEGIN + 90
        return replace(window, cells={}, operations=(), instances=((),) * 3) if is_gone else window

    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.6)], length=180), warm_up(), without_data)
    assert kinds(verdicts) == ["healthy", "isolated"]
    assert len({each.id for each in verdicts if each.kind == "isolated"}) == 1


def announce(zone: Zone | None, end: float) -> "Deployment":
    return Deployment(zone, BEGIN, BEGIN + end)


def test_a_weak_failure_must_outlast_a_deploy_unless_deploys_are_announced() -> None:
    weak = [failing(BOTH, 1, 0.06)]
    unannounced, _ = watch(simulate(weak, length=400), warm_up())
    held = unannounced[12].evidence[TWO]["faults"]
    assert held["held_back"] == "a deploy could explain it: it must last longer than three minutes"
    assert after(find_first(unannounced, "isolated")) > 190
    announced, _ = watch(simulate(weak, length=400), warm_up(), deploys_are_announced=True)
    assert after(find_first(announced, "isolated")) < 150


@pytest.mark.parametrize(("zone", "is_held"), [(TWO, True), (None, True), (ONE, False)])
def test_an_announced_deploy_holds_back_its_own_zone_only(zone: Zone | None, is_held: bool) -> None:
    def deploy(window: Window) -> Window:
        return replace(window, deployments=(announce(zone, 100.0),))

    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.06)], length=180), warm_up(), deploy, deploys_are_announced=True)
    assert kinds(verdicts)[-1] == ("healthy" if is_held else "isolated")


def test_a_deploy_that_fails_some_requests_for_three_minutes_isolates_nothing() -> None:
    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.06, end=BEGIN + 170)], length=480), warm_up())
    assert kinds(verdicts) == ["healthy"]


def take_out(window: Window, since: float, until: float = np.inf) -> Window:
    if not since <= window.start < until:
        return window
    return replace(silence(window, 1), states={TWO: ZoneState.OUT})


def test_a_zone_that_is_out_is_no_evidence_and_its_verdict_stays_open() -> None:
    verdicts, state = watch(
        simulate([failing(BOTH, 1, 0.6, end=BEGIN + 900)], length=1020),
        warm_up(),
        lambda window: take_out(window, BEGIN + 60, BEGIN + 600),
    )
    found = find_first(verdicts, "isolated")
    assert kinds(verdicts) == ["healthy", "isolated"]
    assert {each.id for each in verdicts[3:]} == {found.id}
    assert state.verdict is not None


def test_a_zone_that_is_out_though_healthy_leaves_the_others_healthy() -> None:
    verdicts, _ = watch(simulate(length=300), warm_up(), lambda window: take_out(window, BEGIN))
    assert kinds(verdicts) == ["healthy"]


def test_another_failing_zone_while_one_is_out_is_regional() -> None:
    verdicts, _ = watch(
        simulate([failing(BOTH, 0, 0.6, start=BEGIN + 120)], length=240),
        warm_up(),
        lambda window: take_out(window, BEGIN),
    )
    assert kinds(verdicts) == ["healthy", "regional"]
    found = find_first(verdicts, "regional")
    assert found.summary == "use1-az1: worse than usual while use1-az2 is out"


def test_a_zone_that_returns_with_little_traffic_is_not_missing_any() -> None:
    """While a zone returns, it may have any share of the traffic. Its faults count."""
    little = Effect(start=BEGIN, end=np.inf, traffic=by_cell(slice(None), 1, 0.1, 1.0))

    def returning(window: Window) -> Window:
        return replace(window, states={TWO: ZoneState.RETURNING})

    verdicts, _ = watch(simulate([little], length=300), warm_up(), returning)
    assert kinds(verdicts) == ["healthy"]
    verdicts, _ = watch(simulate([failing(BOTH, 1, 0.6)], length=60), warm_up(), returning)
    assert (verdicts[-1].kind, verdicts[-1].zone) == (VerdictKind.ISOLATED, TWO)


@pytest.mark.no_cover
def test_a_zone_that_was_out_for_long_comes_back_without_suspicion_of_the_others() -> None:
    """Its share of the traffic was not forgotten while it had none."""
    verdicts, state = watch(simulate(length=2700), warm_up(), lambda window: take_out(window, BEGIN, BEGIN + 1800))
    assert kinds(verdicts) == ["healthy"]
    assert state.streams is not None
    shares = state.streams.throughput.shares
    assert (shares / shares.sum()).tolist() == pytest.approx([1 / 3] * 3, abs=0.05)
    assert state.streams.throughput.evidence.max() < 7


def test_a_verdict_closes_five_minutes_after_its_evidence_has_ended() -> None:
    verdicts, state = watch(simulate([failing(BOTH, 1, 0.6, end=BEGIN + 60)], length=900), warm_up())
    assert kinds(verdicts) == ["healthy", "isolated", "healthy"]
    last = [after(each) for each in verdicts if each.kind == "isolated"][-1]
    assert 60 + 290 <= last <= 60 + 290 + 60, "some seconds pass until the failure seems to be over"
    assert state.verdict is None


def test_evidence_from_before_a_gap_does_not_count() -> None:
    before = list(simulate([failing(BOTH, 1, 0.6)], length=10))
    _, state = watch(before, warm_up())
    at_once, _ = watch(simulate([failing(BOTH, 1, 0.6)], start=BEGIN + 10, length=10, seed=2), state)
    later, _ = watch(simulate([failing(BOTH, 1, 0.6)], start=BEGIN + 110, length=10, seed=2), state)
    assert (kinds(at_once), kinds(later)) == (["isolated"], ["healthy"])


def test_after_a_day_without_windows_everything_is_learned_again() -> None:
    verdicts, _ = watch(simulate(start=BEGIN + 90_000, length=20), warm_up())
    assert kinds(verdicts) == ["unknown"]


def test_a_repeated_window_changes_nothing() -> None:
    windows = list(simulate([failing(BOTH, 1, 0.6)], length=60))
    verdicts, state = watch(windows, warm_up())
    again, same = watch(windows[-1:], state)
    assert (again[0].id, same is state) == (verdicts[-1].id, True)
    nothing, same = watch(list(simulate(start=BEGIN - 10, length=10)), warm_up())
    assert (nothing[0].kind, nothing[0].summary) == (VerdictKind.UNKNOWN, "this window was evaluated before")
    assert same is warm_up()


def test_a_clock_that_is_set_back_costs_evidence_but_nothing_that_was_learned() -> None:
    """Windows of an hour ago would else be taken for repeated ones, for an hour."""
    hour_ago = BEGIN - 3600
    failure = failing(BOTH, 1, 0.6, start=hour_ago + 60)
    verdicts, state = watch(simulate([failure], start=hour_ago, length=120), warm_up())
    assert kinds(verdicts) == ["healthy", "isolated"]
    assert find_first(verdicts, "isolated").since == hour_ago + 60
    assert state.seen_until == hour_ago + 120
    new, _ = watch(simulate(start=hour_ago, length=10), CalibratedState(seen_until=BEGIN))
    assert kinds(new) == ["unknown"]


def test_other_zones_are_learned_anew() -> None:
    verdicts, state = watch(
        simulate(length=20), warm_up(), lambda window: replace(window, zones=(ONE, TWO, Zone("use1-az4")))
    )
    assert kinds(verdicts) == ["unknown"]
    assert state.streams is not None
    assert state.streams.zones == (ONE, TWO, Zone("use1-az4"))


def without_operation(window: Window) -> Window:
    for zone in range(3):
        window = without_cells(window, Side.SERVER, CART, zone)
    return window


def test_a_new_operation_is_learned_while_the_others_are_watched() -> None:
    """It comes in the middle of a failure: the measurements of instances before it have no row for it."""
    _, state = watch(simulate(start=START, length=WARM, seed=7), change=without_operation)
    verdicts, state = watch(
        simulate([failing(slice(0, 4), 1, 0.6)], length=120),
        state,
        lambda window: without_operation(window) if window.start < BEGIN + 10 else window,
    )
    assert kinds(verdicts) == ["healthy", "isolated"]
    found = find_first(verdicts, "isolated")
    assert "Cart/Add" not in found.summary
    assert state.streams is not None
    assert len(state.streams.keys) == 4


def test_an_operation_without_requests_for_a_day_is_forgotten() -> None:
    _, state = watch(simulate(length=10), warm_up())
    assert state.streams is not None
    last_seen = state.streams.last_seen - 86_400.0
    is_cart = np.array([key.operation == CART for key in state.streams.keys])
    old = replace_streams(state, last_seen=np.where(is_cart, last_seen, state.streams.last_seen))
    verdicts, new = watch(simulate([failing(1, 1, 0.9)], start=BEGIN + 10, length=120, seed=3), old, without_operation)
    assert new.streams is not None
    assert [str(key) for key in new.streams.keys] == ["Home/Index", "db/Query", "db/Query (client)"]
    assert kinds(verdicts) == ["healthy", "isolated"]


def replace_streams(state: CalibratedState, **changes: object) -> CalibratedState:
    from msgspec.structs import replace as change

    assert state.streams is not None
    return change(state, streams=change(state.streams, **changes))


def test_a_saved_state_gives_the_verdicts_that_the_unsaved_one_gives() -> None:
    state, kept = warm_up(), warm_up()
    first = list(simulate([failing(BOTH, 1, 0.6)], length=120))
    for window in first:
        saved = decode_state(encode_state(state), CalibratedState)
        assert saved is not None
        [one], state = watch([window], saved)
        [other], kept = watch([window], kept)
        assert (one.kind, one.zone, one.since) == (other.kind, other.zone, other.since)


def test_the_state_that_is_passed_in_stays_as_it_is() -> None:
    before = encode_state(warm_up())
    watch(simulate([failing(BOTH, 1, 0.6)], length=60), warm_up())
    assert encode_state(warm_up()) == before


@pytest.mark.no_cover
def test_an_unused_zone_does_not_keep_the_level_of_traffic_from_being_learned() -> None:
    """Else the traffic of the first bin would be the usual one for ever, and a stall look like moved traffic."""
    growing = Effect(start=START, end=np.inf, traffic=4.0, ramp=1200.0)
    _, state = watch(simulate([growing], start=START, length=WARM, seed=7), change=lambda window: silence(window, 2))
    verdicts, _ = watch(simulate([growing], length=60), state, lambda window: silence(silence(window, 2), 1))
    assert kinds(verdicts) == ["unknown"]
    assert verdicts[-1].summary.startswith("use1-az2 reports no requests since ")


def test_an_instance_that_still_fails_after_its_zone_is_reported_when_that_verdict_has_closed() -> None:
    """The measurements of five minutes decide whether it is an instance, and the verdict closes five minutes later."""
    effects = [failing(BOTH, 1, 0.9, end=BEGIN + 60), failing(BOTH, 1, 0.2, start=BEGIN + 60, instance=1)]
    verdicts, _ = watch(simulate(effects, length=720), warm_up())
    assert kinds(verdicts) == ["healthy", "isolated", "healthy", "instance"]
    closed = next(each for each in verdicts if each.kind is VerdictKind.HEALTHY and each.at > BEGIN + 60)
    assert closed.at >= BEGIN + 360


def test_a_zone_that_is_brought_back_is_not_confirmed_before_it_fails_again() -> None:
    """Its verdict stays open for five minutes, but evacuates nothing."""
    verdicts, _ = watch(
        simulate([failing(BOTH, 1, 0.6, end=BEGIN + 120)], length=900),
        warm_up(),
        lambda window: take_out(window, BEGIN + 60, BEGIN + 300),
    )
    assert kinds(verdicts) == ["healthy", "isolated", "healthy"]
    assert [after(each) for each in verdicts if each.kind == "isolated" and each.is_confirmed][-1] == 60
    assert after(next(each for each in verdicts[3:] if each.kind == "healthy")) == 600


def test_another_failure_is_reported_while_an_isolated_zone_is_out() -> None:
    def change(window: Window) -> Window:
        taken = take_out(window, BEGIN + 60, BEGIN + 1000)
        return silence(taken, 0) if window.start >= BEGIN + 120 else taken

    silent, _ = watch(simulate([failing(BOTH, 1, 0.6)], length=240), warm_up(), change)
    assert (silent[-1].kind, silent[-1].zone) == (VerdictKind.UNKNOWN, ONE)
    effects = [failing(BOTH, 1, 0.6), failing(BOTH, 2, 0.6, start=BEGIN + 120, instance=1)]
    bad, _ = watch(simulate(effects, length=240), warm_up(), lambda window: take_out(window, BEGIN + 60, BEGIN + 1000))
    assert (bad[-1].kind, bad[-1].zone) == (VerdictKind.INSTANCE, THREE)


def test_the_last_zone_that_is_in_fails_regionally() -> None:
    def only_one(window: Window) -> Window:
        return replace(window, states={TWO: ZoneState.OUT, THREE: ZoneState.OUT})

    verdicts, _ = watch(simulate([failing(BOTH, 0, 0.6)], length=60), warm_up(), only_one)
    found = find_first(verdicts, "regional")
    assert found.summary.startswith("use1-az1: worse than usual in ")


def test_a_failure_of_all_zones_replaces_that_of_a_resource_after_a_minute() -> None:
    """Nor does the verdict about the resource stay open because its zone is out."""
    effects = [failing(2, slice(None), 0.5, end=BEGIN + 60), failing(BOTH, slice(None), 0.6, start=BEGIN + 120)]
    verdicts, _ = watch(
        simulate(effects, length=300), warm_up(), lambda window: take_out(window, BEGIN + 60, BEGIN + 90)
    )
    assert kinds(verdicts) == ["healthy", "shared", "regional"]
    assert after(find_first(verdicts, "regional")) <= 200
    ended = [failing(2, slice(None), 0.5, end=BEGIN + 60)]
    verdicts, _ = watch(
        simulate(ended, length=600), warm_up(), lambda window: take_out(window, BEGIN + 60, BEGIN + 900)
    )
    assert kinds(verdicts) == ["healthy", "shared", "healthy"]


def test_the_end_of_a_stall_keeps_the_evidence_against_other_zones() -> None:
    def stall(window: Window) -> Window:
        return silence(window, 2) if window.start < BEGIN + 50 else window

    verdicts, _ = watch(simulate([failing(0, 0, 0.01)], length=420), warm_up(), stall)
    closed = next(index for index, each in enumerate(verdicts) if index > 5 and each.kind == "healthy")
    before, at_end = (verdicts[index].evidence[ONE]["faults"]["evidence"] for index in (closed - 1, closed))
    assert min(before, at_end) > 2


def test_windows_of_another_length_are_learned_anew() -> None:
    state = warm_up()
    assert state.fits(ZONES, 10.0)
    assert not state.fits(ZONES, 60.0)
    assert not state.fits(ZONES[:2], 10.0)
    window = replace(next(iter(simulate(length=10))), seconds=60.0)
    state, verdict = CalibratedDetector().step(state, window)
    assert (verdict.kind, verdict.summary[:8], state.seconds) == (VerdictKind.UNKNOWN, "learning", 60.0)


def test_windows_of_a_clock_that_is_set_back_a_little_are_one_verdict() -> None:
    windows = list(simulate(length=60))
    state = warm_up()
    for window in windows:
        state, _ = CalibratedDetector().step(state, window)
    again = [CalibratedDetector().step(state, window)[1] for window in windows[2:]]
    assert {each.kind for each in again} == {VerdictKind.UNKNOWN}
    assert len({each.id for each in again}) == 1


def test_a_service_is_learned_from_its_first_request_on() -> None:
    """However long the server has waited for it."""
    first = next(iter(simulate(length=10)))
    empty = replace(first, cells={}, operations=(), instances=((),) * 3)
    late = [replace(first, start=first.start + 3600 + 10 * number) for number in range(181)]
    verdicts, state = watch([empty, *(replace(empty, start=each.start - 3600) for each in late[1:])], CalibratedState())
    assert {(each.kind, each.summary) for each in verdicts} == {
        (VerdictKind.UNKNOWN, "no requests have been reported yet")
    }
    verdicts, _ = watch(late, state)
    assert [each.kind for each in verdicts[-3:]] == [VerdictKind.UNKNOWN, VerdictKind.UNKNOWN, VerdictKind.HEALTHY]
    assert verdicts[0].summary.startswith("learning the usual behaviour until ")

"""Preparing evacuations within guards, carrying them out, continuing and undoing them."""

import threading
import time
from dataclasses import replace

import pytest

from holdfast import Conflict, Verdict, VerdictKind, Zone, ZoneState, ZoneStatus
from holdfast._clock import SystemClock
from holdfast.evacuate import claims
from holdfast.evacuate import journal as journal_rules
from holdfast.evacuate.action import Discovery, Target
from holdfast.evacuate.actions.status import MarkOut
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.evacuator import MAX_PLAN_AGE, Evacuator, choose_verdict
from holdfast.evacuate.guards import GuardName
from holdfast.evacuate.journal import EntryState, RunState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import OTHER, ZONE, ControlPlane, RemoveZone, build_actions

THIRD = Zone("use1-az3")


def judge(kind: VerdictKind = VerdictKind.ISOLATED, zone: Zone | None = ZONE, at: float = 1000.0) -> Verdict:
    return Verdict(id="v", workload="shop", kind=kind, zone=zone, since=at, at=at)


class World:
    """An evacuator with a status store, a control plane and a verdict."""

    def __init__(self, resources: int = 2) -> None:
        self.clock = FakeClock(wall=1000.0)
        self.store = MemoryStatusStore()
        self.plane = ControlPlane(resources)
        self.journal = MemoryJournal()
        self.verdicts: list[Verdict] = [judge()]
        self.evacuator = self.build()

    def build(self) -> Evacuator:
        return Evacuator(
            build_actions(self.store, self.clock, self.plane),
            self.journal,
            self.store,
            self.clock,
            find_zones=lambda *_: (ZONE, OTHER, THIRD),
            read_verdicts=lambda _: self.verdicts,
        )

    def evacuate(self, zone: Zone = ZONE, **overrides: str) -> Report:
        named = {name.replace("_", "-"): reason for name, reason in overrides.items()}
        proposal = self.evacuator.prepare(zone, "shop", reason="requests fail", overrides=named)
        return self.evacuator.evacuate(*self.evacuator.begin(proposal, by="me@here"))


def test_a_zone_is_marked_as_out_and_its_resources_are_moved_and_all_of_it_comes_back() -> None:
    world = World()
    before = world.plane.copy()
    report = world.evacuate()
    assert {each.action: each.state for each in report.entries} == {
        "status": EntryState.APPLIED,
        "remove": EntryState.APPLIED,
    }
    assert world.evacuator.read_states("shop") == {ZONE: ZoneState.OUT}
    (run,) = world.evacuator.read_runs().open
    assert (run.by, run.reason, run.state) == ("me@here", "requests fail", RunState.EVACUATED)
    assert len(world.evacuator.list_entries(run)) == 3
    world.evacuator.restore(world.evacuator.claim(run))
    assert (world.evacuator.read_states("shop"), world.plane.copy()) == ({}, before)
    assert [each.state for each in world.evacuator.read_runs().runs] == [RunState.RESTORED]


def test_a_guard_that_refuses_is_asked_again_before_the_run_begins() -> None:
    world = World()
    proposal = world.evacuator.prepare(ZONE, "shop")
    assert proposal.refusals == []
    StatusWriter(world.store, world.clock).take_out(OTHER, "shop", by="colleague", reason="az2 fails")
    with pytest.raises(Conflict, match="not evacuated, because guards refuse: other-zone: use1-az2 is out"):
        world.evacuator.begin(proposal, by="me")
    assert world.evacuator.read_runs().runs == ()


def test_only_an_override_with_a_reason_lifts_a_refusal_and_it_is_recorded() -> None:
    world = World()
    world.verdicts = [judge(VerdictKind.UNKNOWN, None)]
    with pytest.raises(Conflict, match="verdict: the verdict is unknown"):
        world.evacuate()
    report = world.evacuate(verdict="my dashboard shows it", pause="not needed")
    assert report.run.overrides == {"verdict": "my dashboard shows it"}


def test_a_second_zone_needs_the_override_of_its_guard() -> None:
    world = World()
    world.evacuate()
    world.clock.advance(3600)
    world.verdicts = [judge(zone=OTHER, at=world.clock.wall())]
    with pytest.raises(Conflict, match="a second zone must not be evacuated"):
        world.evacuate(OTHER)
    assert world.evacuate(OTHER, other_zone="both fail, az3 carries all").problems == []
    assert world.evacuator.read_states("shop") == {ZONE: ZoneState.OUT, OTHER: ZoneState.OUT}


def test_an_old_plan_is_made_again_before_it_is_carried_out() -> None:
    world = World(1)
    proposal = world.evacuator.prepare(ZONE, "shop", reason="test")
    world.plane.zones["arn:new"] = {ZONE, OTHER}
    world.clock.advance(MAX_PLAN_AGE + 1)
    report = world.evacuator.evacuate(*world.evacuator.begin(proposal, by="me"))
    assert {each.resource for each in report.entries} == {"status:main (shop)", "arn:000", "arn:new"}


def test_a_resumed_run_makes_changes_that_are_gone_again() -> None:
    world = World(2)
    run = world.evacuate().run
    world.plane.write("arn:001", {ZONE, OTHER}, None)
    report = world.evacuator.resume(world.evacuator.claim(run))
    assert report.problems == []
    assert world.plane.zones["arn:001"] == {OTHER}


def test_a_claim_is_kept_while_resources_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large or throttled account takes longer to read than a claim lasts. The clock is real here."""
    for module in (claims, journal_rules):
        monkeypatch.setattr(module, "CLAIM_SECONDS", 0.8)
    journal, limit = MemoryJournal(), time.monotonic() + 30

    class Slow(RemoveZone):
        def discover(self, target: Target) -> Discovery:
            first = journal.read_runs().open[0].held_until if journal.read_runs().open else None
            while first is not None and journal.read_runs().open[0].held_until == first and time.monotonic() < limit:
                threading.Event().wait(0.01)
            return super().discover(target)

    plane = ControlPlane(1)
    evacuator = Evacuator({"remove": Slow(plane)}, journal, MemoryStatusStore(), SystemClock())
    proposal = evacuator.prepare(ZONE, "shop", reason="seen", overrides={"verdict": "seen"})
    claim, _ = evacuator.begin(proposal, by="me@here")
    assert evacuator.resume(claim).run.state is RunState.EVACUATED
    assert plane.zones == {"arn:000": {OTHER}}


def test_a_resumed_run_changes_nothing_while_another_zone_is_evacuated() -> None:
    world = World(2)
    run = world.evacuate().run
    world.plane.write("arn:001", {ZONE, OTHER}, None)
    world.plane.writes = 0
    writer = StatusWriter(world.store, world.clock)
    writer.take_out(OTHER, "shop", by="colleague", reason="az2 fails", force=True)
    (problem,) = world.evacuator.resume(world.evacuator.claim(run)).problems
    assert (problem.resource, problem.state, world.plane.writes) == ("arn:001", EntryState.INTENDED, 0)
    assert "because another zone is evacuated: use1-az2" in problem.note
    writer.bring_in(OTHER, "shop", by="colleague", reason="fixed")
    assert world.evacuator.resume(world.evacuator.claim(run)).problems == []
    assert world.plane.zones["arn:001"] == {OTHER}


def test_a_zone_is_marked_as_out_first_and_as_in_last() -> None:
    """As long as a resource is moved, the status prevents that another zone is evacuated."""
    assert MarkOut.evacuation_stage < ZonalShift.evacuation_stage
    assert MarkOut.restoration_stage > ZonalShift.restoration_stage
    world, seen = World(2), list[bool]()
    world.plane.before_write = lambda _: seen.append(ZONE in world.evacuator.read_states("shop"))
    run = world.evacuate().run
    world.evacuator.restore(world.evacuator.claim(run))
    assert seen == [True] * 4
    assert world.evacuator.read_states("shop") == {}


def test_the_worst_verdict_decides_for_several_workloads() -> None:
    isolated, regional, healthy = judge(), judge(VerdictKind.REGIONAL, None), judge(VerdictKind.HEALTHY, None)
    for verdicts, expected in (
        ([], None),
        ([healthy], healthy),
        ([healthy, isolated], isolated),
        ([isolated, judge(zone=OTHER)], judge(zone=OTHER)),
        ([isolated, judge(VerdictKind.UNKNOWN, None), regional], regional),
    ):
        assert choose_verdict(verdicts, ZONE) == expected


def test_without_detection_the_guard_says_that_there_is_no_verdict() -> None:
    world = World()
    world.verdicts = []
    proposal = world.evacuator.prepare(ZONE, "shop")
    assert proposal.verdict is None
    assert [each.name for each in proposal.refusals] == [GuardName.VERDICT]


def test_the_stricter_of_two_states_of_a_zone_holds() -> None:
    returning = ZoneStatus(
        zone=OTHER, workload="shop", state=ZoneState.RETURNING, share=0.5, since=1.0, by="test", reason="test"
    )
    world = World()
    world.store.write(returning, 0)
    assert world.evacuator.read_states("shop") == {OTHER: ZoneState.RETURNING}
    assert world.evacuator.read_states("cart") == {}
    assert world.evacuator.read_states(None) == {OTHER: ZoneState.RETURNING}
    world.store.write(replace(returning, workload=None, state=ZoneState.DRAINING, share=None), 0)
    assert world.evacuator.read_states("shop") == {OTHER: ZoneState.DRAINING}


def test_actions_that_are_not_configured_are_named() -> None:
    world = World(1)
    run = world.evacuate().run
    other = Evacuator({"remove": RemoveZone(world.plane)}, world.journal, world.store, world.clock)
    report = other.restore(other.claim(run))
    (problem,) = report.problems
    assert (problem.state, report.is_partial) == (EntryState.RESTORING, True)
    assert problem.note.startswith("status:main (shop) was changed by the action status, which is not configured here")
    assert world.evacuator.restore(world.evacuator.claim(run)).problems == []

"""Acting on verdicts by the mode, and continuing what another process began."""

import logging
from collections.abc import Callable

import pytest

from holdfast import Conflict, EngineUnavailable, Verdict, VerdictKind, Zone, ZoneState
from holdfast._process import ProcessIdentity
from holdfast.evacuate.journal import CLAIM_SECONDS, RunState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.service import (
    MAX_CONTINUED_AGE,
    REFUSED_SECONDS,
    EvacuationMode,
    EvacuationService,
    build_advice,
)
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import OTHER, ZONE, ControlPlane, Killed, RemoveZone, build_service

ZONES = frozenset({ZONE, OTHER})


class World:
    def __init__(self, mode: EvacuationMode = EvacuationMode.AUTOMATIC) -> None:
        self.clock, self.store, self.journal = FakeClock(wall=1000.0), MemoryStatusStore(), MemoryJournal()
        self.plane, self.mode = ControlPlane(2), mode
        self.service = self.build()

    def build(self) -> EvacuationService:
        return build_service(self.store, self.clock, mode=self.mode, journal=self.journal, plane=self.plane)

    def judge(self, kind: VerdictKind = VerdictKind.ISOLATED, zone: Zone | None = ZONE) -> None:
        now = self.clock.wall()
        verdict = Verdict(id="v", workload="shop", kind=kind, zone=zone, since=now, at=now, summary="az1 fails 40 %")
        self.service.evacuate(verdict, ZONES)

    @property
    def out(self) -> set[Zone]:
        return {zone for zone, state in self.service.read_states("shop").items() if state is ZoneState.OUT}


def test_an_isolated_zone_is_evacuated_once() -> None:
    world = World()
    for _ in range(3):
        world.judge()
    assert world.out == {ZONE}
    (run,) = world.journal.read_runs().runs
    assert (run.by, run.by_server, run.reason, run.state) == (
        "server here",
        True,
        "az1 fails 40 %",
        RunState.EVACUATED,
    )
    assert world.plane.zones == {"arn:000": {OTHER}, "arn:001": {OTHER}}


@pytest.mark.parametrize("kind", [each for each in VerdictKind if each is not VerdictKind.ISOLATED])
def test_no_other_verdict_evacuates_a_zone(kind: VerdictKind) -> None:
    world = World()
    world.judge(kind)
    assert world.journal.read_runs().runs == ()


@pytest.mark.parametrize("mode", [EvacuationMode.ADVISE, EvacuationMode.CONFIRM])
def test_without_a_person_nothing_happens_but_people_are_told_once(
    mode: EvacuationMode, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(mode)
    with caplog.at_level(logging.WARNING, "holdfast.evacuate"):
        world.judge()
        world.judge()
    (record,) = caplog.records
    assert "holdfast zone evacuate use1-az1 --workload shop --reason ..." in record.getMessage()
    assert world.out == set()
    proposal = world.service.evacuator.prepare(ZONE, "shop", reason="approved", overrides={"verdict": "seen"})
    run = world.service.begin(proposal, by="credential 1")
    assert (run.by, run.by_server) == ("credential 1", True)
    assert world.out == {ZONE}


def test_advice_names_the_command() -> None:
    for mode, words in (
        (EvacuationMode.ADVISE, "To evacuate the zone: holdfast zone evacuate use1-az1 --workload shop --reason ..."),
        (EvacuationMode.CONFIRM, "To approve its evacuation: holdfast zone evacuate use1-az1 --workload shop --reason"),
        (EvacuationMode.AUTOMATIC, "The server evacuates the zone, unless a guard refuses"),
    ):
        assert build_advice(ZONE, "shop", mode).startswith(words)
    assert build_advice(ZONE, None, EvacuationMode.CONFIRM).endswith("use1-az1 --reason ... --server URL")


def test_a_refusal_is_told_once_and_the_zone_is_evacuated_when_it_is_lifted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    writer = StatusWriter(world.store, world.clock)
    writer.take_out(OTHER, "shop", by="colleague", reason="az2 fails")
    with caplog.at_level(logging.WARNING, "holdfast.evacuate"):
        world.judge()
        world.judge()
    (record,) = caplog.records
    assert "not evacuating use1-az1 for shop: other-zone: use1-az2 is out" in record.getMessage()
    writer.bring_in(OTHER, "shop", by="colleague", reason="fixed")
    world.clock.advance(REFUSED_SECONDS)
    world.judge()
    assert world.out == {ZONE}


def test_a_zone_that_an_operator_took_out_is_left_alone() -> None:
    world = World()
    StatusWriter(world.store, world.clock).take_out(ZONE, "shop", by="colleague", reason="I am on it")
    world.judge()
    assert world.journal.read_runs().runs == ()


def test_a_zone_that_an_operator_restored_is_not_evacuated_again_at_once() -> None:
    world = World()
    world.judge()
    world.service.begin_restore(world.service.evacuator.read_runs().open[0])
    assert world.out == set()
    world.judge()
    assert world.out == set()
    world.clock.advance(1800)
    world.judge()
    assert world.out == {ZONE}


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_the_next_process_continues_what_a_server_began(when: str) -> None:
    world = World()

    def kill(_: str) -> None:
        raise Killed

    setattr(world.plane, when, kill)
    with pytest.raises(Killed):
        world.judge()
    setattr(world.plane, when, lambda _: None)
    world.service = world.build()
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATING, "its claim has not expired"
    world.clock.advance(CLAIM_SECONDS)
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATED
    assert set(map(frozenset, world.plane.zones.values())) == {frozenset({OTHER})}


def test_the_next_process_continues_a_restore() -> None:
    world = World()
    before = world.plane.copy()
    world.judge()

    def kill(_: str) -> None:
        raise Killed

    world.plane.before_write = kill
    with pytest.raises(Killed):
        world.service.begin_restore(world.service.evacuator.read_runs().open[0])
    world.plane.before_write = lambda _: None
    world.clock.advance(CLAIM_SECONDS)
    world.service = world.build()
    world.service.continue_runs()
    assert (world.plane.copy(), world.out) == (before, set())


def test_a_run_of_an_operator_is_not_continued_by_a_server() -> None:
    world = World()
    evacuator = world.service.evacuator
    proposal = evacuator.prepare(ZONE, "shop", reason="mine", overrides={"verdict": "seen"})
    evacuator.begin(proposal, by="me@here")
    world.clock.advance(CLAIM_SECONDS)
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATING
    assert world.plane.writes == 0


def test_what_others_have_undone_is_told_when_changes_are_renewed(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.judge()
    world.plane.write("arn:000", {ZONE, OTHER}, "somebody")
    with caplog.at_level(logging.WARNING, "holdfast.evacuate"):
        world.service.renew_runs()
    told = caplog.records[-1].getMessage()
    assert told.startswith("the change of arn:000 is not in effect any more (it has expired, or was undone)")
    assert "holdfast zone resume use1-az1" in told


def test_a_renewal_and_a_restore_in_one_process_do_not_disturb_each_other() -> None:
    """A server renews in one thread, and restores in another."""
    world = World()
    world.judge()
    evacuator = world.service.evacuator
    (run,) = evacuator.read_runs().open
    renewed = []
    world.plane.before_write = lambda _: renewed.append(evacuator.renew(run))
    world.service.begin_restore(run)
    assert (renewed, world.out) == ([[], []], set())
    assert [each.state for each in evacuator.read_runs().runs] == [RunState.RESTORED]
    assert world.plane.zones == {"arn:000": {ZONE, OTHER}, "arn:001": {ZONE, OTHER}}


def test_a_run_that_is_being_renewed_is_not_restored_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.judge()
    evacuator = world.service.evacuator
    (run,) = evacuator.read_runs().open
    refused = []

    def restore(*_: object) -> None:
        with pytest.raises(Conflict, match="wait until it has ended"):
            evacuator.claim(run)
        refused.append(True)

    monkeypatch.setattr(RemoveZone, "renew", restore)
    world.service.renew_runs()
    assert refused == [True, True]
    world.service.begin_restore(run)
    assert world.out == set()


def test_a_renewal_that_fails_keeps_nobody_from_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.judge()
    evacuator = world.service.evacuator
    (run,) = evacuator.read_runs().open

    def fail(_: object) -> None:
        raise EngineUnavailable("the journal cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(world.journal, "read_entries", fail)
        with pytest.raises(EngineUnavailable):
            evacuator.renew(run)
    world.service.begin_restore(run)
    assert world.out == set()


def test_two_requests_for_the_same_zone_start_one_run() -> None:
    world = World()
    held: list[Callable[[], None]] = []
    evacuator = world.service.evacuator
    service = EvacuationService(evacuator, world.clock, mode=EvacuationMode.CONFIRM, run_in_background=held.append)
    proposal = evacuator.prepare(ZONE, "shop", reason="approved", overrides={"verdict": "seen"})
    service.begin(proposal, by="one")
    with pytest.raises(Conflict, match="this process is evacuating or restoring use1-az1 for shop already"):
        service.begin(evacuator.prepare(ZONE, "shop", overrides={"verdict": "a", "pause": "a"}), by="two")
    world.judge()
    held.pop()()
    assert (world.out, held) == ({ZONE}, [])


def test_a_run_that_is_under_way_is_not_taken_from_its_own_thread() -> None:
    """Its claim has the same holder, so the claim alone would not refuse."""
    world, held = World(), list[Callable[[], None]]()
    evacuator = world.service.evacuator
    service = EvacuationService(evacuator, world.clock, mode=EvacuationMode.CONFIRM, run_in_background=held.append)
    proposal = evacuator.prepare(ZONE, "shop", reason="approved", overrides={"verdict": "seen"})
    run = service.begin(proposal, by="one")
    for begin in (service.begin_restore, service.begin_resume):
        with pytest.raises(Conflict, match="wait until it has ended"):
            begin(run)
    held.pop()()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATED
    service.begin_restore(run)
    held.pop()()
    assert world.out == set()
    assert world.journal.read_runs().open == ()


def test_a_run_whose_process_has_ended_on_this_host_is_continued_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def kill(_: str) -> None:
        raise Killed

    world.plane.before_write = kill
    with pytest.raises(Killed):
        world.judge()
    world.plane.before_write = lambda _: None
    world.service = world.build()
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATING
    monkeypatch.setattr(ProcessIdentity, "has_ended", lambda _: True)
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATED


def test_an_interrupted_run_is_reported_and_continued(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()

    def fail(*_: object) -> None:
        raise EngineUnavailable("the journal is full")

    monkeypatch.setattr(world.journal, "write_entries", fail)
    with caplog.at_level(logging.ERROR, "holdfast.evacuate"):
        world.judge()
    assert "the evacuation or restore of use1-az1 for shop was interrupted: the journal is full" in caplog.text
    monkeypatch.undo()
    world.clock.advance(CLAIM_SECONDS)
    world.service.continue_runs()
    assert world.out == {ZONE}


def test_a_service_that_is_closed_leaves_its_run_to_the_next_one() -> None:
    world = World()

    def close(_: str) -> None:
        world.service.evacuator.abandon()

    world.plane.before_write = close
    world.judge()
    (run,) = world.journal.read_runs().runs
    assert (run.state, run.holder != "") == (RunState.EVACUATING, True)
    assert world.plane.writes <= 2
    world.plane.before_write = lambda _: None
    world.clock.advance(CLAIM_SECONDS)
    world.service = world.build()
    world.service.continue_runs()
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATED
    world.service.close()


def test_an_old_evacuation_is_not_continued_without_a_person(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def kill(_: str) -> None:
        raise Killed

    world.plane.before_write = kill
    with pytest.raises(Killed):
        world.judge()
    world.plane.before_write = lambda _: None
    world.clock.advance(MAX_CONTINUED_AGE + 1)
    world.service = world.build()
    with caplog.at_level(logging.WARNING, "holdfast.evacuate"):
        world.service.continue_runs()
        world.service.continue_runs()
    assert caplog.text.count("began so long ago that no server continues it") == 1
    assert world.journal.read_runs().runs[0].state is RunState.EVACUATING


def test_the_loop_continues_runs_until_it_is_closed() -> None:
    world = World()
    with world.service as service:
        assert service is world.service

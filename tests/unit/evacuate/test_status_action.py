"""Marking a zone as out in several status stores, and back."""

import dataclasses
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from holdfast import EngineUnavailable, StatusStore, ZoneState, ZoneStatus
from holdfast.evacuate.action import Action, ChangeState, Target
from holdfast.evacuate.actions.status import MarkOut
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Runner
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import ActionConformance
from tests.unit.evacuate.fleet import OTHER, ZONE, ControlPlane, RemoveZone

TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")


class Broken(MemoryStatusStore):
    """A store that cannot be reached."""

    is_broken = True

    def read(self) -> Sequence[ZoneStatus]:
        if self.is_broken:
            raise EngineUnavailable("no route to the store")
        return super().read()


def mark(clock: FakeClock, **stores: StatusStore) -> MarkOut:
    return MarkOut({name: StatusWriter(store, clock) for name, store in stores.items()}, clock)


def build(clock: FakeClock, **stores: StatusStore) -> Runner:
    return Runner({"status": mark(clock, **stores)}, MemoryJournal(), clock)


class TestConformance(ActionConformance):
    @pytest.fixture
    def action(self) -> Action:
        return mark(FakeClock(), first=MemoryStatusStore(), second=MemoryStatusStore())


def start(runner: Runner, plan: Plan) -> Report:
    return runner.evacuate(runner.begin(plan, by="me"), plan)


def states(report: Report) -> dict[str, EntryState]:
    return {each.resource: each.state for each in report.entries}


def test_a_zone_is_out_in_every_store_and_in_again_after_a_restore() -> None:
    clock, first, second = FakeClock(), MemoryStatusStore(), MemoryStatusStore()
    runner = build(clock, first=first, second=second)
    report = start(runner, runner.plan(TARGET))
    assert states(report) == {"status:first (shop)": EntryState.APPLIED, "status:second (shop)": EntryState.APPLIED}
    for store in (first, second):
        (status,) = store.read()
        assert (status.state, status.by, status.workload, status.expires) == (ZoneState.OUT, "hf-1", "shop", None)
        assert status.reason == "requests fail (run hf-1)"
    assert runner.restore(runner.claim("hf-1")).problems == []
    assert [each.state for store in (first, second) for each in store.read()] == [ZoneState.IN] * 2


def test_a_zone_that_an_operator_took_out_stays_out() -> None:
    clock, store = FakeClock(), MemoryStatusStore()
    StatusWriter(store, clock).take_out(ZONE, "shop", by="colleague", reason="I am on it")
    runner = build(clock, main=store)
    (entry,) = start(runner, runner.plan(TARGET)).entries
    assert (entry.state, entry.note) == (EntryState.FOUND, "colleague has marked it as out: I am on it")
    runner.restore(runner.claim("hf-1"))
    assert store.read()[0].state is ZoneState.OUT


def test_a_provisional_status_is_not_enough() -> None:
    clock, store = FakeClock(), MemoryStatusStore()
    runner = build(clock, main=store)
    plan = runner.plan(TARGET)
    first = ZoneStatus(
        zone=ZONE,
        workload="shop",
        state=ZoneState.OUT,
        since=clock.wall(),
        by="hf-1",
        reason="r",
        expires=clock.wall() + 30,
    )
    store.write(first, 0)
    (entry,) = start(runner, plan).entries
    assert entry.state is EntryState.APPLIED
    assert store.read()[0].expires is None


def test_another_zone_that_is_out_is_a_sign_and_refuses() -> None:
    clock, store = FakeClock(), MemoryStatusStore()
    runner = build(clock, main=store)
    plan = runner.plan(TARGET)
    StatusWriter(store, clock).take_out(OTHER, "shop", by="colleague", reason="az2 fails")
    found = runner.plan(TARGET).discoveries["status"]
    assert [(each.zone, each.source) for each in found.other_evacuations] == [(OTHER, "a status in the store main")]
    (entry,) = start(runner, plan).entries
    assert entry.state is EntryState.FAILED
    assert "use1-az2 is out, and only one zone of a region may be out" in entry.note


def test_a_run_that_meets_another_zone_changes_nothing_more() -> None:
    clock, store, plane = FakeClock(), MemoryStatusStore(), ControlPlane(2)
    runner = Runner({"remove": RemoveZone(plane), "status": mark(clock, main=store)}, MemoryJournal(), clock)
    plan = runner.plan(TARGET)
    StatusWriter(store, clock).take_out(OTHER, "shop", by="colleague", reason="az2 fails")
    report = start(runner, plan)
    assert {each.state for each in report.entries} == {EntryState.FAILED}
    assert {each.note for each in report.entries if each.action == "remove"} == {
        "not changed, because another zone is evacuated: use1-az2"
    }
    assert plane.writes == 0
    allowed = replace(TARGET, run="hf-2", workload="blog", allows_second_zone=True)
    assert start(runner, runner.plan(allowed)).problems == []
    assert {each.zone for each in store.read() if each.state is ZoneState.OUT} == {ZONE, OTHER}


def test_a_store_that_is_down_delays_the_other_actions_for_seconds_only() -> None:
    clock, store, plane = FakeClock(), Broken(), ControlPlane(1)
    store.is_broken = False
    runner = Runner({"status": mark(clock, main=store), "remove": RemoveZone(plane)}, MemoryJournal(), clock)
    plan, began = runner.plan(TARGET), clock.monotonic()
    store.is_broken = True
    report = start(runner, plan)
    assert {each.action: each.state for each in report.entries} == {
        "status": EntryState.INTENDED,
        "remove": EntryState.APPLIED,
    }
    assert clock.monotonic() - began < 40


def test_half_of_a_change_is_undone() -> None:
    clock, store = FakeClock(), MemoryStatusStore()
    runner = build(clock, main=store)
    start(runner, runner.plan(TARGET))
    (status,) = store.read()
    store.write(dataclasses.replace(status, expires=clock.wall() + 30), status.version)
    runner.restore(runner.claim("hf-1"))
    assert store.read()[0].state is ZoneState.IN


def test_a_store_that_cannot_be_read_is_reported_and_the_others_go_on() -> None:
    clock, broken, healthy = FakeClock(), Broken(), MemoryStatusStore()
    runner = build(clock, broken=broken, healthy=healthy)
    plan = runner.plan(TARGET)
    assert [(each.scope, each.reason) for each in plan.discoveries["status"].unreadable] == [
        ("the status store broken", "no route to the store")
    ]
    report = runner.evacuate(runner.begin(plan, by="me", overrides={"unreadable": "seen"}), plan)
    assert states(report) == {"status:healthy (shop)": EntryState.APPLIED}


def test_a_status_that_others_changed_is_kept() -> None:
    clock, store = FakeClock(), MemoryStatusStore()
    runner = build(clock, main=store)
    run = start(runner, runner.plan(TARGET)).run
    StatusWriter(store, clock).take_out(ZONE, "shop", by="colleague", reason="it must stay out")
    assert runner.verify(run)["status:main (shop)"].state is ChangeState.FOUND
    assert states(runner.restore(runner.claim("hf-1"))) == {"status:main (shop)": EntryState.KEPT}
    assert store.read()[0].state is ZoneState.OUT


@pytest.mark.parametrize("workload", [None, "shop"])
def test_a_plan_says_for_whom(workload: str | None) -> None:
    runner = build(FakeClock(), main=MemoryStatusStore())
    (change,) = runner.plan(Target(zone=ZONE, workload=workload, run="hf-1")).changes["status"]
    assert change.description == f"mark use1-az1 as out for {workload or 'all workloads'}"

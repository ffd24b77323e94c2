"""The order of actions, the resources that are chosen, and changes that do not say who made them."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import EngineError, EngineUnavailable, OutcomeUnknown, Zone
from holdfast.evacuate.action import (
    CAPACITY_STAGE,
    RESTORE_CAPACITY_STAGE,
    RESTORE_SHIFT_STAGE,
    SCALE_OUT_STAGE,
    STOPS_RUN_IF_FAILED,
    Action,
    ChangeState,
    Discovery,
    OtherEvacuation,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
    Unreadable,
)
from holdfast.evacuate.attempt import Attempt, Pace, Stop
from holdfast.evacuate.journal import CLAIM_SECONDS, Entry, EntryState, RecordedRuns, Run, RunState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import OTHER, ZONE, ControlPlane, MovingClock, RemoveZone

TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")


class Unmarked(RemoveZone):
    """An action on resources that do not show who changed them."""

    def read(self, entry: Entry) -> Reading:
        found = super().read(entry)
        state = ChangeState.APPLIED if found.state is ChangeState.FOUND else found.state
        return replace(found, state=state, shows_owner=False)


class Capacity(Unmarked):
    """An action that brings capacity back, which is healthy when the test says so."""

    evacuation_stage, restoration_stage = CAPACITY_STAGE, RESTORE_CAPACITY_STAGE
    is_healthy = True

    def read(self, entry: Entry) -> Reading:
        return replace(super().read(entry), is_effective=self.is_healthy or entry.state is not EntryState.RESTORING)


class Traffic(RemoveZone):
    restoration_stage = RESTORE_SHIFT_STAGE


class ScaleOut(RemoveZone):
    evacuation_stage = SCALE_OUT_STAGE

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        planned = super().plan(resource, target)
        assert isinstance(planned, PlannedChange)
        return replace(planned, change={**planned.change, STOPS_RUN_IF_FAILED: True})


def build_plane(*names: str) -> ControlPlane:
    plane = ControlPlane(0)
    plane.zones = {name: {ZONE, OTHER} for name in names}
    return plane


class Fleet:
    """Two actions, each with its own control plane, and a runner."""

    def __init__(self, first: type[RemoveZone], second: type[RemoveZone] = Traffic) -> None:
        self.planes = [build_plane(name) for name in ("first", "second")]
        self.first, self.second = first(self.planes[0]), second(self.planes[1])
        self.actions: dict[str, Action] = {"first": self.first, "second": self.second}
        self.clock = MovingClock()
        self.runner = Runner(self.actions, MemoryJournal(), self.clock)

    def evacuate(self, target: Target = TARGET) -> Report:
        plan = self.runner.plan(target)
        return self.runner.evacuate(self.runner.begin(plan, by="me@here"), plan)

    def restore(self, types: Sequence[str] = ()) -> Report:
        return self.runner.restore(self.runner.claim("hf-1"), types=types)

    @property
    def zones(self) -> list[set[Zone]]:
        return [plane.zones[name] for plane, name in zip(self.planes, ("first", "second"), strict=True)]


def list_states(report: Report) -> dict[str, EntryState]:
    return {each.resource: each.state for each in report.entries}


def test_traffic_returns_only_to_a_zone_with_healthy_capacity() -> None:
    fleet = Fleet(Capacity)
    fleet.evacuate()
    fleet.first.is_healthy = False  # type: ignore[attr-defined]
    report = fleet.restore()
    assert list_states(report) == {"first": EntryState.RESTORING, "second": EntryState.APPLIED}
    assert report.is_partial
    (waiting,) = (each.note for each in report.entries if each.resource == "first")
    assert "not complete after 180 s" in waiting
    assert report.waits_for_capacity
    assert fleet.zones == [{ZONE, OTHER}, {OTHER}], "the capacity was requested, and the traffic waits for it"
    fleet.first.is_healthy = True  # type: ignore[attr-defined]
    assert list_states(fleet.restore()) == dict.fromkeys(("first", "second"), EntryState.RESTORED)
    assert fleet.zones == [{ZONE, OTHER}] * 2
    assert fleet.planes[0].writes == 2, "a restored resource was not written again"


def test_a_run_whose_capacity_is_not_scaled_out_first_moves_no_traffic() -> None:
    fleet = Fleet(ScaleOut)

    def refuse(_: str) -> None:
        raise EngineError("MaxSize is reached")

    fleet.planes[0].before_write = refuse
    report = fleet.evacuate()
    assert list_states(report) == dict.fromkeys(("first", "second"), EntryState.FAILED)
    assert report.entries[1].note.startswith("not changed, because first has not enough capacity in the other")
    assert fleet.zones == [{ZONE, OTHER}] * 2
    assert fleet.planes[1].writes == 0


def test_with_the_override_of_capacity_a_failed_scale_out_stops_nothing() -> None:
    """AWS may refuse launches just when a zone fails."""
    fleet = Fleet(ScaleOut)

    def refuse(_: str) -> None:
        raise EngineError("InsufficientInstanceCapacity")

    fleet.planes[0].before_write = refuse
    plan = fleet.runner.plan(TARGET)
    claim = fleet.runner.begin(plan, by="me@here", overrides={"capacity": "seen"})
    report = fleet.runner.evacuate(claim, plan)
    assert list_states(report) == {"first": EntryState.FAILED, "second": EntryState.APPLIED}
    assert fleet.zones == [{ZONE, OTHER}, {OTHER}]


def test_a_change_that_others_have_just_made_is_not_undone_although_nothing_shows_who_made_it() -> None:
    fleet = Fleet(Unmarked)
    plan = fleet.runner.plan(TARGET)
    claim = fleet.runner.begin(plan, by="me@here")
    fleet.planes[0].zones["first"] = {OTHER}  # between the plan and the change
    assert list_states(fleet.runner.evacuate(claim, plan))["first"] is EntryState.FOUND
    resumed = fleet.runner.evacuate(fleet.runner.claim("hf-1"), fleet.runner.plan(TARGET))
    assert list_states(resumed)["first"] is EntryState.FOUND, "it is still theirs"
    fleet.restore()
    assert fleet.zones == [{OTHER}, {ZONE, OTHER}]


def test_a_change_of_an_interrupted_run_is_ours() -> None:
    fleet = Fleet(Unmarked)

    def kill(_: str) -> None:
        raise KeyboardInterrupt

    fleet.planes[0].after_write = kill
    plan = fleet.runner.plan(TARGET)
    claim = fleet.runner.begin(plan, by="me@here")
    try:
        fleet.runner.evacuate(claim, plan)
    except KeyboardInterrupt:
        fleet.planes[0].after_write = lambda _: None
    fleet.restore()
    assert fleet.zones == [{ZONE, OTHER}] * 2


class InZone(Unmarked):
    """An action that finds only resources that are in the zone."""

    def discover(self, target: Target) -> Discovery:
        found = [name for name, zones in self.plane.zones.items() if target.zone in zones]
        return Discovery(resources=[Resource(id=name, type="group", name=name, account="1") for name in found])


def test_a_change_that_two_runs_need_is_undone_with_the_last_of_them() -> None:
    """The second run does not find the group in the zone any more."""
    plane = build_plane("arn:aws:autoscaling:us-east-1:1:group")
    runner = Runner({"groups": InZone(plane)}, MemoryJournal(), MovingClock())
    reports = []
    for run, workload in (("hf-1", "shop"), ("hf-2", "blog")):
        plan = runner.plan(replace(TARGET, run=run, workload=workload))
        reports.append(runner.evacuate(runner.begin(plan, by="me@here"), plan))
    assert [(each.run, each.state) for each in reports[1].entries] == [("hf-2", EntryState.FOUND)]
    runner.restore(runner.claim("hf-1"))
    assert plane.zones == {"arn:aws:autoscaling:us-east-1:1:group": {OTHER}}
    runner.restore(runner.claim("hf-2"))
    assert plane.zones == {"arn:aws:autoscaling:us-east-1:1:group": {ZONE, OTHER}}


class MarkedInZone(RemoveZone):
    """An action that finds only resources in the zone, and whose changes show the run that made them."""

    def discover(self, target: Target) -> Discovery:
        return InZone(self.plane).discover(target)


GROUP = "arn:aws:autoscaling:us-east-1:1:group"


class TwoRuns:
    """One group, and two runs of its zone, for two workloads."""

    def __init__(self, action: type[RemoveZone] = InZone) -> None:
        self.plane, self.journal, self.clock = build_plane(GROUP), MemoryJournal(), MovingClock()
        self.runner = Runner({"groups": action(self.plane)}, self.journal, self.clock)

    def evacuate(self, run: str, **fields: Any) -> Report:
        plan = self.runner.plan(replace(TARGET, run=run, workload=run, **fields))
        return self.runner.evacuate(self.runner.begin(plan, by="me@here"), plan)

    def resume(self, run: str) -> Report:
        return self.runner.evacuate(self.runner.claim(run), self.runner.plan(replace(TARGET, run=run, workload=run)))

    def restore(self, run: str) -> Report:
        return self.runner.restore(self.runner.claim(run))


@pytest.mark.parametrize("action", [InZone, MarkedInZone])
def test_a_run_never_undoes_the_change_of_another_run(action: type[RemoveZone]) -> None:
    runs = TwoRuns(action)
    runs.evacuate("hf-1")
    runs.evacuate("hf-2")
    assert list_states(runs.resume("hf-2")) == {GROUP: EntryState.FOUND}
    runs.restore("hf-2")
    assert runs.plane.zones[GROUP] == {OTHER}
    runs.restore("hf-1")
    assert runs.plane.zones[GROUP] == {ZONE, OTHER}


def test_runs_of_workloads_with_other_tags_share_nothing() -> None:
    runs = TwoRuns()
    runs.evacuate("hf-1", selection=Selection(tags={"service": "shop"}))
    assert list_states(runs.evacuate("hf-2", selection=Selection(tags={"service": "blog"}))) == {}


def test_a_hand_over_that_was_killed_in_the_middle_is_finished() -> None:
    runs = TwoRuns()
    runs.evacuate("hf-1")
    runs.evacuate("hf-2")
    write, left = runs.journal.write_entries, [1]

    def kill(entries: Sequence[Entry]) -> None:
        write(entries)
        if entries[0].run == "hf-2" and left.pop():
            raise KeyboardInterrupt

    runs.journal.write_entries = kill  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        runs.restore("hf-1")
    runs.journal.write_entries = write  # type: ignore[method-assign]
    runs.clock.advance(CLAIM_SECONDS)
    runs.restore("hf-1")
    assert runs.plane.zones[GROUP] == {OTHER}, "the second run still needs it"
    runs.restore("hf-2")
    assert runs.plane.zones[GROUP] == {ZONE, OTHER}


def test_a_change_of_others_stays_theirs_although_a_resume_was_killed() -> None:
    fleet = Fleet(Unmarked)
    plan = fleet.runner.plan(TARGET)
    claim = fleet.runner.begin(plan, by="me@here")
    fleet.planes[0].zones["first"] = {OTHER}
    fleet.runner.evacuate(claim, plan)

    class Killed(Unmarked):
        def read(self, entry: Entry) -> Reading:
            raise KeyboardInterrupt

    fleet.actions["first"] = Killed(fleet.planes[0])
    with pytest.raises(KeyboardInterrupt):
        fleet.runner.evacuate(fleet.runner.claim("hf-1"), plan)
    fleet.actions["first"] = fleet.first
    fleet.restore()
    assert fleet.zones == [{OTHER}, {ZONE, OTHER}]


def test_a_change_that_others_have_undone_is_ours_as_soon_as_we_make_it() -> None:
    fleet = Fleet(Unmarked)
    plan = fleet.runner.plan(TARGET)
    claim = fleet.runner.begin(plan, by="me@here")
    fleet.planes[0].zones["first"] = {OTHER}
    fleet.runner.evacuate(claim, plan)
    fleet.planes[0].zones["first"] = {ZONE, OTHER}
    resumed = fleet.runner.evacuate(fleet.runner.claim("hf-1"), plan)
    assert list_states(resumed)["first"] is EntryState.APPLIED
    fleet.restore()
    assert fleet.zones == [{ZONE, OTHER}] * 2


def test_a_run_that_was_restored_is_not_renewed() -> None:
    renewed = []

    class Renewing(RemoveZone):
        def renew(self, entry: Entry, reading: Reading) -> None:
            renewed.append(entry.resource)

    fleet = Fleet(Renewing)
    run = fleet.evacuate().run
    assert list(fleet.runner.renew(run)) == []
    assert renewed == ["first"]
    fleet.restore()
    assert list(fleet.runner.renew(run)) == []
    assert renewed == ["first"]


@pytest.mark.parametrize("before", [EntryState.INTENDED, EntryState.FOUND])
def test_an_interrupted_wait_ends_at_once_and_stays_open(before: EntryState) -> None:
    """Also if others had made the change before: now it is ours."""

    class Endless(Unmarked):
        def read(self, entry: Entry) -> Reading:
            return replace(super().read(entry), is_effective=False)

    stop = Stop()
    clock = MovingClock()
    plane = build_plane("first")
    entry = Entry(
        zone=ZONE,
        resource="first",
        type="group",
        action="first",
        run="hf-1",
        number=1,
        state=before,
        at=0.0,
        change={"run": "hf-1", "zone": ZONE},
    )
    plane.after_write = lambda _: setattr(stop, "reason", "interrupted")
    step, _ = Attempt(Endless(plane), entry, clock).run(Pace(1, clock), lambda: None, stop)
    assert (step.state, step.note) == (
        EntryState.INTENDED,
        "an earlier attempt may have changed it; now it was interrupted",
    )


def test_a_resource_of_an_account_that_never_answers_is_given_up_after_two_minutes() -> None:
    class Dead(Capacity):
        timeout = 900.0

        def read(self, entry: Entry) -> Reading:
            raise EngineUnavailable(f"{entry.resource} cannot be reached")

    fleet = Fleet(Dead)
    began = fleet.clock.monotonic()
    report = fleet.evacuate()
    assert list_states(report) == {"first": EntryState.INTENDED, "second": EntryState.APPLIED}
    assert 120 <= fleet.clock.monotonic() - began < 180


class Leaves(RemoveZone):
    """An action that cannot move what another one can."""

    def discover(self, target: Target) -> Discovery:
        del target
        here = Resource(id="first", type="group", name="first"), Resource(id="alone", type="group", name="alone")
        return Discovery(unmovable=[Unmovable(resource=each, reason="it is not enabled") for each in here])


def test_a_resource_that_another_action_moves_does_not_stay() -> None:
    plan = Fleet(RemoveZone, Leaves).runner.plan(TARGET)
    assert [each.resource.id for each in plan.unmovable] == ["alone"]


class Named(RemoveZone):
    """An action on resources of AWS."""

    def discover(self, target: Target) -> Discovery:
        return Discovery(resources=[replace(each, account="1") for each in super().discover(target).resources])


def test_only_chosen_resources_are_changed_and_a_resumed_run_has_the_same_choice() -> None:
    fleet = Fleet(Named, Named)
    chosen = replace(TARGET, selection=Selection(names=("sec*",)))
    assert list_states(fleet.evacuate(chosen)) == {"second": EntryState.APPLIED}
    assert fleet.zones == [{ZONE, OTHER}, {OTHER}]
    (run,) = fleet.runner._journal.read_runs().open
    assert run.selection == chosen.selection
    nothing = fleet.runner.plan(replace(TARGET, selection=Selection(types=("status",))))
    assert [list(each) for each in nothing.changes.values()] == [[], []]


class StandingClock(FakeClock):
    """A clock whose time does not pass while threads sleep."""

    def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds / 1000)


def test_many_resources_wait_for_their_effect_at_the_same_time() -> None:
    """No resource has an effect before all of them were changed."""
    plane = build_plane(*(f"r{number:03}" for number in range(60)))

    class Slow(Unmarked):
        def read(self, entry: Entry) -> Reading:
            return replace(super().read(entry), is_effective=plane.writes == 60)

    runner = Runner({"slow": Slow(plane)}, MemoryJournal(), StandingClock())
    plan = runner.plan(TARGET)
    report = runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert {each.state for each in report.entries} == {EntryState.APPLIED}


def test_an_action_decides_how_many_of_its_resources_are_changed_at_the_same_time() -> None:
    plane = build_plane(*(f"r{number:03}" for number in range(40)))
    running, most = [0], [0]

    class Counting(RemoveZone):
        parallel_calls = 2

        def apply(self, entry: Entry) -> Any:
            with plane.lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            super().apply(entry)
            with plane.lock:
                running[0] -= 1

    runner = Runner({"counting": Counting(plane)}, MemoryJournal(), MovingClock())
    plan = runner.plan(TARGET)
    runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert most[0] <= 2
    assert plane.writes == 40


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            Discovery(other_evacuations=[OtherEvacuation(zone=OTHER, source="a colleague")]),
            f"another zone is evacuated: {OTHER}, by a colleague",
        ),
        (Discovery(unreadable=[Unreadable(scope="ours", reason="no answer")]), "ours cannot be read: no answer"),
    ],
)
def test_a_run_looks_again_for_other_zones_after_a_long_stage(found: Discovery, reason: str) -> None:
    """The plan is older than the scale-out, which has taken minutes."""
    clock, plane, fleet = MovingClock(), ControlPlane(1), ControlPlane(1)
    seen = Discovery()

    class ScaleOut(RemoveZone):
        evacuation_stage = SCALE_OUT_STAGE

        def apply(self, entry: Entry) -> None:
            super().apply(entry)
            clock.advance(40)
            nonlocal seen
            seen = found

    class Shift(RemoveZone):
        def discover(self, target: Target) -> Discovery:
            return replace(seen, resources=super().discover(target).resources)

    runner = Runner({"scale": ScaleOut(plane), "shift": Shift(fleet)}, MemoryJournal(), clock)
    plan = runner.plan(TARGET)
    report = runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert fleet.zones == {"arn:000": {ZONE, OTHER}}
    assert [each.note for each in report.problems] == [f"not changed, because {reason}"]


def test_a_resource_that_an_action_does_not_understand_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its entry may be from another release."""
    clock, plane, journal = MovingClock(), ControlPlane(3), MemoryJournal()
    runner = Runner({"remove": RemoveZone(plane)}, journal, clock)
    plan = runner.plan(TARGET)
    runner.evacuate(runner.begin(plan, by="me@here"), plan)
    broken = next(each for each in journal.read_entries(ZONE) if each.resource == "arn:001")
    journal.write_entries([replace(broken, change={"run": TARGET.run})])
    report = runner.restore(runner.claim(TARGET.run))
    assert {each.resource: each.state for each in report.entries} == {
        "arn:000": EntryState.RESTORED,
        "arn:001": EntryState.RESTORING,
        "arn:002": EntryState.RESTORED,
    }
    assert [each.note for each in report.problems] == ["unexpected error: KeyError('zone')"]
    assert "failed unexpectedly" in caplog.text
    journal.write_entries([replace(broken, number=report.run.number)])
    assert runner.restore(runner.claim(TARGET.run)).run.state is RunState.RESTORED


def test_an_action_that_fails_unexpectedly_while_it_looks_makes_accounts_unknown() -> None:
    class Broken(RemoveZone):
        def discover(self, target: Target) -> Discovery:
            raise KeyError("Reservations")

    found = Runner({"remove": Broken(ControlPlane(1))}, MemoryJournal(), MovingClock()).plan(TARGET).discoveries
    assert found["remove"].unreadable[0].reason == "unexpected error: KeyError('Reservations')"


def test_a_lost_reply_while_a_claim_is_renewed_gives_no_resource_up() -> None:
    class Lossy(MemoryJournal):
        failures = 0

        def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
            if self.failures:
                self.failures -= 1
                raise OutcomeUnknown("commit: connection lost")
            return super().write_runs(runs, expected)

    clock, plane, journal = MovingClock(), ControlPlane(3), Lossy()

    def lose(_: str) -> None:
        plane.before_write = lambda _: None
        clock.advance(CLAIM_SECONDS * 0.6)
        journal.failures = 2

    plane.before_write = lose
    runner = Runner({"remove": RemoveZone(plane)}, journal, clock)
    plan = runner.plan(TARGET)
    report = runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert {each.state for each in report.entries} == {EntryState.APPLIED}


def test_an_effect_that_is_missing_is_named_although_a_call_was_throttled_before() -> None:
    class Slow(RemoveZone):
        calls = 0

        def read(self, entry: Entry) -> Reading:
            self.calls += 1
            if self.calls == 1:
                raise EngineUnavailable("throttled")
            return Reading(state=ChangeState.APPLIED, is_effective=False, note="3 of 5 healthy units")

    runner = Runner({"remove": Slow(ControlPlane(1))}, MemoryJournal(), MovingClock())
    plan = runner.plan(TARGET)
    report = runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert [each.note for each in report.problems] == [
        "arn:000: its change was requested, but is not complete after 180 s: 3 of 5 healthy units"
    ]

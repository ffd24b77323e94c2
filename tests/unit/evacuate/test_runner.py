"""Evacuations as a whole, on a control plane in memory: what is done, recorded and undone when calls fail."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Conflict, LeaseLost, NotAllowed
from holdfast.evacuate.action import ChangeState, Reading, Target
from holdfast.evacuate.journal import KEPT_RUNS, Entry, EntryState, Journal, RunState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.evacuate.runner import Runner
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import OTHER, ZONE, ControlPlane, Killed, RemoveZone, lose_reply, throttle

RUN = Target(zone=ZONE, workload="shop", run="hf-1", reason="test")


def build(plane: ControlPlane, journal: Journal | None = None, clock: FakeClock | None = None) -> Runner:
    return Runner({"remove": RemoveZone(plane)}, journal or MemoryJournal(), clock or FakeClock())


def evacuate(runner: Runner, target: Target = RUN) -> Report:
    plan = runner.plan(target)
    return runner.evacuate(runner.begin(plan, by="me@here"), plan)


def resume(runner: Runner) -> Report:
    return runner.evacuate(runner.claim("hf-1"), runner.plan(RUN))


def restore(runner: Runner, run_id: str = "hf-1", types: Sequence[str] = ()) -> Report:
    return runner.restore(runner.claim(run_id), types=types)


def states(report: Report) -> set[EntryState]:
    return {each.state for each in report.entries}


def test_an_evacuation_moves_everything_and_a_restore_brings_all_of_it_back() -> None:
    plane, journal = ControlPlane(5), MemoryJournal()
    before, runner = plane.copy(), build(plane, journal)
    report = evacuate(runner)
    assert (states(report), len(report.entries), report.problems) == ({EntryState.APPLIED}, 5, [])
    assert {frozenset(each) for each in plane.zones.values()} == {frozenset({OTHER})}
    (run,) = journal.read_runs().runs
    assert (run.state, run.holder, run.by) == (RunState.EVACUATED, "", "me@here")
    back = restore(runner)
    assert (states(back), plane.copy()) == ({EntryState.RESTORED}, before)
    assert journal.read_runs().open == ()


def test_every_intent_is_recorded_before_its_change() -> None:
    plane, journal = ControlPlane(3), MemoryJournal()
    seen: list[EntryState] = []

    def look(name: str) -> None:
        seen.extend(each.state for each in journal.read_entries(ZONE) if each.resource == name)

    plane.before_write = look
    runner = build(plane, journal)
    evacuate(runner)
    assert seen == [EntryState.INTENDED] * 3
    seen.clear()
    restore(runner)
    assert seen == [EntryState.RESTORING] * 3


@pytest.mark.parametrize("when", ["before_write", "after_write"])
@pytest.mark.parametrize("fail", [lose_reply, throttle])
def test_a_call_that_fails_once_is_not_repeated_blindly(when: str, fail: Callable[[str], None]) -> None:
    """After each failure the resource is read: a change that is there is not made again."""
    plane = ControlPlane(4)
    before, failed = plane.copy(), set[str]()

    def fail_once(name: str) -> None:
        if name not in failed:
            failed.add(name)
            fail(name)

    setattr(plane, when, fail_once)
    runner = build(plane)
    assert states(evacuate(runner)) == {EntryState.APPLIED}
    assert plane.writes == 4
    failed.clear()
    assert states(restore(runner)) == {EntryState.RESTORED}
    assert (plane.writes, plane.copy()) == (8, before)


def test_a_refused_resource_does_not_stop_the_others() -> None:
    plane = ControlPlane(4)

    def refuse(name: str) -> None:
        if name == "arn:002":
            raise NotAllowed("the policy does not allow it")

    plane.before_write = refuse
    report = evacuate(build(plane))
    (problem,) = report.problems
    assert (problem.resource, problem.state, problem.note) == (
        "arn:002",
        EntryState.FAILED,
        "the policy does not allow it",
    )
    assert len(report.entries) == 4


def test_a_resource_that_is_throttled_for_minutes_is_reported_and_stays_open() -> None:
    plane, journal = ControlPlane(1), MemoryJournal()
    plane.before_write = throttle
    runner = build(plane, journal)
    (problem,) = evacuate(runner).problems
    assert (problem.state, problem.note) == (EntryState.INTENDED, "too many requests")
    plane.before_write = lambda _: None
    assert states(resume(runner)) == {EntryState.APPLIED}


def kill_at(step: int, plane: ControlPlane, journal: Any) -> Callable[[], None]:
    """End everything at the given call of the journal or the control plane. Return a function that ends this."""
    numbers: Iterator[int] = count()

    def tick(*_: object) -> None:
        if next(numbers) >= step:
            raise Killed

    writes = {name: getattr(journal, name) for name in ("write_runs", "write_entries")}

    def around(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            tick()
            result = write(*arguments)
            tick()
            return result

        return wrapped

    for name, write in writes.items():
        setattr(journal, name, around(write))
    plane.before_write = plane.after_write = tick

    def stop() -> None:
        for name, write in writes.items():
            setattr(journal, name, write)
        plane.before_write = plane.after_write = lambda _: None

    return stop


@pytest.mark.parametrize("is_resumed", [False, True])
def test_after_a_kill_at_any_step_a_restore_returns_the_configuration(is_resumed: bool) -> None:
    steps = 0
    for step in range(200):
        plane, journal, clock = ControlPlane(3), MemoryJournal(), FakeClock()
        before = plane.copy()
        stop = kill_at(step, plane, journal)
        try:
            evacuate(build(plane, journal, clock))
        except Killed:
            steps += 1
        else:
            break
        stop()
        clock.advance(61)
        for run in journal.read_runs().open:
            runner = build(plane, journal, clock)
            if is_resumed:
                assert states(resume(runner)) == {EntryState.APPLIED}
            report = restore(runner, run.id)
            assert report.problems == []
        assert plane.copy() == before
        assert journal.read_runs().open == ()
    assert steps > 15


def test_a_kill_at_any_step_of_a_restore_is_continued_by_the_next_one() -> None:
    steps = 0
    for step in range(200):
        plane, journal, clock = ControlPlane(3), MemoryJournal(), FakeClock()
        before = plane.copy()
        evacuate(build(plane, journal, clock))
        stop = kill_at(step, plane, journal)
        try:
            restore(build(plane, journal, clock))
        except Killed:
            steps += 1
        else:
            break
        stop()
        clock.advance(61)
        for run in journal.read_runs().open:
            assert restore(build(plane, journal, clock), run.id).problems == []
        assert plane.copy() == before
        assert journal.read_runs().open == ()
    assert steps > 15


def test_after_an_interrupt_nothing_more_is_changed_and_the_run_can_be_continued_at_once() -> None:
    plane, journal, clock = ControlPlane(40), MemoryJournal(), FakeClock()
    before = plane.copy()

    def interrupt(name: str) -> None:
        if name == "arn:010":
            raise KeyboardInterrupt

    for undo in (False, True):
        plane.before_write = interrupt
        with pytest.raises(KeyboardInterrupt):
            restore(build(plane, journal, clock)) if undo else evacuate(build(plane, journal, clock))
        plane.before_write = lambda _: None
        assert plane.writes < 40
        assert journal.read_runs().open[0].holder == ""
        if not undo:
            assert states(resume(build(plane, journal, clock))) == {EntryState.APPLIED}
            plane.writes = 0
    assert restore(build(plane, journal, clock)).problems == []
    assert plane.copy() == before


def test_of_two_runs_one_wins_and_the_other_is_told_who_holds_it() -> None:
    plane, journal, clock = ControlPlane(2), MemoryJournal(), FakeClock()
    evacuate(build(plane, journal, clock))
    clock.advance(600)
    second = Target(zone=OTHER, workload="shop", run="hf-2")
    with pytest.raises(
        Conflict, match="run hf-1, which me@here started 10 minutes ago, has evacuated use1-az1 for shop"
    ):
        evacuate(build(plane, journal, clock), second)
    again = Target(zone=ZONE, workload=None, run="hf-3")
    with pytest.raises(Conflict, match="holdfast zone restore use1-az1"):
        evacuate(build(plane, journal, clock), again)
    assert evacuate(build(plane, journal, clock), Target(zone=ZONE, workload="blog", run="hf-4")).problems == []


def test_a_run_of_a_living_process_cannot_be_claimed_and_a_paused_one_stops() -> None:
    plane, journal, clock = ControlPlane(1), MemoryJournal(), FakeClock()

    def pause(_: str) -> None:
        plane.before_write = lambda _: None
        with pytest.raises(Conflict, match="wait until it has ended, or 60 s if its process died"):
            restore(build(plane, journal, clock))
        clock.advance(61)  # the process was stopped, and continues now
        assert restore(build(plane, journal, clock)).problems == []

    plane.before_write = pause
    with pytest.raises(LeaseLost):
        evacuate(build(plane, journal, clock))


def test_a_change_that_another_run_relies_on_is_undone_with_the_last_of_them() -> None:
    plane, journal = ControlPlane(2), MemoryJournal()
    before, runner = plane.copy(), build(plane, journal)
    evacuate(runner)
    report = evacuate(runner, Target(zone=ZONE, workload="blog", run="hf-2"))
    assert {each.state for each in report.entries} == {EntryState.FOUND}
    first = restore(runner)
    assert {(each.state, each.note) for each in first.entries} == {
        (EntryState.KEPT, "run hf-2 needs this change, too, and undoes it later")
    }
    assert (plane.copy() != before, [each.id for each in journal.read_runs().open]) == (True, ["hf-2"])
    assert states(restore(runner, "hf-2")) == {EntryState.RESTORED}
    assert plane.copy() == before


def test_a_run_is_not_restored_while_another_one_of_the_zone_is_under_way() -> None:
    plane, journal, clock = ControlPlane(1), MemoryJournal(), FakeClock()
    evacuate(build(plane, journal, clock))
    other = build(plane, journal, clock)
    other.begin(other.plan(Target(zone=ZONE, workload="blog", run="hf-2")), by="colleague")
    for _ in range(2):  # nobody has to wait for the claim of a restore that was refused
        with pytest.raises(Conflict, match=r"hf-2.* is evacuating use1-az1 for blog.*: wait until it has ended"):
            restore(build(plane, journal, clock))


def test_an_error_after_a_write_leaves_the_entry_open() -> None:
    plane, journal = ControlPlane(1), MemoryJournal()
    action = RemoveZone(plane)
    read, calls = action.read, count()

    def fail(entry: Entry) -> Reading:
        if next(calls) == 1:
            raise NotAllowed("the token has expired")
        return read(entry)

    action.read = fail  # type: ignore[method-assign]
    runner = Runner({"remove": action}, journal, FakeClock())
    (problem,) = evacuate(runner).problems
    assert (problem.state, plane.writes) == (EntryState.INTENDED, 1)
    assert "the token has expired" in problem.note
    assert restore(runner).problems == []
    assert plane.zones["arn:000"] == {ZONE, OTHER}


def test_a_resumed_run_whose_resource_cannot_be_read_stays_open() -> None:
    plane, journal = ControlPlane(1), MemoryJournal()
    before, runner = plane.copy(), build(plane, journal)
    evacuate(runner)
    action = RemoveZone(plane)

    def refuse(entry: Entry) -> Reading:
        raise NotAllowed("this role may not read it")

    action.read = refuse  # type: ignore[method-assign]
    (problem,) = resume(Runner({"remove": action}, journal, FakeClock())).problems
    assert problem.state.is_open
    assert restore(runner).problems == []
    assert plane.copy() == before


def test_a_change_of_others_that_has_ended_is_made_by_a_resume() -> None:
    plane = ControlPlane(1)
    runner = build(plane)
    plane.write("arn:000", {OTHER}, "somebody")
    assert states(evacuate(runner)) == {EntryState.FOUND}
    plane.write("arn:000", {ZONE, OTHER}, None)
    assert states(resume(runner)) == {EntryState.APPLIED}


def test_entries_of_forgotten_runs_are_deleted() -> None:
    plane, journal, clock = ControlPlane(1), MemoryJournal(), FakeClock()
    for number in range(KEPT_RUNS + 2):
        run = Target(zone=ZONE, run=f"hf-{number}")
        evacuate(build(plane, journal, clock), run)
        clock.advance(60)
        restore(build(plane, journal, clock), run.run)
    assert {each.run for each in journal.read_entries()} == {each.id for each in journal.read_runs().runs}


def test_a_dead_account_does_not_delay_the_others_for_long() -> None:
    plane, clock = ControlPlane(0), FakeClock()
    for number in range(40):
        plane.zones[f"arn:aws:elb:us-east-1:111111111111:{number:03}"] = {ZONE, OTHER}
        plane.zones[f"arn:aws:elb:us-east-1:222222222222:{number:03}"] = {ZONE, OTHER}

    def die(name: str) -> None:
        if ":1111" in name:
            throttle(name)

    plane.before_write = die
    began = clock.monotonic()
    report = evacuate(build(plane, clock=clock))
    assert len(report.problems) == 40
    assert clock.monotonic() - began < 40 * 180 / 4


def test_changes_of_others_are_kept_and_reported() -> None:
    plane = ControlPlane(3)
    runner = build(plane)
    plane.write("arn:000", {OTHER}, "somebody")
    report = evacuate(runner)
    assert {each.resource: each.state for each in report.entries}["arn:000"] is EntryState.FOUND
    del plane.zones["arn:001"]
    assert runner.verify(report.run)["arn:001"].state is ChangeState.GONE
    back = {each.resource: each.state for each in restore(runner).entries}
    assert back == {"arn:000": EntryState.FOUND, "arn:001": EntryState.KEPT, "arn:002": EntryState.RESTORED}
    assert plane.zones == {"arn:000": {OTHER}, "arn:002": {ZONE, OTHER}}


def test_a_restore_of_some_types_leaves_the_run_open() -> None:
    plane, journal = ControlPlane(1), MemoryJournal()
    runner = build(plane, journal)
    evacuate(runner)
    assert states(restore(runner, types=["other"])) == {EntryState.APPLIED}
    assert journal.read_runs().runs[0].state is RunState.EVACUATED
    assert states(restore(runner, types=["group"])) == {EntryState.RESTORED}
    assert journal.read_runs().open == ()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["000", "001", "002"]), st.sampled_from(["leave", "return", "delete"]))))
def test_random_changes_of_others_are_never_undone(changes: list[tuple[str, str]]) -> None:
    plane = ControlPlane(3)
    runner = build(plane)
    evacuate(runner)
    touched: dict[str, Any] = {}
    for number, what in changes:
        name = f"arn:{number}"
        if name not in plane.zones:
            continue
        if what == "delete":
            del plane.zones[name]
        else:
            plane.write(name, {OTHER} if what == "leave" else {ZONE, OTHER}, "somebody")
        touched[name] = frozenset(plane.zones[name]) if name in plane.zones else None
    restore(runner)
    for name in ("arn:000", "arn:001", "arn:002"):
        found = frozenset(plane.zones[name]) if name in plane.zones else None
        assert found == touched.get(name, frozenset({ZONE, OTHER}))

"""Conformance suites for journals and actions of evacuation, as tests to inherit.

    class TestMyJournal(JournalConformance):
        @pytest.fixture
        def journal(self) -> Journal:
            return MyJournal()

    class TestMyAction(ActionConformance):
        @pytest.fixture
        def action(self) -> Action:
            return MyAction(with_resources_in=ZONE)

Needs pytest. For readable failures, call `pytest.register_assert_rewrite("holdfast.testing.evacuation")` in
`conftest.py`.
"""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from msgspec.structs import replace

from holdfast._errors import Conflict, LeaseLost
from holdfast._types import Zone
from holdfast.evacuate.action import Action, ChangeState, Discovery, PlannedChange, Resource, Target
from holdfast.evacuate.journal import Entry, EntryState, Journal, RecordedRuns, Run, RunState

__all__ = ["ActionConformance", "DeletableActionConformance", "JournalConformance"]

ZONE, OTHER = Zone("use1-az1"), Zone("use1-az2")
NOW = 4_000_000_000.0
WRITERS = 8
"""Threads that write at the same time: enough to collide, few enough for a small machine."""


def build_run(run_id: str = "hf-1") -> Run:
    return Run(
        id=run_id,
        zone=ZONE,
        workload="shop",
        by="operator@laptop",
        reason="requests fail: 40 %",
        started=NOW,
        overrides={"pause": "the first attempt was interrupted"},
        state=RunState.EVACUATING,
        holder="laptop/1",
        held_until=NOW + 60.5,
        number=3,
    )


def build_entry(resource: str = "arn:aws:a", *, zone: Zone = ZONE, type: str = "group", number: int = 1) -> Entry:  # noqa: A002
    return Entry(
        zone=zone,
        resource=resource,
        type=type,
        action="remove-subnets",
        run="hf-1",
        number=number,
        state=EntryState.INTENDED,
        at=NOW + 0.25,
        name="Größe 'a'",
        change={"subnets": ["subnet-1", "subnet-2"], "min": 3, "is_cross_zone": False, "ratio": 0.5, "old": None},
        record={"shift": "id-1"},
        note="a note; with 'quotes'",
    )


class JournalConformance:
    """Tests of the contract of `holdfast.evacuate.journal.Journal`. Override the fixture `journal`."""

    @pytest.fixture
    def journal(self) -> Journal:
        """Return a fresh, empty journal."""
        raise NotImplementedError("override the fixture `journal` to return a fresh, empty Journal")

    def test_a_new_journal_is_empty(self, journal: Journal) -> None:
        assert journal.read_runs() == RecordedRuns(0, ())
        assert list(journal.read_entries()) == []
        journal.write_entries([])

    def test_runs_are_read_as_they_were_written(self, journal: Journal) -> None:
        first = journal.write_runs([build_run()], 0)
        assert first.runs == (build_run(),)
        assert first.version > 0
        assert journal.read_runs() == first
        two = [build_run(), replace(build_run("hf-2"), workload=None, overrides={}, holder="", held_until=0.0)]
        second = journal.write_runs(two, first.version)
        assert second.version > first.version
        assert journal.read_runs() == RecordedRuns(second.version, tuple(two))
        assert journal.write_runs([], second.version).version > second.version
        assert journal.read_runs().runs == ()

    def test_runs_that_have_changed_are_not_overwritten(self, journal: Journal) -> None:
        with pytest.raises(Conflict, match="read them again"):
            journal.write_runs([], 7)
        first = journal.write_runs([build_run()], 0)
        for version in (0, first.version + 1):
            with pytest.raises(Conflict):
                journal.write_runs([], version)
        assert journal.read_runs() == first

    def test_of_several_writers_one_wins(self, journal: Journal) -> None:
        version = journal.write_runs([], 0).version

        def write(number: int) -> str:
            try:
                return journal.write_runs([build_run(f"hf-{number}")], version).runs[0].id
            except Conflict:
                return ""

        with ThreadPoolExecutor(WRITERS) as pool:
            won = [each for each in pool.map(write, range(WRITERS)) if each]
        assert [each.id for each in journal.read_runs().runs] == won
        assert len(won) == 1

    def test_entries_are_read_as_they_were_written(self, journal: Journal) -> None:
        entry = build_entry()
        journal.write_entries([entry])
        assert list(journal.read_entries()) == [entry]
        applied = replace(entry, state=EntryState.APPLIED, record={}, note="", at=NOW + 1)
        journal.write_entries([applied])
        assert list(journal.read_entries()) == [applied]

    def test_entries_are_found_by_zone_and_type(self, journal: Journal) -> None:
        entries = [
            build_entry("a"),
            build_entry("b", type="balancer"),
            build_entry("a", zone=OTHER),
            build_entry("c", zone=OTHER, type="balancer"),
        ]
        journal.write_entries(entries)

        def find(zone: Zone | None = None, type: str | None = None) -> set[tuple[str, str]]:  # noqa: A002
            return {(each.zone, each.resource) for each in journal.read_entries(zone, type=type)}

        assert len(find()) == 4
        assert find(ZONE) == {(ZONE, "a"), (ZONE, "b")}
        assert find(type="balancer") == {(ZONE, "b"), (OTHER, "c")}
        assert find(OTHER, "balancer") == {(OTHER, "c")}
        assert find(Zone("use1-az3")) == set()

    def test_many_entries_are_kept(self, journal: Journal) -> None:
        entries = [build_entry(f"arn:{number:04}") for number in range(300)]
        journal.write_entries(entries)
        assert sorted(journal.read_entries(ZONE), key=lambda each: each.resource) == entries

    def test_a_process_whose_run_was_continued_cannot_overwrite_entries(self, journal: Journal) -> None:
        journal.write_entries([build_entry(number=5)])
        journal.write_entries([build_entry(number=5)])
        newer = replace(build_entry(number=6), state=EntryState.RESTORED)
        journal.write_entries([newer])
        with pytest.raises(LeaseLost, match="another process has continued run hf-1"):
            journal.write_entries([build_entry(number=5)])
        assert list(journal.read_entries()) == [newer]

    def test_two_runs_have_entries_of_their_own_and_deleted_ones_are_gone(self, journal: Journal) -> None:
        first, second = build_entry(number=5), replace(build_entry(), run="hf-2")
        journal.write_entries([first, second])
        assert sorted(journal.read_entries(ZONE), key=lambda each: each.run) == [first, second]
        journal.delete_entries([first])
        journal.delete_entries([first])
        journal.delete_entries([])
        assert list(journal.read_entries(ZONE)) == [second]


class ActionConformance:
    """Tests of the contract of `holdfast.evacuate.action.Action`. Override the fixture `action`."""

    target = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")

    @pytest.fixture
    def action(self) -> Action:
        """Return an action that finds at least two resources in `use1-az1`, which are also in another zone."""
        raise NotImplementedError("override the fixture `action` to return an Action with resources in use1-az1")

    def discover(self, action: Action) -> Discovery:
        found = action.discover(self.target)
        assert len(found.resources) >= 2, "the suite needs two resources"
        assert list(found.unreadable) == []
        return found

    def plan(self, action: Action, resource: Resource, run: str = "hf-1") -> Entry:
        """Return the entry of a planned change, as it comes back from a journal."""
        planned = action.plan(resource, replace(self.target, run=run))
        assert isinstance(planned, PlannedChange)
        assert planned.description
        entry = Entry(
            zone=ZONE,
            resource=resource.id,
            type=resource.type,
            action="tested",
            run=run,
            number=1,
            state=EntryState.INTENDED,
            at=NOW,
            change=planned.change,
        )
        return msgspec.json.decode(msgspec.json.encode(entry), type=Entry)

    def test_resources_are_different_and_have_names(self, action: Action) -> None:
        found = self.discover(action)
        assert len({each.id for each in found.resources}) == len(found.resources)
        assert all(each.name and each.type for each in found.resources)
        assert list(found.other_evacuations) == []

    def test_a_change_is_made_recognized_and_undone(self, action: Action) -> None:
        first, second, *_ = self.discover(action).resources
        entry, untouched = self.plan(action, first), self.plan(action, second)
        assert action.read(entry).state is ChangeState.ABSENT
        action.apply(entry)
        applied = action.read(entry)
        assert applied.state is ChangeState.APPLIED
        msgspec.json.encode(applied.record)
        assert action.read(untouched).state is ChangeState.ABSENT
        action.renew(entry, applied)
        action.restore(entry, action.read(entry))
        assert action.read(entry).state is ChangeState.ABSENT

    def test_discovery_and_plans_change_nothing(self, action: Action) -> None:
        entries = [self.plan(action, each) for each in self.discover(action).resources]
        assert {action.read(each).state for each in entries} == {ChangeState.ABSENT}

    def test_a_change_of_another_run_is_not_ours(self, action: Action) -> None:
        resource = self.discover(action).resources[0]
        ours, theirs = self.plan(action, resource), self.plan(action, resource, "hf-2")
        action.apply(theirs)
        assert action.read(theirs).state is ChangeState.APPLIED
        found = action.read(ours)
        if found.shows_owner:
            assert found.state is ChangeState.FOUND
            assert found.note, "it says who made the change"
        else:
            assert found.state is ChangeState.APPLIED, "the journal decides whose change it is"

    def test_a_change_can_be_made_again_after_it_was_undone(self, action: Action) -> None:
        entry = self.plan(action, self.discover(action).resources[0])
        for _ in range(2):
            action.apply(entry)
            action.restore(entry, action.read(entry))
        assert action.read(entry).state is ChangeState.ABSENT


class DeletableActionConformance(ActionConformance):
    """The same for an action whose resources can be deleted. Override `delete`, too."""

    def delete(self, resource: Resource) -> None:
        """Delete a resource as another person or program would, not by the action."""
        raise NotImplementedError(f"override `delete`, to delete {resource.id}")

    def test_a_deleted_resource_is_gone(self, action: Action) -> None:
        resource = self.discover(action).resources[0]
        entry = self.plan(action, resource)
        action.apply(entry)
        self.delete(resource)
        assert action.read(entry).state is ChangeState.GONE

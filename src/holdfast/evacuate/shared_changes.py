"""Changes that several open runs of a zone need, such as those of two workloads that share a balancer.

One run makes such a change. The others record that they rely on it. The last run that needs the change undoes it: if
the run that made it is restored first, another run takes the change over.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict
from holdfast.evacuate.claims import find_ended_holders
from holdfast.evacuate.journal import Entry, EntryState, Journal, Run, describe_run, is_held
from holdfast.evacuate.selection import Selection

TagFilterBuilder: TypeAlias = Callable[[Selection], Callable[[str], bool]]
"""Returns a function that says whether the resource with an ARN has the tags of a selection."""


class SharedChanges:
    """Finds the changes that runs share, in one journal."""

    def __init__(self, journal: Journal, clock: Clock, build_tag_filter: TagFilterBuilder) -> None:
        self._journal = journal
        self._clock = clock
        self._build_tag_filter = build_tag_filter

    def adopt(self, run: Run, known: Collection[str]) -> list[Entry]:
        """Record and return changes that other open runs of the zone have made, and that this run would make as well.

        The plan of this run does not list them: once another run has removed the subnets of a group, discovery does not
        find it in the zone. `known` are the resources that the run has already. Changes whose outcome is unknown count
        as well.
        """
        others = {
            each.id
            for each in self._journal.read_runs().open
            if each.zone == run.zone and each.id != run.id and run.selection.may_overlap(each.selection)
        }
        entries = self._journal.read_entries(run.zone) if others else ()
        recorded = [each for each in entries if each.run in others and each.state.is_open]
        now, is_tagged = self._clock.wall(), self._build_tag_filter(run.selection)
        # Of several changes of one resource, the last one decides what is there now.
        last = {each.resource: each for each in sorted(recorded, key=lambda each: each.made)}
        found = [
            replace(
                each,
                run=run.id,
                number=run.number,
                state=EntryState.FOUND,
                at=now,
                relies_on=each.run,
                note=f"run {each.run} has made the change",
            )
            for each in last.values()
            if each.resource not in known
            and each.resource.startswith("arn:")
            and run.selection.matches(None if each.is_always_included else each.type, each.name)
            and is_tagged(each.resource)
        ]
        self._journal.write_entries(found)
        return found

    def list_others(self, run: Run) -> frozenset[str]:
        """Return the ids of the other open runs of the same zone. Raise Conflict if a process works on one of them."""
        recorded, now = self._journal.read_runs(), self._clock.wall()
        others = [each for each in recorded.open if each.zone == run.zone and each.id != run.id]
        for other in others:
            if is_held(other, now, find_ended_holders(recorded)):
                raise Conflict(f"{describe_run(other, now)}: wait until it has ended")
        return frozenset(each.id for each in others)

    def hand_over(
        self, entries: Sequence[Entry], recorded: Sequence[Entry], others: Collection[str], number: int
    ) -> list[Entry]:
        """Let other runs undo those changes later that they rely on, and return the entries of this run for them.

        `entries` are the changes that this run is about to undo, `recorded` all entries of the zone, and `number` is
        the claim of this run.
        """
        changes = {each.resource: each for each in entries}
        relying = {
            each.resource: each
            for each in recorded
            if each.run in others
            and each.resource in changes
            # After a kill in the middle of a hand-over, both runs have the same change.
            and (
                each.state is EntryState.FOUND or (each.state.is_open and each.change == changes[each.resource].change)
            )
        }
        return [self._hand_over(changes[resource], each, number) for resource, each in relying.items()]

    def find_superseded(self, entries: Sequence[Entry], recorded: Sequence[Entry]) -> dict[str, Run]:
        """Return the resources of some entries that another open run has changed later, with that run.

        The later run remembers the resource as it found it, which is with the earlier change.
        """
        runs = {each.id: each for each in self._journal.read_runs().open}
        by_key: dict[tuple[str, str], list[Entry]] = {}
        for each in recorded:
            if each.run in runs and each.state.is_open:
                by_key.setdefault((each.resource, each.action), []).append(each)
        return {
            entry.resource: runs[each.run]
            for entry in entries
            for each in by_key.get((entry.resource, entry.action), ())
            # After a kill in the middle of a hand-over, both runs have the same change.
            if each.run != entry.run and each.made > entry.made and each.change != entry.change
        }

    def postpone(self, entries: Sequence[Entry], recorded: Sequence[Entry], run: Run) -> list[Entry]:
        """Record and return those of some changes of a run that cannot be undone yet: a later one must be first."""
        later = self.find_superseded(entries, recorded)
        waiting = []
        for each in entries:
            if each.resource in later:
                other = later[each.resource]
                whom = other.workload or "all workloads"
                note = f"run {other.id} for {whom} has changed it later: restore that run first"
                waiting += self.record_waiting([each], note, run)
        return waiting

    def record_waiting(self, entries: Sequence[Entry], note: str, run: Run) -> list[Entry]:
        """Record and return entries of a run that cannot be restored yet, with the reason."""
        now = self._clock.wall()
        found = [replace(each, state=EntryState.RESTORING, number=run.number, at=now, note=note) for each in entries]
        self._journal.write_entries(found)
        return found

    def _hand_over(self, entry: Entry, relying: Entry, number: int) -> Entry:
        now = self._clock.wall()
        if relying.state is EntryState.FOUND:
            # A change whose outcome is unknown stays so.
            state = EntryState.APPLIED if entry.state is EntryState.APPLIED else EntryState.INTENDED
            adopted = replace(
                relying,
                state=state,
                change=entry.change,
                record=entry.record,
                number=number,
                at=entry.at if state is EntryState.INTENDED else now,
                relies_on="",
                note="",
                made=entry.made,
            )
            self._journal.write_entries([adopted])  # first: after a kill in between, both runs may undo it
        note = f"run {relying.run} needs this change, too, and undoes it later"
        outcome = replace(entry, state=EntryState.KEPT, number=number, at=now, note=note)
        self._journal.write_entries([outcome])
        return outcome

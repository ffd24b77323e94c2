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
        now, is_tagged = self._clock.wall(), self._build_tag_filter(run.selection)
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
            for each in (self._journal.read_entries(run.zone) if others else ())
            if each.run in others
            and each.state.is_open
            and each.resource not in known
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

    def postpone(self, entries: Sequence[Entry], recorded: Sequence[Entry], run: Run) -> list[Entry]:
        """Return those of some changes that must wait, because a later open run has changed the same resource, too.

        The later run remembers the resource as it found it, which is with the change of this run. So it has to be
        restored first.
        """
        later = {
            each.id: each
            for each in self._journal.read_runs().open
            if each.zone == run.zone and (each.started, each.id) > (run.started, run.id)
        }
        found = {
            (each.resource, each.action): later[each.run]
            for each in recorded
            if each.run in later and each.state.is_open
        }
        return [
            replace(each, note=f"{_describe(found[each.resource, each.action])} changed it, too: restore that first")
            for each in entries
            if (each.resource, each.action) in found
        ]

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
            )
            self._journal.write_entries([adopted])  # first: after a kill in between, both runs may undo it
        note = f"run {relying.run} needs this change, too, and undoes it later"
        outcome = replace(entry, state=EntryState.KEPT, number=number, at=now, note=note)
        self._journal.write_entries([outcome])
        return outcome


def _describe(run: Run) -> str:
    return f"run {run.id} for {run.workload or 'all workloads'} has later"

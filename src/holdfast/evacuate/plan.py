"""The plan of an evacuation, and the report about what became of it. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.evacuate.action import Discovery, PlannedChange, Target, Unmovable, Unreadable
from holdfast.evacuate.journal import Entry, EntryState, Run

UNREADABLE, CAPACITY = "unreadable", "capacity"
"""The names of the guards that ask whether everything could be read, and whether the other zones suffice."""


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that an evacuation would change, and what it cannot move."""

    target: Target
    changes: Mapping[str, Sequence[PlannedChange]]
    """By name of the action, in the order in which they are made."""
    unmovable: Sequence[Unmovable]
    discoveries: Mapping[str, Discovery]

    @property
    def notes(self) -> Sequence[str]:
        """Facts that an operator should know, each once."""
        target, notes = self.target, [note for found in self.discoveries.values() for note in found.notes]
        is_limited = bool(target.selection.tags or target.selection.names)
        moved = (each.resource.account for changes in self.changes.values() for each in changes)
        if target.workload is not None and not is_limited and any(moved):
            text = f"WARNING: {target.workload} has no `workload.resources` in the settings, so this plan has every"
            notes.insert(0, f"{text} resource of the configured accounts in {target.zone}")
        return list(dict.fromkeys(notes))


class Report(Struct, frozen=True, kw_only=True):
    """The outcome of an evacuation or a restore: the last entry of every resource."""

    run: Run
    entries: Sequence[Entry]
    is_restore: bool = False
    unreadable: Sequence[Unreadable] = ()
    """Accounts and stores that could not be read, so that nothing was changed there."""
    waits_for_capacity: bool = False
    """Whether a restore brought no traffic back, because capacity in the zone is missing or not healthy."""

    @property
    def is_partial(self) -> bool:
        """True if something is left to do."""
        if self.is_restore:
            return self.run.is_open
        return bool(self.problems or self.unreadable or self.remarks)

    @property
    def remarks(self) -> Sequence[Entry]:
        """The resources that were changed or restored, but not completely, such as nodes on which pods are left."""
        done = EntryState.RESTORED if self.is_restore else EntryState.APPLIED
        return [each for each in self.entries if each.state is done and each.note]

    @property
    def problems(self) -> Sequence[Entry]:
        """The resources that were not changed, or not restored."""
        done = (EntryState.APPLIED, EntryState.FOUND, EntryState.RESTORED)
        return [each for each in self.entries if each.state not in done]


def find_obstacle(plan: Plan, run: Run) -> str:
    """Return why the plan must not be carried out; "" if it may. Guards do not ask again for a run that is resumed."""
    if other := _find_other_zone(plan.discoveries.values(), plan.target):
        return other
    unreadable = [each for found in plan.discoveries.values() for each in found.unreadable]
    if unreadable and UNREADABLE not in run.overrides:
        return f"not changed, because {unreadable[0].scope} cannot be read: {unreadable[0].reason}"
    return ""


def _find_other_zone(discoveries: Iterable[Discovery], target: Target) -> str:
    """Return that others evacuate another zone; "" if they do not, or if an operator has allowed it."""
    others = [each for found in discoveries for each in found.other_evacuations if each.zone != target.zone]
    if not others or target.allows_second_zone:
        return ""
    return f"not changed, because another zone is evacuated: {others[0].zone}, by {others[0].source}"

"""The journal of evacuations: what was intended, what was done, and everything that is needed to restore it. Pure.

A run is one evacuation of one zone. It records an entry for each resource before it changes the resource, and again
afterwards. So wherever a process is killed, the journal has every resource that it may have changed.

A journal is a store with five methods. The runs are one document with a version: if two operators start at the same
time, only one of them can write it. Entries have the number of the claim that wrote them: a process that was paused,
and whose run another process has continued, cannot overwrite newer entries.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast._errors import Conflict, LeaseLost
from holdfast._names import format_count, get_region_code
from holdfast._types import Zone
from holdfast.evacuate.selection import Selection

__all__ = ["Entry", "EntryState", "Journal", "RecordedRuns", "Run", "RunState", "build_conflict", "build_lease_lost"]

CLAIM_SECONDS = 60.0
"""Seconds after which another process may continue a run whose process does not renew its claim. On the host of that
process, it may do so as soon as the process has ended."""
KEPT_RUNS = 20
"""Restored runs that are kept: guards ask when the last evacuation began, and people look back."""


class RunState(StrEnum):
    """How far a run is."""

    EVACUATING = "evacuating"
    EVACUATED = "evacuated"
    RESTORING = "restoring"
    RESTORED = "restored"


class Run(Struct, frozen=True, kw_only=True):
    """The evacuation of one zone, for one workload or for all, from its start until everything is restored."""

    id: str
    zone: Zone
    workload: str | None = None
    by: str
    """The user and the host that started it."""
    by_server: bool = False
    """Whether a server started it: after a restart, the server continues it."""
    reason: str
    started: float
    overrides: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The guards that were overridden, by name, and the reason that was given."""
    state: RunState = RunState.EVACUATING
    holder: str = ""
    """The process that works on it, as text; "" if none does."""
    held_until: float = 0.0
    number: int = 0
    """Number of the claim. It grows with every claim of any run."""
    ended: float | None = None
    """When everything was restored."""
    types: tuple[str, ...] = ()
    """The types of resources that are being restored; none means all of them."""
    selection: Selection = msgspec.field(default_factory=Selection)
    """The resources that are evacuated."""
    is_partial: bool = False
    """Whether something is left to do: some resources were not changed, or are restored already and others are not."""

    @property
    def is_open(self) -> bool:
        """True until everything is restored."""
        return self.state is not RunState.RESTORED

    def is_in_region(self, zone: Zone) -> bool:
        """Return whether its zone is in the region of another zone."""
        return get_region_code(self.zone) == get_region_code(zone)

    def overlaps(self, zone: Zone, workload: str | None) -> bool:
        """Return whether the run affects the same workload, in the same region."""
        is_same_workload = self.workload is None or workload is None or self.workload == workload
        return self.is_in_region(zone) and is_same_workload


class EntryState(StrEnum):
    """The state of one resource in a run."""

    INTENDED = "intended"
    """The change was about to be made: it may or may not have been."""
    APPLIED = "applied"
    FOUND = "found"
    """Another person or program had made the same change already. It is never undone."""
    FAILED = "failed"
    """The change could not be made. The note says why."""
    RESTORING = "restoring"
    """The change was about to be undone: it may or may not have been."""
    RESTORED = "restored"
    KEPT = "kept"
    """The resource was not restored, because others changed or deleted it meanwhile. The note says how."""

    @property
    def is_open(self) -> bool:
        """True if there may be something to restore."""
        return self in (EntryState.INTENDED, EntryState.APPLIED, EntryState.RESTORING)


class Entry(Struct, frozen=True, kw_only=True):
    """One resource in a run, with everything that is needed to restore it."""

    zone: Zone
    resource: str
    """The ARN, or another name that is unique."""
    type: str
    """The type of the resource, such as `load-balancer`."""
    action: str
    """The name of the action that changes it."""
    run: str
    number: int
    """Number of the claim that wrote the entry."""
    state: EntryState
    at: float
    name: str = ""
    """The name for people."""
    change: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The planned change, and the configuration before it. Only the action knows its content."""
    record: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Facts that the action needs about the change that it made, such as the id of a zonal shift."""
    note: str = ""
    relies_on: str = ""
    """The id of the run that has made a change which this run needs, too; "" for all other entries."""
    is_always_included: bool = False
    """Whether the change is made whatever types are chosen: see `Resource.is_always_included`."""
    made: int = 0
    """Number of the claim by which the change was first recorded. Of two changes of one resource, the later one has the
    greater number, whatever the run."""


class RecordedRuns(NamedTuple):
    """The open runs and the last restored ones, with the version of the document that has them."""

    version: int
    runs: tuple[Run, ...]

    @property
    def open(self) -> tuple[Run, ...]:
        """The runs that are not restored yet."""
        return tuple(each for each in self.runs if each.is_open)


class Journal(Protocol):
    """A store of runs and entries. Thread-safe; everything is durable when a method returns."""

    def read_runs(self) -> RecordedRuns:
        """Return the runs. A new journal has none, and the version 0."""

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        """Replace the runs if the document still has the version `expected`; otherwise raise Conflict.

        The new version is greater than all earlier ones.
        """

    def write_entries(self, entries: Sequence[Entry]) -> None:
        """Store entries by zone, resource and run. Raise LeaseLost if a stored entry has a greater number of a claim.

        Either all of them are stored, or, if it raises, any number of them.
        """

    def read_entries(self, zone: Zone | None = None, *, type: str | None = None) -> Sequence[Entry]:  # noqa: A002
        """Return the entries of a zone, or of all zones; with `type`, only of this type of resource."""

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        """Delete entries of runs that are not recorded any more. Those that do not exist are ignored."""


def build_conflict(expected: int) -> Conflict:
    """Return the error for a document of runs that has changed."""
    return Conflict(f"the runs have changed since version {expected}: read them again, then decide again")


def build_lease_lost(entry: Entry) -> LeaseLost:
    """Return the error for an entry that a later claim has written."""
    return LeaseLost(
        f"another process has continued run {entry.run}, and has changed the entry of {entry.resource}: this one stops"
    )


def find_run(recorded: RecordedRuns, run_id: str) -> Run | None:
    """Return the run with an id."""
    return next((each for each in recorded.runs if each.id == run_id), None)


def add_run(
    recorded: RecordedRuns, wanted: Run, holder: str, now: float, *, allows_second_zone: bool = False
) -> tuple[Run, ...]:
    """Return the runs with a new one that `holder` works on.

    Raise Conflict if a run of another zone of the region is open, for any workload, unless `allows_second_zone`; if a
    run of the same zone is open, for the same workload or for all: that one must be resumed or restored first; or if
    any run of the same zone is being restored: it may bring back what the new one needs.
    """
    for each in recorded.open:
        # Whatever the workload: a zonal shift moves resources of all workloads.
        if each.zone != wanted.zone and each.is_in_region(wanted.zone) and not allows_second_zone:
            raise Conflict(
                f"{describe_run(each, now)}: only one zone of a region is evacuated. Restore {each.zone} first "
                f"(`holdfast zone restore {each.zone}`), or override the guard other-zone"
            )
    require_no_open_run(recorded.runs, wanted.zone, wanted.workload, now)
    for each in recorded.open:
        if each.zone == wanted.zone and each.state is RunState.RESTORING:
            raise Conflict(f"{describe_run(each, now)}: it is being restored, so wait until that has ended")
    return (*recorded.runs, _hold(wanted, holder, recorded.version, now))


def require_no_open_run(runs: Sequence[Run], zone: Zone, workload: str | None, now: float) -> None:
    """Raise Conflict, which says what to do, if the zone is evacuated already, for this workload or for all."""
    for each in runs:
        if each.is_open and each.zone == zone and each.overlaps(zone, workload):
            raise Conflict(f"{describe_run(each, now)}: {_advise(each, now)}")


def _advise(run: Run, now: float) -> str:
    """Return what to do about an open run before another one can begin."""
    resume, restore = (f"`holdfast zone {each} {run.zone}`" for each in ("resume", "restore"))
    begin = "a process is at work: wait until it has ended; if it has died, " if is_held(run, now) else ""
    if run.state is RunState.RESTORING:
        return f"{begin}finish restoring it with {restore}"
    if run.state is RunState.EVACUATING or run.is_partial:
        return f"{begin}continue it with {resume}, or undo it with {restore}"
    return f"{begin}undo it with {restore}"


def is_held(run: Run, now: float, ended: Collection[str] = ()) -> bool:
    """Return whether a process works on a run. `ended` has the holders whose processes have certainly ended."""
    return run.holder not in ("", *ended) and now < run.held_until


def claim_run(
    recorded: RecordedRuns, run_id: str, holder: str, now: float, *, ended: Collection[str] = ()
) -> tuple[Run, ...]:
    """Return the runs after `holder` has begun to work on one. Raise Conflict if a process works on it already.

    That may be the same process: a server renews a run in one thread, and restores it in another. `ended` has the
    holders whose processes have certainly ended: nobody waits for their claims.
    """
    found = find_run(recorded, run_id)
    if found is None or not found.is_open:
        raise Conflict(f"run {run_id} is not open any more: it was restored")
    if is_held(found, now, ended):
        raise Conflict(
            f"{describe_run(found, now)}: wait until it has ended, or "
            f"{found.held_until - now:.0f} s if its process died"
        )
    held = _hold(found, holder, recorded.version, now)
    return tuple(held if each is found else each for each in recorded.runs)


def update_run(recorded: RecordedRuns, run: Run) -> tuple[Run, ...]:
    """Return the runs with `run` in a new state. Raise Conflict if another process has claimed it meanwhile."""
    found = find_run(recorded, run.id)
    if found is None or found.number != run.number:
        raise Conflict(f"another process has continued run {run.id}, so this one stops")
    return tuple(run if each is found else each for each in recorded.runs)


def end_run(recorded: RecordedRuns, run: Run, now: float) -> tuple[Run, ...]:
    """Return the runs after one was restored. Raise Conflict if another process has claimed it meanwhile."""
    ended = replace(run, state=RunState.RESTORED, holder="", held_until=0.0, ended=now)
    runs = update_run(recorded, ended)
    kept = sorted((each for each in runs if not each.is_open), key=lambda each: each.ended or 0.0)[-KEPT_RUNS:]
    return tuple(each for each in runs if each.is_open or each in kept)


def describe_run(run: Run, now: float) -> str:
    """Return who evacuates which zone, and since when."""
    verb = "has" if run.state is RunState.EVACUATED else "is"
    age = format_count(round(max(now - run.started, 0.0) / 60), "minute")
    partly = "partly " if run.is_partial and run.state is RunState.EVACUATED else ""
    return (
        f"run {run.id}, which {run.by} started {age} ago, {verb} {partly}{run.state} {run.zone} for "
        f"{run.workload or 'all workloads'}"
    )


def _hold(run: Run, holder: str, version: int, now: float) -> Run:
    return replace(run, holder=holder, held_until=now + CLAIM_SECONDS, number=version + 1)

"""Carry out, continue, renew and undo evacuations: the driver of actions and journal.

Every change is recorded as intended before it is made, and its outcome afterwards. A resource that fails does not stop
the others. Everything may be repeated: each step reads the resource first.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

from msgspec.structs import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, LeaseLost, NotFound, OutcomeUnknown
from holdfast.evacuate.action import (
    LOCK_STAGE,
    PARALLEL_CALLS,
    RESTORE_CAPACITY_STAGE,
    RESTORE_HOLD_STAGE,
    RESTORE_SHIFT_STAGE,
    RESTORE_STATUS_STAGE,
    SHIFT_STAGE,
    STOPS_RUN_IF_FAILED,
    Action,
    ChangeState,
    Discovery,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
    Unreadable,
)
from holdfast.evacuate.attempt import Attempt, Pace, Stop
from holdfast.evacuate.claims import Claim, Claims
from holdfast.evacuate.journal import Entry, EntryState, Journal, Run, RunState
from holdfast.evacuate.plan import CAPACITY, Plan, Report, find_obstacle
from holdfast.evacuate.shared_changes import SharedChanges, TagFilterBuilder
from holdfast.status.writer import EVACUATION_PREFIX

logger = logging.getLogger("holdfast.evacuate")

MAX_WAITING = 128
"""Resources of one action in one account that may wait for an effect at the same time. Fewer of them make calls."""

MAX_LOOK_AGE = 30.0
"""Seconds after which a run looks again, before its next stage, whether others evacuate another zone."""

Progress = Callable[[Entry], None]


def build_run_id(now: float, name: str) -> str:
    """Return the id of a new run: short enough for the comment of a zonal shift, and unique."""
    return f"{EVACUATION_PREFIX}{name}-{int(now):x}-{uuid4().hex[:6]}"


class Runner:
    """Evacuates zones with some actions, and brings them back. Thread-safe."""

    def __init__(
        self,
        actions: Mapping[str, Action],
        journal: Journal,
        clock: Clock,
        *,
        progress: Progress | None = None,
        build_tag_filter: TagFilterBuilder = lambda _: lambda _: True,
    ) -> None:
        """`progress` is called with the outcome of each resource, in any thread.

        `build_tag_filter` is asked which changes of other runs concern a run that chooses its resources by tags.
        """
        self._actions = actions
        self._journal = journal
        self._clock = clock
        self._progress = progress or (lambda _: None)
        self._claims = Claims(journal, clock)
        self._shared = SharedChanges(journal, clock, build_tag_filter)

    def plan(self, target: Target) -> Plan:
        """Discover all resources, and plan a change for each. Change nothing."""
        with ThreadPoolExecutor(max(len(self._actions), 1)) as pool:
            found = dict(
                zip(self._actions, pool.map(lambda each: _discover(each, target), self._actions.values()), strict=True)
            )
        changes: dict[str, list[PlannedChange]] = {}
        unmovable = [each for discovery in found.values() for each in discovery.unmovable]
        for name in sorted(found, key=lambda each: self._actions[each].evacuation_stage):
            chosen = [each for each in found[name].resources if _is_chosen(each, target)]
            planned = [self._actions[name].plan(each, target) for each in chosen]
            changes[name] = [each for each in planned if isinstance(each, PlannedChange)]
            unmovable += [each for each in planned if isinstance(each, Unmovable)]
        moved = {each.resource.id for planned in changes.values() for each in planned}
        # If a part of a resource is moved, such as the nodes of a cluster, the resource does not stay.
        moved |= {each.rpartition("/")[0] for each in moved}
        staying = [each for each in unmovable if each.resource.id not in moved and _is_chosen(each.resource, target)]
        return Plan(target=target, changes=changes, unmovable=staying, discoveries=found)

    def begin(
        self, plan: Plan, *, by: str, by_server: bool = False, overrides: Mapping[str, str] | None = None
    ) -> Claim:
        """Record a new run, and claim it for `evacuate`. Raise Conflict if an open run prevents that."""
        target = plan.target
        run = Run(
            id=target.run,
            zone=target.zone,
            workload=target.workload,
            by=by,
            by_server=by_server,
            reason=target.reason,
            started=self._clock.wall(),
            overrides=dict(overrides or {}),
            selection=target.selection,
        )
        return self._claims.add(run, allows_second_zone=target.allows_second_zone)

    def abandon(self) -> None:
        """Stop all runs of this process at their next step. They stay open, for another process to continue them."""
        self._claims.abandon()

    def claim(self, run_id: str) -> Claim:
        """Claim an open run, for `evacuate` or `restore`. Raise Conflict if another process works on it."""
        return self._claims.claim(run_id)

    def evacuate(self, claim: Claim, plan: Plan) -> Report:
        """Make the changes of a plan. For a run that was interrupted, changes that are gone are made again.

        If another zone is evacuated meanwhile, or an account cannot be read any more, only reads are made.
        """
        run = claim.update(state=RunState.EVACUATING)
        recorded = self._journal.read_entries(run.zone)
        final = {each.resource: each for each in recorded if each.run == run.id}
        # Entries whose change this run may have made: the new plan may not list them any more. Entries that are FOUND
        # are read again, because that change may have ended since.
        made = (EntryState.INTENDED, EntryState.APPLIED, EntryState.FOUND, EntryState.RESTORING)
        known = [each for each in final.values() if each.state in made and not each.relies_on]
        # What a later run has changed as well looks different now, and is still ours.
        superseded = self._shared.find_superseded(known, recorded)
        waiting = [each for each in known if each.resource not in superseded]
        for name, changes in plan.changes.items():
            for change in changes:
                entry = _build_entry(run, name, change, self._clock.wall())
                before = final.get(entry.resource)
                if before is None or before.state in (EntryState.FAILED, EntryState.RESTORED) or before.relies_on:
                    waiting.append(entry)
        has = {each.resource for each in final.values() if each.state.is_open or each.state is EntryState.FOUND}
        with claim.kept():  # this may ask AWS for tags
            shared = self._shared.adopt(run, has | {each.resource for each in waiting})
        final |= {each.resource: each for each in shared}
        stop = Stop()
        stop.reason = find_obstacle(plan, run)
        looked_at = self._clock.monotonic()
        with claim.released_when_interrupted(RunState.EVACUATING):
            for stage in self._sort_by_stage(waiting, lambda action: action.evacuation_stage):
                # A stage may take minutes, in which others may have evacuated another zone.
                if not stop.reason and self._clock.monotonic() - looked_at > MAX_LOOK_AGE:
                    with claim.kept():
                        stop.reason = self._look_again(plan, run)
                    looked_at = self._clock.monotonic()
                for entry in self._change_all(stage, claim, EntryState.INTENDED, stop):
                    final[entry.resource] = entry
                    is_missing = entry.state not in (EntryState.APPLIED, EntryState.FOUND)
                    is_needed = entry.change.get(STOPS_RUN_IF_FAILED) and CAPACITY not in run.overrides
                    if is_missing and is_needed and not stop.reason:
                        stop.reason = (
                            f"not changed, because {entry.name or entry.resource} has not enough capacity in the other "
                            f"zones yet (scale_out_first). When it has, run `holdfast zone resume {run.zone}`. To move "
                            "traffic without it, restore the run, and evacuate again with --override capacity"
                        )
        unreadable = [each for found in plan.discoveries.values() for each in found.unreadable]
        report = Report(run=run, entries=list(final.values()), unreadable=unreadable)
        run = claim.update(state=RunState.EVACUATED, is_partial=report.is_partial, holder="", held_until=0.0)
        return replace(report, run=run)

    def _look_again(self, plan: Plan, run: Run) -> str:
        """Ask the actions that see evacuations of others again. Return why the run must stop; "" if it may go on."""
        target = replace(plan.target, lists_unmovable=False)
        stages = (LOCK_STAGE, SHIFT_STAGE)
        watching = {name: each for name, each in self._actions.items() if each.evacuation_stage in stages}
        found = {name: _discover(each, target) for name, each in watching.items()}
        return find_obstacle(replace(plan, discoveries=found), run)

    def restore(self, claim: Claim, *, types: Sequence[str] = ()) -> Report:
        """Undo a run, or its changes of some types of resources. The run stays open until all of them are undone.

        A change that another open run of the zone relies on becomes a change of that run. A resource that a later run
        has changed as well is left until that run is restored. Raise Conflict if such a run is under way.
        """
        try:
            others = self._shared.list_others(claim.run)
        except Conflict:
            claim.update(holder="", held_until=0.0)  # so that the restore can be repeated at once
            raise
        run = claim.update(state=RunState.RESTORING, types=tuple(types))
        recorded = self._journal.read_entries(run.zone)
        entries = [each for each in recorded if each.run == run.id]
        chosen = [each for each in entries if each.state.is_open and (not types or each.type in types)]
        postponed = self._shared.postpone(chosen, recorded, run)
        done = {each.resource: each for each in postponed}
        left = [each for each in chosen if each.resource not in done]
        done |= {each.resource: each for each in self._shared.hand_over(left, recorded, others, run.number)}
        for entry in done.values():
            self._progress(entry)
        lacks_capacity = any(self._brings_capacity(each) for each in postponed)
        waits = False
        with claim.released_when_interrupted(RunState.EVACUATED):
            left = [each for each in chosen if each.resource not in done]
            for stage in self._sort_by_stage(left, lambda action: action.restoration_stage):
                # Traffic waits for capacity: it must not return to a zone that cannot serve it.
                waits = lacks_capacity and self._get_stage(stage[0]) > RESTORE_CAPACITY_STAGE
                if waits:
                    break
                away = ""
                if self._get_stage(stage[0]) == RESTORE_HOLD_STAGE:  # capacity is held until traffic is back
                    away = self._find_traffic_away([done.get(each.resource, each) for each in entries], others)
                if away:
                    outcomes = self._shared.record_waiting(stage, f"held, because {away}", run)
                else:
                    outcomes = list(self._change_all(stage, claim, EntryState.RESTORING, Stop()))
                done |= {each.resource: each for each in outcomes}
                lacks_capacity |= any(each.state.is_open and self._brings_capacity(each) for each in outcomes)
        # Resources whose change failed are as they were.
        final = [done.get(each.resource, each) for each in entries if each.state is not EntryState.FAILED]
        if any(each.state.is_open for each in final):
            run = claim.update(state=RunState.EVACUATED, types=(), is_partial=True, holder="", held_until=0.0)
        else:
            run = claim.end()
            self._delete_old_entries(recorded)
        return Report(run=run, entries=final, is_restore=True, waits_for_capacity=waits)

    def _get_stage(self, entry: Entry) -> int:
        """Return the stage in which an entry is restored; 0 if its action is missing, which is reported first."""
        action = self._actions.get(entry.action)
        return 0 if action is None else action.restoration_stage

    def _brings_capacity(self, entry: Entry) -> bool:
        return self._get_stage(entry) == RESTORE_CAPACITY_STAGE

    def _find_traffic_away(self, entries: Sequence[Entry], others: Collection[str]) -> str:
        """Return why traffic of a run is still away from the zone; "" if it is back.

        `others` are the other open runs of the zone, which may keep it away. Traffic that other people or programs keep
        away does not count, because that may never end.
        """
        recorded = self._journal.read_entries(entries[0].zone)
        kept_away = {each.resource for each in recorded if each.run in others and each.state.is_open}
        for each in entries:
            is_away = each.state.is_open or each.resource in kept_away
            if is_away and self._get_stage(each) in (RESTORE_SHIFT_STAGE, RESTORE_STATUS_STAGE):
                return f"traffic of {each.name or each.resource} is still away from {each.zone}"
        return ""

    def _delete_old_entries(self, entries: Sequence[Entry]) -> None:
        """Delete the entries of runs that the journal does not list any more."""
        known = {each.id for each in self._journal.read_runs().runs}
        self._journal.delete_entries([each for each in entries if each.run not in known and not each.state.is_open])

    def renew(self, run: Run) -> Sequence[Entry]:
        """Extend all changes of a run that expire, and are still ours. Return those that are not in effect any more.

        Nothing is done while a process evacuates or restores the run, or after it was restored.
        """
        lapsed: list[Entry] = []
        try:
            claim = self._claims.claim(run.id)
        except (Conflict, NotFound):
            return lapsed
        try:
            with claim.kept():
                if claim.run.state is RunState.EVACUATED:
                    lapsed = self._renew_entries(claim)
        finally:
            with suppress(HoldfastError):  # else nobody could restore the run for a minute
                claim.update(holder="", held_until=0.0)
        return lapsed

    def _renew_entries(self, claim: Claim) -> list[Entry]:
        lapsed = []
        for entry in self._list_applied(claim.run):
            claim.check()
            try:
                action = self._find_action(entry)
                reading = action.read(entry)
                if reading.state is ChangeState.APPLIED:
                    action.renew(entry, reading)
                else:
                    lapsed.append(replace(entry, note=reading.note or "it has expired, or was undone"))
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - one resource does not stop the others; the next round tries again
                logger.warning("cannot renew the evacuation of %s: %r", entry.name or entry.resource, error)
        return lapsed

    def verify(self, run: Run) -> Mapping[str, Reading]:
        """Read all changes of a run again, by resource."""
        return {entry.resource: self._find_action(entry).read(entry) for entry in self._list_applied(run)}

    def _list_applied(self, run: Run) -> list[Entry]:
        entries = self._journal.read_entries(run.zone)
        return [each for each in entries if each.run == run.id and each.state is EntryState.APPLIED]

    def _sort_by_stage(self, entries: Sequence[Entry], get_stage: Callable[[Action], int]) -> Iterator[Sequence[Entry]]:
        stages: dict[int, list[Entry]] = defaultdict(list)
        for entry in entries:
            action = self._actions.get(entry.action)  # a missing one is reported for each resource
            stages[0 if action is None else get_stage(action)].append(entry)
        for _, stage in sorted(stages.items()):
            yield stage

    def _change_all(self, entries: Sequence[Entry], claim: Claim, intent: EntryState, stop: Stop) -> Iterator[Entry]:
        """Make or undo the changes of one stage. Yield the outcome of each."""
        claim.check()
        now = self._clock.wall()
        intended = [replace(each, state=_get_intent(each, intent), number=claim.run.number, at=now) for each in entries]
        self._journal.write_entries(intended)
        groups: dict[tuple[str, str], list[tuple[Entry, Entry]]] = defaultdict(list)
        for before, entry in zip(entries, intended, strict=True):
            groups[entry.action, _get_account(entry)].append((before, entry))
        threads = max(MAX_WAITING // max(len(groups), 1), PARALLEL_CALLS)
        pools = [ThreadPoolExecutor(min(len(group), threads)) for group in groups.values()]
        futures = []
        for pool, ((name, _), group) in zip(pools, groups.items(), strict=True):
            action = self._actions.get(name)
            pace = Pace(PARALLEL_CALLS if action is None else action.parallel_calls, self._clock)
            futures += [pool.submit(self._change, before, entry, claim, pace, stop) for before, entry in group]
        try:
            with claim.kept():
                for future in futures:
                    yield future.result()
        except KeyboardInterrupt:  # changes under way are finished and recorded, further ones are not begun
            stop.reason = "not changed, because the run was interrupted"
            raise
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    def _change(self, before: Entry, entry: Entry, claim: Claim, pace: Pace, stop: Stop) -> Entry:
        """Make or undo one change, and record the outcome. `before` is the entry before this attempt."""
        attempt: Attempt | None = None
        is_new = before.number == claim.run.number and before.state is EntryState.INTENDED
        try:
            attempt = Attempt(
                self._find_action(entry),
                entry,
                self._clock,
                intended_at=_get_intended_at(before),
                may_be_ours=not is_new and before.state is not EntryState.FOUND,
            )
            step, reading = attempt.run(pace, claim.check, stop, lambda: self._intend(entry))
        except LeaseLost:
            raise
        except Exception as error:  # whatever happens to one resource does not stop the others
            if not isinstance(error, HoldfastError):
                logger.exception("the action %s failed unexpectedly for %s", entry.action, entry.resource)
            # It stays open if it may have been made: the next attempt reads the resource, and decides.
            is_untouched = entry.state is EntryState.INTENDED and not (attempt is not None and attempt.has_written)
            is_sure = not isinstance(error, EngineUnavailable | OutcomeUnknown)
            state = EntryState.FAILED if is_untouched and is_new and is_sure else entry.state
            is_written = attempt is not None and attempt.has_written
            if state is EntryState.APPLIED or (state is EntryState.FOUND and is_written):
                state = EntryState.INTENDED  # nobody knows whether the change is there
            is_lock = attempt is not None and self._find_action(entry).evacuation_stage == LOCK_STAGE
            if is_lock and isinstance(error, Conflict) and entry.state is EntryState.INTENDED:
                stop.reason = f"not changed, because of a conflict: {error}"
            note = str(error) if isinstance(error, HoldfastError) else f"unexpected error: {error!r}"
            outcome = replace(entry, state=state, note=note, at=self._clock.wall())
        else:
            record = reading.record if step.state is EntryState.APPLIED else entry.record
            state = entry.state if step.state is None else step.state
            outcome = replace(entry, state=state, note=step.note, record=record, at=self._clock.wall())
        self._journal.write_entries([outcome])
        self._progress(outcome)
        return outcome

    def _intend(self, entry: Entry) -> None:
        """Record that a change is about to be made which others had made before, and which has ended since."""
        if entry.state is EntryState.FOUND:
            self._journal.write_entries([replace(entry, state=EntryState.INTENDED, at=self._clock.wall())])

    def _find_action(self, entry: Entry) -> Action:
        if entry.action not in self._actions:
            raise NotFound(
                f"{entry.resource} was changed by the action {entry.action}, which is not configured here: add it as "
                "[[evacuation.action]]"
            )
        return self._actions[entry.action]


def _get_intent(entry: Entry, intent: EntryState) -> EntryState:
    """Return the state of an entry before its change.

    An APPLIED entry keeps its state, so that the action can tell who undid the change. A FOUND entry keeps it until
    this run writes.
    """
    is_kept = entry.state in (EntryState.APPLIED, EntryState.FOUND) and intent is EntryState.INTENDED
    return entry.state if is_kept else intent


def _get_intended_at(before: Entry) -> float | None:
    """Return when the change was begun, if its outcome is unknown."""
    return before.at if before.state is EntryState.INTENDED else None


def _get_account(entry: Entry) -> str:
    """Return the account and region of a resource, which AWS limits together; "" for a name that is no ARN."""
    return ":".join(entry.resource.split(":")[3:5]) if entry.resource.startswith("arn:") else ""


def _is_chosen(resource: Resource, target: Target) -> bool:
    """Return whether the selection takes a resource by its type and name. Actions have looked at its tags."""
    kind = None if resource.is_always_included else resource.type
    return target.selection.matches(kind, resource.name, is_in_aws=bool(resource.account))


def _discover(action: Action, target: Target) -> Discovery:
    try:
        return action.discover(target)
    except HoldfastError as error:
        return Discovery(unreadable=[Unreadable(scope="the configured accounts", reason=str(error))])
    except Exception as error:  # what is not understood is unknown, and must not prevent a plan for the rest
        logger.exception("an action failed unexpectedly while it looked for resources")
        return Discovery(
            unreadable=[Unreadable(scope="the configured accounts", reason=f"unexpected error: {error!r}")]
        )


def _build_entry(run: Run, action: str, change: PlannedChange, now: float) -> Entry:
    return Entry(
        zone=run.zone,
        resource=change.resource.id,
        type=change.resource.type,
        action=action,
        run=run.id,
        number=run.number,
        made=run.number,
        state=EntryState.INTENDED,
        at=now,
        name=change.resource.name,
        change=change.change,
        is_always_included=change.resource.is_always_included,
    )

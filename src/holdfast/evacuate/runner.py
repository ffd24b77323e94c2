"""Carry out, continue, renew and undo evacuations: the driver of actions and journal.

Every change is recorded as intended before it is made, and its outcome afterwards. A resource that fails does not stop
the others. Everything may be repeated: each step begins with reading what is there.
"""

import logging
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, LeaseLost, NotFound, OutcomeUnknown
from holdfast.evacuate.action import (
    Action,
    ChangeState,
    Discovery,
    PlannedChange,
    Reading,
    Target,
    Unmovable,
    Unreadable,
)
from holdfast.evacuate.journal import (
    CLAIM_SECONDS,
    Entry,
    EntryState,
    Journal,
    OpenRuns,
    Run,
    RunState,
    add_run,
    claim_run,
    remove_run,
    update_run,
)
from holdfast.evacuate.steps import PATIENCE_SECONDS, WAIT, Step, StepKind, decide_apply, decide_restore

logger = logging.getLogger("holdfast.evacuate")

WORKERS = 4
"""Resources of one action that are changed at the same time: AWS publishes no higher limit for its control planes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between two looks at a resource. The pause doubles."""
MAX_CONFLICTS = 20
"""Times that another process may change the open runs before this one gives up."""

Result = TypeVar("Result")
Progress = Callable[[Entry], None]


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that an evacuation would change, and what it cannot move."""

    target: Target
    changes: Mapping[str, Sequence[PlannedChange]]
    """By name of the action, in the order in which they are made."""
    unmovable: Sequence[Unmovable]
    discoveries: Mapping[str, Discovery]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an evacuation or a return: the last entry of every resource."""

    run: Run
    entries: Sequence[Entry] = field(default_factory=tuple)

    @property
    def problems(self) -> Sequence[Entry]:
        """The resources that were not changed, or not restored."""
        done = (EntryState.APPLIED, EntryState.FOUND, EntryState.RESTORED)
        return [each for each in self.entries if each.state not in done]


def build_run_id(now: float, name: str) -> str:
    """Return the id of a new run: short enough for the comment of a zonal shift, and unique."""
    return f"hf-{name}-{int(now):x}-{uuid4().hex[:6]}"


class Runner:
    """Evacuates zones with some actions, and brings them back. Thread-safe."""

    def __init__(
        self, actions: Mapping[str, Action], journal: Journal, clock: Clock, *, progress: Progress | None = None
    ) -> None:
        self._actions = actions
        self._journal = journal
        self._clock = clock
        self._progress = progress or (lambda _: None)
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"

    def plan(self, target: Target) -> Plan:
        """Discover all resources, and plan a change for each. Change nothing."""
        with ThreadPoolExecutor(max(len(self._actions), 1)) as pool:
            found = dict(
                zip(self._actions, pool.map(lambda each: _discover(each, target), self._actions.values()), strict=True)
            )
        changes: dict[str, list[PlannedChange]] = {}
        unmovable = [each for discovery in found.values() for each in discovery.unmovable]
        for name in sorted(found, key=lambda each: self._actions[each].evacuation_stage):
            planned = [self._actions[name].plan(each, target) for each in found[name].resources]
            changes[name] = [each for each in planned if isinstance(each, PlannedChange)]
            unmovable += [each for each in planned if isinstance(each, Unmovable)]
        return Plan(target=target, changes=changes, unmovable=unmovable, discoveries=found)

    def start(self, plan: Plan, *, by: str, overrides: Mapping[str, str] | None = None) -> Report:
        """Evacuate. Raise Conflict if an overlapping run is open."""
        target = plan.target
        now = self._clock.wall()
        run = Run(
            id=target.run,
            zone=target.zone,
            workload=target.workload,
            by=by,
            reason=target.reason,
            started=now,
            overrides=dict(overrides or {}),
        )
        held = self._change_runs(lambda runs: add_run(runs, run, self._holder, self._clock.wall()), run.id)
        return self._evacuate(held, plan)

    def resume(self, plan: Plan) -> Report:
        """Continue a run that was interrupted, with a new plan for it. Resources that are done stay as they are."""
        return self._evacuate(self._claim(plan.target.run), plan)

    def restore(self, run_id: str, *, types: Sequence[str] = ()) -> Report:
        """Undo a run, or its changes of some types of resources. The run stays open until all of them are undone."""
        run = self._claim(run_id)
        claim = _Claim(run, self._change_runs, self._clock)
        run = claim.update(state=RunState.RESTORING)
        entries = [each for each in self._journal.read_entries(run.zone) if each.run == run.id]
        chosen = [each for each in entries if each.state.is_open and (not types or each.type in types)]
        stages: dict[int, list[Entry]] = defaultdict(list)
        for entry in chosen:
            stages[self._find_action(entry).restoration_stage].append(entry)
        done = {}
        for stage in sorted(stages):
            for entry in self._change_all(stages[stage], claim, EntryState.RESTORING):
                done[entry.resource] = entry
        final = [done.get(each.resource, each) for each in entries]
        if any(each.state.is_open for each in final):
            claim.update(state=RunState.EVACUATED, holder="", held_until=0.0)
        else:
            claim.end()
        return Report(run, final)

    def renew(self, run_id: str) -> None:
        """Extend all changes of a run that expire, and are still ours."""
        for entry in self._list_applied(run_id):
            action = self._find_action(entry)
            reading = action.read(entry)
            if reading.state is ChangeState.APPLIED:
                action.renew(entry, reading)

    def verify(self, run_id: str) -> Mapping[str, Reading]:
        """Read all changes of a run again, by resource."""
        return {entry.resource: self._find_action(entry).read(entry) for entry in self._list_applied(run_id)}

    def _list_applied(self, run_id: str) -> list[Entry]:
        return [
            each for each in self._journal.read_entries() if each.run == run_id and each.state is EntryState.APPLIED
        ]

    def _evacuate(self, run: Run, plan: Plan) -> Report:
        claim = _Claim(run, self._change_runs, self._clock)
        run = claim.update(state=RunState.EVACUATING)
        recorded = self._journal.read_entries(run.zone)
        final = {each.resource: each for each in recorded if each.run == run.id}
        moved_before = {each.resource: each for each in recorded if each.run != run.id and each.state.is_open}
        # After a kill, some changes were made although the plan, which is newer, does not have them any more.
        waiting = [each for each in final.values() if each.state is EntryState.INTENDED]
        for name, changes in plan.changes.items():
            for change in changes:
                entry = _build_entry(run, name, change, self._clock.wall())
                known, other = final.get(entry.resource), moved_before.get(entry.resource)
                if other is not None:  # its entry must stay as it is: it says how to restore the resource
                    final[entry.resource] = replace(entry, state=EntryState.FOUND, note=f"run {other.run} moved it")
                elif known is None or known.state is EntryState.FAILED:
                    waiting.append(entry)
        stages: dict[int, list[Entry]] = defaultdict(list)
        for entry in waiting:
            stages[self._find_action(entry).evacuation_stage].append(entry)
        for stage in sorted(stages):
            for entry in self._change_all(stages[stage], claim, EntryState.INTENDED):
                final[entry.resource] = entry
        run = claim.update(state=RunState.EVACUATED, holder="", held_until=0.0)
        return Report(run, list(final.values()))

    def _change_all(self, entries: Sequence[Entry], claim: "_Claim", intent: EntryState) -> Iterator[Entry]:
        """Make or undo the changes of one stage. Yield the outcome of each."""
        now = self._clock.wall()
        intended = [replace(each, state=intent, number=claim.run.number, at=now) for each in entries]
        self._journal.write_entries(intended)
        by_action: dict[str, list[Entry]] = defaultdict(list)
        for entry in intended:
            by_action[entry.action].append(entry)
        with ThreadPoolExecutor(WORKERS * len(by_action) or 1) as pool:
            paces = {name: _Pace(WORKERS) for name in by_action}
            futures = [pool.submit(self._change, each, claim, paces[each.action]) for each in intended]
            for future in futures:
                yield future.result()

    def _change(self, entry: Entry, claim: "_Claim", pace: "_Pace") -> Entry:
        """Make or undo one change, and record the outcome."""
        try:
            with pace:
                step, reading = self._repeat(entry, claim, pace)
        except LeaseLost:
            raise
        except HoldfastError as error:
            # It stays open if it may have been written: the next run reads, and decides.
            state = entry.state if isinstance(error, EngineUnavailable | OutcomeUnknown) else _FAILURES[entry.state]
            outcome = replace(entry, state=state, note=str(error), at=self._clock.wall())
        else:
            record = reading.record if step.state is EntryState.APPLIED else entry.record
            state = entry.state if step.state is None else step.state
            outcome = replace(entry, state=state, note=step.note, record=record, at=self._clock.wall())
        self._journal.write_entries([outcome])
        self._progress(outcome)
        return outcome

    def _repeat(self, entry: Entry, claim: "_Claim", pace: "_Pace") -> tuple[Step, Reading]:
        """Read, decide and write until the change is made, or undone, or cannot be."""
        attempt = _Attempt(self._find_action(entry), entry, self._clock)
        deadline, pause = self._clock.monotonic() + PATIENCE_SECONDS, SHORTEST_PAUSE
        while True:
            claim.check()
            try:
                step, reading = attempt.go_on()
                if step.kind is StepKind.END:
                    return step, reading
                if step.kind is StepKind.WRITE:
                    continue  # the change is often there at once
            except EngineUnavailable as error:
                attempt.problem = error
                pace.slow_down()
            if self._clock.monotonic() >= deadline:
                raise attempt.problem or OutcomeUnknown(
                    f"{entry.name or entry.resource} was changed, but {PATIENCE_SECONDS:.0f} s later the change has no "
                    "effect yet: look at it in the AWS console"
                )
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _find_action(self, entry: Entry) -> Action:
        if entry.action not in self._actions:
            raise NotFound(f"{entry.resource} was changed by the action {entry.action}, which is not configured here")
        return self._actions[entry.action]

    def _claim(self, run_id: str) -> Run:
        return self._change_runs(lambda runs: claim_run(runs, run_id, self._holder, self._clock.wall()), run_id)

    def _change_runs(self, change: Callable[[OpenRuns], tuple[Run, ...]], run_id: str) -> Run:
        """Change the open runs, and return one of them. Repeat it if another process changes them first."""
        for attempt in range(MAX_CONFLICTS):
            before = self._journal.read_runs()
            changed = change(before)  # raises a Conflict that says who works on it
            try:
                after = self._journal.write_runs(changed, before.version)
            except OutcomeUnknown:
                after = self._journal.read_runs()
                if after.runs != changed:
                    raise
            except Conflict:
                if attempt == MAX_CONFLICTS - 1:
                    raise
                self._clock.sleep(0.05 * attempt)
                continue
            # A run that was just removed is returned as it was.
            return next(each for each in (*after.runs, *before.runs) if each.id == run_id)
        raise AssertionError  # the loop returns or raises


_FAILURES = {EntryState.INTENDED: EntryState.FAILED, EntryState.RESTORING: EntryState.RESTORING}
"""The state of an entry whose change was refused. One that cannot be undone stays open."""


def _discover(action: Action, target: Target) -> Discovery:
    try:
        return action.discover(target)
    except HoldfastError as error:
        return Discovery(unreadable=[Unreadable(scope="all accounts", reason=str(error))])


def _build_entry(run: Run, action: str, change: PlannedChange, now: float) -> Entry:
    return Entry(
        zone=run.zone,
        resource=change.resource.id,
        type=change.resource.type,
        action=action,
        run=run.id,
        number=run.number,
        state=EntryState.INTENDED,
        at=now,
        name=change.resource.name,
        change=change.change,
    )


@dataclass(slots=True)
class _Attempt:
    """Makes or undoes one change, step by step."""

    action: Action
    entry: Entry
    clock: Clock
    problem: HoldfastError | None = None
    """The last problem, if it is reported in the end."""
    _written_at: float | None = None
    _lost_reply: OutcomeUnknown | None = None
    """Set while nobody knows whether the last write was carried out."""

    def go_on(self) -> tuple[Step, Reading]:
        """Read the resource, decide, and write if that is the next step. Raise EngineUnavailable to be called later."""
        reading = self.action.read(self.entry)
        since = None if self._written_at is None else self.clock.monotonic() - self._written_at
        is_undoing = self.entry.state is EntryState.RESTORING
        step = decide_restore(reading, since) if is_undoing else decide_apply(reading, since)
        if step.kind is not StepKind.WRITE:
            return step, reading
        before, self._written_at = self._written_at, self.clock.monotonic()
        try:
            if is_undoing:
                self.action.restore(self.entry, reading)
            else:
                self.action.apply(self.entry)
        except OutcomeUnknown as error:
            self.problem = self._lost_reply = error
            return WAIT, reading
        except Conflict as error:  # another writer was quicker: read again
            self.problem = error
            return WAIT, reading
        except EngineUnavailable:
            self._written_at = before  # nothing was written
            raise
        except HoldfastError as error:
            if self._lost_reply is None:
                raise
            raise self._lost_reply from error  # the change may be there
        self._lost_reply = None
        return step, reading


class _Claim:
    """The claim of this process to a run. Thread-safe."""

    def __init__(
        self, run: Run, change_runs: Callable[[Callable[[OpenRuns], tuple[Run, ...]], str], Run], clock: Clock
    ):
        self.run = run
        self._change_runs = change_runs
        self._clock = clock
        self._lock = threading.Lock()

    def check(self) -> None:
        """Renew the claim when it is time. Raise LeaseLost if another process may work on the run. Called often."""
        with self._lock:
            left = self.run.held_until - self._clock.wall()
            if left > CLAIM_SECONDS / 2:
                return
            try:
                if left > 0:
                    self._write(held_until=self._clock.wall() + CLAIM_SECONDS)
                    return
            except EngineUnavailable as error:  # the next attempt may succeed before the claim expires
                logger.warning("cannot renew the claim of run %s: %s", self.run.id, error)
                return
            except Conflict as error:
                raise LeaseLost(str(error)) from error
        raise LeaseLost(f"the claim of run {self.run.id} has expired, so this process stops: resume the run")

    def update(self, **changes: object) -> Run:
        """Change fields of the run in the journal."""
        with self._lock:
            return self._write(**changes)

    def _write(self, **changes: object) -> Run:
        wanted = replace(self.run, **changes)
        self._change_runs(lambda runs: update_run(runs, wanted), wanted.id)
        self.run = wanted
        return wanted

    def end(self) -> None:
        """Remove the run, because everything is restored."""
        with self._lock:
            self._change_runs(lambda runs: remove_run(runs, self.run), self.run.id)


class _Pace:
    """Limits how many resources of one action are changed at the same time. Halved when AWS throttles."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._changed = threading.Condition()

    def slow_down(self) -> None:
        with self._changed:
            self._limit = max(self._limit // 2, 1)

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._limit)
            self._running += 1

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify()

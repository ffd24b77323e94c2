"""Prepare, carry out, continue and undo evacuations within guards: for commands and the server alike."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, InvalidValue
from holdfast._types import StatusStore, Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.action import Action, Discovery, Target, Unreadable
from holdfast.evacuate.claims import Claim
from holdfast.evacuate.guards import (
    GuardName,
    GuardResult,
    Situation,
    check_guards,
    describe_refusals,
    list_refusals,
)
from holdfast.evacuate.journal import Entry, Journal, RecordedRuns, Run
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Progress, Runner, build_run_id
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.shared_changes import TagFilterBuilder
from holdfast.status.writer import check_reason, find_states

MAX_PLAN_AGE = 30.0
"""Seconds after which a plan is made again before it is carried out: a person may have read it for minutes."""


class Proposal(Struct, frozen=True, kw_only=True):
    """An evacuation that was not started: what it would change, and what the guards say."""

    plan: Plan
    guards: Sequence[GuardResult]
    overrides: Mapping[str, str]
    at: float
    """When it was made."""
    verdict: Verdict | None
    """The verdict that the guards looked at; None if there is none."""

    @property
    def refusals(self) -> Sequence[GuardResult]:
        """The guards that prevent it."""
        return list_refusals(self.guards)


class Evacuator:
    """Evacuates zones and brings them back. Thread-safe."""

    def __init__(
        self,
        actions: Mapping[str, Action],
        journal: Journal,
        statuses: StatusStore,
        clock: Clock,
        *,
        find_zones: Callable[[str | None, Zone], Collection[Zone]] = lambda *_: (),
        read_verdicts: Callable[[str | None], Sequence[Verdict]] = lambda _: (),
        find_selection: Callable[[str | None], Selection] = lambda _: Selection(),
        progress: Progress | None = None,
        build_tag_filter: TagFilterBuilder = lambda _: lambda _: True,
        has_status_store: bool = True,
    ) -> None:
        """`find_zones` is called with a workload, or None for all of them, and a zone; `read_verdicts` with a workload.

        `find_selection` returns the resources of a workload, or of all of them.
        `progress` is called with the outcome of each resource, in any thread. `build_tag_filter` returns a function
        that says whether the resource with an ARN has the tags of a selection. Without `has_status_store`, the guards
        say that `statuses` tell nothing.
        """
        self._has_status_store = has_status_store
        self._journal = journal
        self._statuses = statuses
        self._clock = clock
        self._find_zones = find_zones
        self._read_verdicts = read_verdicts
        self._find_selection = find_selection
        self._runner = Runner(actions, journal, clock, progress=progress, build_tag_filter=build_tag_filter)

    def read_states(self, workload: str | None) -> Mapping[Zone, ZoneState]:
        """Return the state of each zone that is not in, for a workload."""
        return find_states(self._statuses.read(), workload, self._clock.wall())

    def prepare(
        self,
        zone: Zone,
        workload: str | None = None,
        *,
        reason: str = "",
        overrides: Mapping[str, str] | None = None,
        verdict: Verdict | None = None,
        lists_unmovable: bool = True,
        selection: Selection | None = None,
    ) -> Proposal:
        """Plan an evacuation, and ask the guards. Change nothing. With a `selection`, plan only some resources.

        `overrides` has the reason by the name of each guard that is overridden. Without a `verdict`, the guards look at
        the current one of the workload.
        """
        overrides, now = dict(overrides or {}), self._clock.wall()
        if reason:
            check_reason(reason)
        scope = self._find_selection(workload)
        target = Target(
            zone=zone,
            workload=workload,
            run=build_run_id(now, zone),
            reason=reason,
            allows_second_zone=GuardName.OTHER_ZONE in overrides,
            lists_unmovable=lists_unmovable,
            selection=scope.merge(selection or Selection()),
            scope=scope,
        )
        plan = self._runner.plan(target)
        if selection is not None:
            _check_selection(plan, selection)
        verdict = verdict or self._find_verdict(target)
        guards = self._check(plan, overrides, verdict)
        return Proposal(plan=plan, guards=guards, overrides=overrides, at=self._clock.wall(), verdict=verdict)

    def begin(
        self, proposal: Proposal, *, by: str, by_server: bool = False, verdict: Verdict | None = None
    ) -> tuple[Claim, Plan]:
        """Ask the guards again, and record the run. Raise Conflict if a guard refuses, or an open run prevents it.

        Without a `verdict`, the guards look at the current one of the workload.
        """
        target, plan = proposal.plan.target, proposal.plan
        if self._clock.wall() - proposal.at > MAX_PLAN_AGE:
            plan = self._runner.plan(replace(target, lists_unmovable=False))
        guards = self._check(plan, proposal.overrides, verdict or self._find_verdict(target))
        if list_refusals(guards):
            raise Conflict(f"{target.zone} was not evacuated, because guards refuse: {describe_refusals(guards)}")
        used = {str(each.name): each.override for each in guards if each.override}
        return self._runner.begin(plan, by=by, by_server=by_server, overrides=used), plan

    def evacuate(self, claim: Claim, plan: Plan) -> Report:
        """Carry out a run that was begun, or continue one that was claimed."""
        return self._runner.evacuate(claim, plan)

    def plan_again(self, run: Run) -> Plan:
        """Return a new plan for a run, to continue it."""
        return self._runner.plan(
            Target(
                zone=run.zone,
                workload=run.workload,
                run=run.id,
                reason=run.reason,
                allows_second_zone=GuardName.OTHER_ZONE in run.overrides,
                lists_unmovable=False,
                selection=run.selection,
                scope=self._find_selection(run.workload),
            )
        )

    def abandon(self) -> None:
        """Stop all runs of this process at their next step. They stay open, for another process to continue them."""
        self._runner.abandon()

    def claim(self, run: Run) -> Claim:
        """Claim an open run, to continue or undo it. Raise Conflict if another process works on it."""
        return self._runner.claim(run.id)

    def resume(self, claim: Claim) -> Report:
        """Continue a run that was interrupted: make its missing changes, and renew those that expire."""
        with claim.kept():  # a large account takes minutes to read
            plan = self.plan_again(claim.run)
        report = self._runner.evacuate(claim, plan)
        self._runner.renew(report.run)
        return report

    def check_types(self, run: Run, types: Sequence[str]) -> None:
        """Raise InvalidValue if a run has no resource of one of these types."""
        known = {each.type for each in self.list_entries(run)}
        for each in types:
            if each not in known:
                raise InvalidValue(
                    f"run {run.id} has no resource of the type {each}: expected one of {', '.join(sorted(known))}"
                )

    def restore(self, claim: Claim, *, types: Sequence[str] = ()) -> Report:
        """Undo a run, or its changes of some types of resources."""
        return self._runner.restore(claim, types=types)

    def renew(self, run: Run) -> Sequence[Entry]:
        """Extend all changes of a run that expire. Return those that are not in effect any more."""
        return self._runner.renew(run)

    def read_runs(self) -> RecordedRuns:
        """Return the open runs and the last restored ones."""
        return self._journal.read_runs()

    def list_entries(self, run: Run) -> Sequence[Entry]:
        """Return the entries of all resources of a run."""
        return [each for each in self._journal.read_entries(run.zone) if each.run == run.id]

    def _find_verdict(self, target: Target) -> Verdict | None:
        return choose_verdict(self._read_verdicts(target.workload), target.zone)

    def _check(self, plan: Plan, overrides: Mapping[str, str], verdict: Verdict | None) -> Sequence[GuardResult]:
        target, discoveries = plan.target, dict(plan.discoveries)
        states: Mapping[Zone, ZoneState] = {}
        try:
            states = self.read_states(None)  # for any workload: some actions move resources of all workloads
        except EngineError as error:
            found = Unreadable(scope="the status store", reason=str(error))
            discoveries["the guard other-zone"] = Discovery(unreadable=[found])
        situation = Situation(
            zone=target.zone,
            workload=target.workload,
            zones=self._find_zones(target.workload, target.zone),
            now=self._clock.wall(),
            states=states,
            runs=self._journal.read_runs(),
            discoveries=discoveries,
            verdict=verdict,
            has_status_store=self._has_status_store,
        )
        return check_guards(situation, overrides)


def _check_selection(plan: Plan, selection: Selection) -> None:
    """Raise InvalidValue if a choice matches no resource in the zone: it is probably misspelled."""
    found = [each for discovery in plan.discoveries.values() for each in discovery.resources]
    found += [each.resource for each in plan.unmovable]
    known = sorted({each.type for each in found})
    chosen = [each.resource for changes in plan.changes.values() for each in changes]
    chosen += [each.resource for each in plan.unmovable]
    if (selection.names or selection.tags) and not any(each.account for each in chosen):
        raise InvalidValue(f"nothing in {plan.target.zone} matches {plan.target.selection.describe()}")
    for each in selection.types:
        if each not in known:
            hint = f"expected one of {', '.join(known)}" if known else "no resource was found there"
            raise InvalidValue(f"nothing in {plan.target.zone} has the type {each}: {hint}")


_WORST_FIRST = (
    VerdictKind.REGIONAL,
    VerdictKind.SHARED,
    VerdictKind.ISOLATED,
    VerdictKind.INSTANCE,
    VerdictKind.UNKNOWN,
    VerdictKind.HEALTHY,
)


def choose_verdict(verdicts: Sequence[Verdict], zone: Zone) -> Verdict | None:
    """Return the verdict that decides whether a zone may be evacuated for several workloads; None without verdicts.

    A failure that moving traffic would not fix comes first, then another zone that fails alone.
    """
    return min(verdicts, key=lambda each: (_WORST_FIRST.index(each.kind), each.zone == zone), default=None)

"""`holdfast zone plan|evacuate|resume|restore|runs|runbook`: move everything away from a zone, and bring it back.

Needs only the settings, AWS credentials and the journal, not the server. With --server, a remote server does it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import time
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from holdfast._errors import Conflict, EngineError, InvalidValue, NotFound
from holdfast._names import check_workload_name, format_count, parse_zone
from holdfast.cli.evacuations import OUTCOME_WORDS, EvacuationProgress, Evacuations, RemoteEvacuations, open_local
from holdfast.cli.output import (
    Json,
    SettingsFile,
    confirm,
    format_time,
    print_json,
    print_note,
    print_result,
    print_rows,
    print_table,
    require_answer,
)
from holdfast.cli.remote import read_token
from holdfast.cli.zone import ZONES, Others, Workload, ZoneArgument, ZoneOptions, require_no_others
from holdfast.compose import Databases
from holdfast.compose_evacuation import read_runs
from holdfast.config import load
from holdfast.evacuate import GuardName, Proposal
from holdfast.evacuate.action import PlannedChange
from holdfast.evacuate.claims import find_ended_holders
from holdfast.evacuate.guards import describe_refusals
from holdfast.evacuate.journal import EntryState, RecordedRuns, Run, RunState, is_held, require_no_open_run
from holdfast.evacuate.plan import Report
from holdfast.evacuate.selection import Selection


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """Options that choose resources."""

    type: Annotated[
        tuple[str, ...], Parameter(help="Only resources of this type, such as load-balancer. May be repeated.")
    ] = ()
    name: Annotated[
        tuple[str, ...], Parameter(help="Only resources with such a name, for example 'shop-*'. May be repeated.")
    ] = ()
    tag: Annotated[
        tuple[str, ...], Parameter(help="Only resources with this tag, KEY=VALUE. With several, all of them.")
    ] = ()

    def parse(self) -> Selection:
        """Return the selection. Raise InvalidValue for a tag without a value."""
        for each in self.tag:
            if "=" not in each or each.startswith("="):
                raise InvalidValue(f"--tag {each}: expected KEY=VALUE")
        tags = dict(each.split("=", 1) for each in self.tag)
        return Selection(types=self.type, names=self.name, tags=tags)


MAX_NAMES = 4
"""Resources with the same problem that a report names. More of them are counted."""
EVERYTHING = SelectionOptions()
ZoneToRestore: TypeAlias = Annotated[str | None, Parameter(name="ZONE", help="An AZ-ID such as use1-az1.")]


def plan(
    zone: ZoneArgument,
    /,
    *others: Others,
    workload: Workload = None,
    chosen: SelectionOptions = EVERYTHING,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show what an evacuation of a zone would change, what it cannot move, and what the guards say. Change nothing.

    Example: holdfast zone plan use1-az1
    """
    require_no_others(others)
    with _open(options) as evacuations:
        proposal = evacuations.prepare(parse_zone(zone), _check_workload(workload), chosen.parse())
        is_open = None
        try:
            require_no_open_run(evacuations.list_runs(), parse_zone(zone), _check_workload(workload), time())
        except Conflict as error:
            is_open = str(error)
    if json:
        print_json(proposal)
        return
    _print_proposal(proposal)
    if is_open is not None:
        print_note(f"{zone} is evacuated already, and this plan does not show what was moved: {is_open}", as_json=False)


def evacuate(
    zone: ZoneArgument,
    /,
    *others: Others,
    reason: Annotated[str, Parameter(help="Reason, recorded in the journal, in zonal shifts and in the status.")],
    workload: Workload = None,
    override: Annotated[
        tuple[GuardName, ...], Parameter(help="Evacuate although this guard refuses. Recorded. May be repeated.")
    ] = (),
    yes: Annotated[bool, Parameter(help="Do not ask. Without a verdict, this needs --override verdict.")] = False,
    stay: Annotated[
        bool, Parameter(help="Then keep running until Ctrl-C: renew zonal shifts, and taint new nodes.")
    ] = False,
    chosen: SelectionOptions = EVERYTHING,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show the plan, ask, and move everything away from a zone. Each step is recorded, so that it can be undone.

    Zonal shifts expire after 12 hours, unless a server, `--stay` or `zone resume` renews them.
    Example: holdfast zone evacuate use1-az1 --reason "40 % errors on checkout"
    """
    require_no_others(others)
    require_answer(yes=yes)
    if not reason.strip():
        raise InvalidValue("--reason is empty: say why you evacuate the zone, because it is recorded")
    if stay and options.server is not None:
        raise InvalidValue("--stay is for evacuations in this process: the server renews zonal shifts by itself")
    overrides = [str(each) for each in override]
    with _open(options) as evacuations:
        require_no_open_run(evacuations.list_runs(), parse_zone(zone), _check_workload(workload), time())
        proposal = evacuations.prepare(parse_zone(zone), _check_workload(workload), chosen.parse(), reason, overrides)
        if not json:
            _print_proposal(proposal, overrides)
        left = [each for each in proposal.refusals if each.name not in overrides]
        # Where no detection watches, a person who looks at the plan decides instead of a verdict.
        is_unseen = proposal.verdict is None and not yes
        if is_unseen:
            left = [each for each in left if each.name is not GuardName.VERDICT]
        if left:
            names = " ".join(f"--override {each.name}" for each in left)
            raise Conflict(
                f"{zone} was not evacuated, because guards refuse: {describe_refusals(left)}. To evacuate it "
                f"nevertheless, add {names}"
            )
        question = f"Evacuate {zone} for {workload or 'all workloads'}?"
        if is_unseen:
            question = f"No verdict says that {zone} fails, so the decision is yours. {question}"
            overrides = sorted({*overrides, GuardName.VERDICT})
        if not confirm(question, yes=yes):
            print_result({"evacuated": False}, "Nothing was changed.", as_json=json)
            return
        with _explain_interrupt(zone, workload, options), evacuations.progress:
            report = evacuations.evacuate(proposal, reason, overrides)
        _print_report(report, evacuations, options, as_json=json)
        if stay:
            print_note("renewing zonal shifts until Ctrl-C", as_json=json)
            with suppress(KeyboardInterrupt):
                for lapsed in evacuations.stay(report.run):
                    print_note(
                        f"the change of {lapsed.name or lapsed.resource} is not in effect any more: {lapsed.note}",
                        as_json=json,
                    )
    _raise_problems(report, options)


def resume(
    zone: ZoneToRestore = None,
    /,
    *others: Others,
    workload: Workload = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Finish an evacuation that was interrupted, and renew what expires. Changes that are gone are made again.

    Without ZONE, all open evacuations.
    Example: holdfast zone resume use1-az1
    """
    require_no_others(others)
    with _open(options) as evacuations:
        for run in _find_open(evacuations, zone, workload):
            if run.state is RunState.RESTORING:
                raise Conflict(f"run {run.id} is being restored: continue that with `holdfast zone restore {run.zone}`")
            with _explain_interrupt(run.zone, run.workload, options), evacuations.progress:
                report = evacuations.resume(run)
            _print_report(report, evacuations, options, as_json=json)
            _raise_problems(report, options)


def restore(
    zone: ZoneToRestore = None,
    /,
    *others: Others,
    all: Annotated[bool, Parameter(help="Restore all zones.")] = False,  # noqa: A002 - the name of the option
    type: Annotated[  # noqa: A002 - the name of the option
        tuple[str, ...], Parameter(help="Only resources of this type, such as load-balancer. May be repeated.")
    ] = (),
    workload: Workload = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Return every resource to what it was before an evacuation. Changes that others made meanwhile are kept.

    Example: holdfast zone restore use1-az1
    """
    require_no_others(others)
    if (zone is None) != all:
        raise InvalidValue("give either the zone to restore, or --all")
    reports = []
    with _open(options) as evacuations:
        # The newest first: it may have changed what an older one had changed before.
        for run in sorted(_find_open(evacuations, zone, workload), key=lambda each: -each.started):
            with _explain_interrupt(run.zone, run.workload, options, is_restore=True), evacuations.progress:
                reports.append(evacuations.restore(run, type))
            _print_report(reports[-1], evacuations, options, as_json=json)
    for report in reports:
        _raise_problems(report, options)
        if report.run.is_open and not type:
            raise EngineError(f"run {report.run.id} was not restored: `holdfast zone runs` shows its state")


def runs(*, options: ZoneOptions = ZONES, json: Json = False) -> None:
    """Show the evacuations that are open, and the last ones that were restored.

    Example: holdfast zone runs
    """
    if options.server is not None:
        server = RemoteEvacuations(options.server, read_token(), EvacuationProgress())
        known, location = server.list_runs(), server.location
    else:  # this needs neither a status store nor AWS
        values = options.load()
        with Databases(values) as databases:
            known, location = read_runs(values, databases).runs, f"journal: {values.evacuation.journal}"
    found = sorted(known, key=lambda each: -each.started)
    if not found:
        print_result(found, f"there are no evacuations yet ({location})", as_json=json)
        return
    ended = find_ended_holders(RecordedRuns(0, tuple(found)))
    rows = [
        (
            each.id,
            each.zone,
            each.workload or "(all)",
            _describe_state(each, ended),
            format_time(each.started),
            each.by,
            each.reason,
        )
        for each in found
    ]
    print_rows(found, ("run", "zone", "workload", "state", "started", "by", "reason"), rows, as_json=json)


def _describe_state(run: Run, ended: Collection[str]) -> str:
    if run.state in (RunState.EVACUATING, RunState.RESTORING) and not is_held(run, time(), ended):
        return f"interrupted while {run.state}"
    return f"partly {run.state}" if run.is_partial and run.state is RunState.EVACUATED else run.state


def runbook(
    workload: Annotated[
        str | None, Parameter(name="WORKLOAD", help="The workload. Needed if there are several.")
    ] = None,
    /,
    *,
    settings: SettingsFile = None,
) -> None:
    """Print a runbook in Markdown: commands, IAM policy, and lines for Terraform. Keep it at hand, and on paper.

    Example: holdfast zone runbook shop
    """
    from holdfast.evacuate.runbook import build_runbook

    values = load(settings).settings
    names = [each.name for each in values.workload]
    if workload is None and len(names) != 1:
        raise NotFound(f"name the workload: {', '.join(names) or 'add a [[workload]] to the settings first'}")
    found = next((each for each in values.workload if each.name == (workload or names[0])), None)
    if found is None:
        raise NotFound(f"no workload {workload} is configured: expected one of {', '.join(names)}")
    print(
        build_runbook(
            found.name,
            region=found.region,
            zones=found.zones,
            actions=[each.name for each in values.evacuation.action],
            journal=values.evacuation.journal,
            status_store=values.status.store,
            accounts=[each.name for each in values.evacuation.account],
            roles=[each.role_arn for each in values.evacuation.account if each.role_arn],
        ),
        end="",
    )


@contextmanager
def _open(options: ZoneOptions) -> Iterator[Evacuations]:
    """Connect to the server of the options, or evacuate in this process."""
    progress = EvacuationProgress()
    if options.server is not None:
        yield RemoteEvacuations(options.server, read_token(), progress)
        return
    with open_local(options.load(), progress) as evacuations:
        yield evacuations


def _build_command(name: str, zone: str, workload: str | None, options: ZoneOptions) -> str:
    """Return a command about one evacuation, for people to run."""
    server = f" --server {options.server}" if options.server else ""
    return f"holdfast zone {name} {zone}{f' --workload {workload}' if workload else ''}{server}"


@contextmanager
def _explain_interrupt(
    zone: str, workload: str | None, options: ZoneOptions, *, is_restore: bool = False
) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        resume, restore = (_build_command(name, zone, workload, options) for name in ("resume", "restore"))
        if options.server is not None:
            text = f"interrupted here; the server goes on. To look: holdfast zone runs --server {options.server}"
        elif is_restore:
            text = f"interrupted. To finish restoring, run `{restore}`"
        else:
            text = f"interrupted. To continue the evacuation, run `{resume}`; to undo it, run `{restore}`"
        raise KeyboardInterrupt(text) from None


def _find_open(evacuations: Evacuations, zone: str | None, workload: str | None) -> Sequence[Run]:
    wanted, named = None if zone is None else parse_zone(zone), _check_workload(workload)
    is_open = [each for each in evacuations.list_runs() if each.is_open]
    found = [each for each in is_open if wanted in (None, each.zone) and named in (None, each.workload)]
    if not found:
        known = ", ".join(f"{each.zone} for {each.workload or 'all workloads'} ({each.state})" for each in is_open)
        scope = (f" of {zone}" if zone else "") + (f" for {workload}" if workload else "")
        raise NotFound(f"there is no open evacuation{scope} ({evacuations.location}). Open: {known or 'none'}")
    return found


def _check_workload(workload: str | None) -> str | None:
    return None if workload is None else check_workload_name(workload)


def _print_proposal(proposal: Proposal, overrides: Sequence[str] = ()) -> None:
    target = proposal.plan.target
    changes = [change for changes in proposal.plan.changes.values() for change in changes]
    print(
        f"Evacuation of {target.zone} for {target.workload or 'all workloads'}: {format_count(len(changes), 'change')}"
    )
    if target.selection.describe():
        print(f"Selected: {target.selection.describe()}. Status stores are always included; types do not limit holds")
    if changes:
        print()
        rows = [(each.resource.type, each.resource.name, each.resource.account, each.description) for each in changes]
        print_table(("type", "resource", "account", "change"), rows)
    _print_list("Side effects", _describe_effects(changes))
    _print_list("Stays in the zone", _describe_unmovable(proposal))
    _print_list("Notes", proposal.plan.notes)
    print("\nGuards:")
    for guard in proposal.guards:
        word = "passes" if guard.passed else "overridden" if guard.name in overrides else "REFUSES"
        print(f"  {word:<11}{guard.name:<12}{guard.finding}")
        if guard.remedy:
            print(f"{'':25}{guard.remedy}")
    print(flush=True)


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"\n{title}:")
        for line in lines:
            print(f"  {line}")


def _describe_effects(changes: Sequence[PlannedChange]) -> list[str]:
    """Return each side effect once, by type of resource."""
    names: dict[str, list[str]] = {}
    for change in changes:
        for effect in change.side_effects:
            names.setdefault(f"{change.resource.type}: {effect}", []).append(change.resource.name)
    return [text if len(found) > 1 else f"{text} ({found[0]})" for text, found in names.items()]


def _describe_unmovable(proposal: Proposal) -> list[str]:
    lines = []
    for each in proposal.plan.unmovable:
        lines.append(f"{each.resource.type} {each.resource.name}: {each.reason}")
        if each.remedy:
            lines.append(f"  {each.remedy}")
    return lines


_RESTORE_WORDS = {**OUTCOME_WORDS, EntryState.APPLIED: "not restored yet"}


def _print_report(report: Report, evacuations: Evacuations, options: ZoneOptions, *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    run = report.run
    result = f"{'partly ' if report.is_partial else ''}{'restored' if report.is_restore else 'evacuated'}"
    print(f"{run.zone} is {result} for {run.workload or 'all workloads'}: run {run.id} ({evacuations.location})")
    words = _RESTORE_WORDS if report.is_restore else OUTCOME_WORDS
    by_type: dict[str, Counter[EntryState]] = {}
    for entry in report.entries:
        by_type.setdefault(entry.type, Counter())[entry.state] += 1
    for type_, states in sorted(by_type.items()):
        counts = ", ".join(f"{count} {words[state]}" for state, count in sorted(states.items()))
        print(f"  {type_}: {counts}{_judge_majority(type_, states)}")
    for text in dict.fromkeys(f"{each.scope} cannot be read: {each.reason}" for each in report.unreadable):
        print(f"  not evacuated: {text}")
    waiting = [each for each in report.entries if report.is_restore and each.state is EntryState.APPLIED and each.note]
    by_note: dict[tuple[EntryState, str], list[str]] = {}
    for entry in (*report.problems, *waiting, *report.remarks):
        by_note.setdefault((entry.state, entry.note), []).append(f"{entry.type} {entry.name or entry.resource}")
    for (state, note), names in by_note.items():
        shown = ", ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} resources"
        print(f"  {words[state]}: {shown}: {note}")
    if report.waits_for_capacity:
        left = {each.type for each in report.entries if each.state is EntryState.APPLIED} - {"capacity-hold"}
        command = _build_command("restore", run.zone, run.workload, options)
        print(f"Traffic was NOT returned to {run.zone}, because the capacity above is not back there yet")
        print(f"  when it is healthy: {command}")
        print(f"  to return traffic anyway: {command} {' '.join(f'--type {each}' for each in sorted(left))}")
    elif run.state is RunState.EVACUATED:
        print(f"To undo this evacuation: {_build_command('restore', run.zone, run.workload, options)}")


def _judge_majority(type_: str, states: Counter[EntryState]) -> str:
    """Return whether readers of several status stores, who follow the majority, see the zone as out."""
    total, out = sum(states.values()), states[EntryState.APPLIED] + states[EntryState.FOUND]
    if type_ != "status" or total < 2 or states[EntryState.RESTORED] or states[EntryState.KEPT]:
        return ""
    return f" (out in {out} of {total} stores: {'a majority' if 2 * out > total else 'NOT a majority'})"


def _raise_problems(report: Report, options: ZoneOptions) -> None:
    run = report.run
    left = [each for each in report.problems if each.state is not EntryState.KEPT]
    if left:
        command, done = ("restore", "restored") if report.is_restore else ("resume", "changed")
        total, verb = format_count(len(report.entries), "resource"), "was" if len(left) == 1 else "were"
        raise EngineError(
            f"{len(left)} of {total} {verb} not {done}: fix the problems above, then run "
            f"`{_build_command(command, run.zone, run.workload, options)}`"
        )
    if report.unreadable:
        raise EngineError(
            f"{report.unreadable[0].scope} could not be read, so nothing was changed there: fix that, then run "
            f"`{_build_command('resume', run.zone, run.workload, options)}`"
        )

"""`holdfast aurora run|status|history|stop`: start, watch and stop runs."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._clock import SystemClock
from holdfast._errors import EngineError, EngineUnavailable, InvalidValue
from holdfast.aurora.plan import MODIFICATION_SECONDS, Plan, Prices, Saving, compute_saving, format_duration, plan_run
from holdfast.aurora.preflight import CheckFinding, CheckResult, PlannedRun, check_run
from holdfast.aurora.schedule import check_cluster_id
from holdfast.cli.aurora.schedules import (
    INSTANCE_HEADER,
    AuroraOptions,
    ClusterArgument,
    FallbackClasses,
    TargetClass,
    build_classes,
    build_cluster,
    build_rows,
    raise_if_refused,
)
from holdfast.cli.output import Json, format_time, pick_attributes, print_json, print_result, print_rows, print_table

if TYPE_CHECKING:
    from holdfast.aurora.stack import Run, ScalingStack

POLL_SECONDS = 10.0
"""Seconds between two reads of a run. Its shortest wait takes a minute."""
NOT_NEGATIVE = Number(gte=0, lt=math.inf)


def run(
    cluster: ClusterArgument,
    /,
    *,
    target: TargetClass,
    fallback: FallbackClasses = None,
    dry_run: Annotated[bool, Parameter(help="Change nothing: show the checks, the steps and the saving.")] = False,
    force: Annotated[bool, Parameter(help="Ignore warnings of the checks.")] = False,
    wait: Annotated[bool, Parameter(help="Show the progress until the run has ended.")] = False,
    modification_seconds: Annotated[
        float, Parameter(validator=NOT_NEGATIVE, help="Expected time of the modification of one instance.")
    ] = MODIFICATION_SECONDS,
    max_connections: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1),
            help="Maximum number of connections that --class allows. Default: computed from its memory.",
        ),
    ] = None,
    old_price: Annotated[
        float | None,
        Parameter(validator=NOT_NEGATIVE, help="Price of an instance per hour with its present class."),
    ] = None,
    new_price: Annotated[
        float | None, Parameter(validator=NOT_NEGATIVE, help="Price of an instance per hour with --class.")
    ] = None,
    hours: Annotated[
        float | None, Parameter(validator=Number(gt=0, lte=24), help="Hours per day with --class.")
    ] = None,
    network_cost: Annotated[
        float,
        Parameter(
            validator=NOT_NEGATIVE,
            help="Cost per month of NAT gateways and interface endpoints that exist only for runs.",
        ),
    ] = 0.0,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """Check a cluster, then change the class of its instances now.

    Example: holdfast aurora run shop-cluster --prefix shop --class db.t4g.medium --dry-run
    """
    check_cluster_id(cluster, "CLUSTER")
    planned = PlannedRun(
        cluster_id=cluster,
        classes=build_classes(target, fallback),
        starts_at=SystemClock().wall(),
        modification_seconds=modification_seconds,
        max_connections=max_connections,
    )
    prices = None
    if old_price is not None and new_price is not None and hours is not None:
        prices = Prices(old=old_price, new=new_price, hours=hours, network=network_cost)
    elif (old_price, new_price, hours) != (None, None, None):
        raise InvalidValue("the saving needs --old-price, --new-price and --hours: give all three, or none")
    with options.open(cluster) as stack:
        facts = stack.read_facts(planned)
        findings = check_run(facts)
        if dry_run:
            plan = plan_run(facts.cluster, planned.classes, modification_seconds)
            saving = None if prices is None else compute_saving(prices, plan.changed_count)
            _print_plan(findings, plan, saving, as_json=json)
            raise_if_refused(findings, force=True)
            return
        raise_if_refused(findings, force=force)
        started = stack.start(cluster, planned.classes)
        if wait:
            started = _follow(stack, started, as_json=json)
    print_result(_build_run(started), f"run {started.name}: {_describe_result(started)}", as_json=json)


def _follow(stack: "ScalingStack", run: "Run", *, as_json: bool) -> "Run":
    """Show the progress until the run has ended. Raise EngineError if it failed."""
    clock, shown = SystemClock(), ""
    while run.is_running:
        if run.progress is not None and not as_json and (line := run.progress.text) != shown:
            shown = line
            print(f"{format_time(run.progress.since)}  {line}", flush=True)
        clock.sleep(POLL_SECONDS)
        with suppress(EngineUnavailable):  # the run goes on, whether it can be seen or not
            run = stack.read_run(run.arn)
    if run.status not in {"SUCCEEDED", "SKIPPED"}:
        has_ended_well = run.progress is not None and run.progress.state in _ENDED_WELL
        raise EngineError(
            f"run {run.name}: {_describe_result(run)}" + ("" if has_ended_well else "; run it again to continue")
        )
    return run


def status(
    cluster: Annotated[str | None, Parameter(name="CLUSTER", help="Only this cluster.")] = None,
    /,
    *,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """Show the runs in progress: current step, end of its wait, retries, and the instances of the cluster.

    If CLUSTER has no run in progress, show its last run.
    Example: holdfast aurora status shop-cluster --prefix shop
    """
    with options.open(cluster) as stack:
        runs = stack.find_runs(cluster, running=True)
        if cluster is not None and not runs:
            runs = stack.find_runs(cluster, limit=1)
        names = {each.cluster for each in runs} | ({cluster} if cluster is not None else set())
        clusters = [stack.read_cluster(each) for each in sorted(names)]
    if json:
        print_json(
            {"runs": [_build_run(each) for each in runs], "clusters": [build_cluster(each) for each in clusters]}
        )
        return
    if not runs:
        print("no run is in progress" if cluster is None else f"there has been no run of {cluster} yet")
    for run in runs:
        print(f"run {run.name} to {run.target_class}, since {format_time(run.started_at)}: {_describe_result(run)}")
        if run.is_running and run.progress is not None and run.progress.waits_until is not None:
            print(f"waits until {format_time(run.progress.waits_until)}")
    if clusters:
        print()
        print_table(("cluster", *INSTANCE_HEADER), [(each.id, *row) for each in clusters for row in build_rows(each)])


def history(
    cluster: ClusterArgument,
    /,
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=1000), help="Maximum number of runs.")] = 20,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """Show the latest runs of a cluster, newest first, with duration and result.

    Example: holdfast aurora history shop-cluster --prefix shop
    """
    with options.open(cluster) as stack:
        runs = stack.find_runs(cluster, limit=limit)
        if not runs:
            stack.read_cluster(cluster)  # says so if the id is wrong
    rows = [
        (
            *(each.name, format_time(each.started_at)),
            "" if each.ended_at is None else format_duration(each.ended_at - each.started_at),
            *(each.target_class, _describe_result(each)),
        )
        for each in runs
    ]
    print_rows(
        [_build_run(each) for each in runs], ("run", "started", "duration", "class", "result"), rows, as_json=json
    )


def stop(cluster: ClusterArgument, /, *, options: AuroraOptions, json: Json = False) -> None:
    """Stop the run of a cluster, and release its lock. A change that RDS has begun goes on.

    Example: holdfast aurora stop shop-cluster --prefix shop
    """
    with options.open(cluster) as stack:
        stopped = stack.stop(cluster)
        holder, found = stack.find_lock_holder(cluster), stack.read_cluster(cluster)
    if json:
        print_json({"stopped": stopped, "lock_holder": holder or None, "cluster": build_cluster(found)})
        return
    for arn in stopped:
        print(f"stopped {arn.rpartition(':')[2]}")
    other = holder.rpartition(":")[2]
    print(f"another run has the lock and is in progress: {other}" if holder else "the lock is released")
    print("a change that RDS has begun goes on, and the next run continues from there")
    print_table(INSTANCE_HEADER, build_rows(found))


def _print_plan(findings: Sequence[CheckFinding], plan: Plan, saving: Saving | None, *, as_json: bool) -> None:
    can_start = all(each.result is not CheckResult.REFUSED for each in findings)
    if as_json:
        found = {
            "can_start": can_start,
            "findings": findings,
            **pick_attributes(plan, "steps", "seconds", "changed_count", "is_complete"),
        }
        print_json({**found, "saving": saving and pick_attributes(saving, "by_instances", "network", "total")})
        return
    print_table(("check", "result", ""), [(each.name, each.result, each.text) for each in findings])
    if not can_start:
        return
    print()
    print_table(("after", "state", ""), [(format_duration(each.at), each.state, each.text) for each in plan.steps])
    print()
    count = f"{plan.changed_count} instance{'' if plan.changed_count == 1 else 's'}"
    duration = f"about {format_duration(plan.seconds)} (hours:minutes:seconds)"
    if plan.is_complete:
        print(f"a run would change {count}, and take {duration}")
    else:
        print(f"a run would not complete, as its last step shows: it would end after {duration}")
    if saving is not None:
        print(
            f"saving per month: {saving.total:,.2f} ({saving.by_instances:,.2f} by instances, minus "
            f"{saving.network:,.2f} for the network); you pay for reserved instances in any case, so they save nothing"
        )


def _build_run(run: "Run") -> dict[str, Any]:
    names = ("cluster", "name", "arn", "target_class", "status", "started_at", "ended_at", "progress")
    return {**pick_attributes(run, *names), "result": _describe_result(run)}


_ENDED_WELL = {
    "CompletionNotificationFailed": "completed, but its notification could not be sent",
    "SkippedNotificationFailed": "skipped, but its notification could not be sent",
}
"""The results of runs that Step Functions shows as failed, by their last state."""


def _describe_result(run: "Run") -> str:
    """Return the step of a run in progress, or how the run ended."""
    progress = run.progress
    if run.is_running:
        return "started" if progress is None else progress.text
    words = {"SUCCEEDED": "completed", "SKIPPED": "skipped, because another run was in progress"}.get(run.status)
    if progress is not None:
        words = words or _ENDED_WELL.get(progress.state)
    if words is not None:
        return words
    reason = "" if progress is None else f" at {progress.state}" + (f": {progress.reason}" if progress.reason else "")
    return {"ABORTED": "stopped", "TIMED_OUT": "timed out"}.get(run.status, "failed") + reason

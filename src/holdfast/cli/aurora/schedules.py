"""`holdfast aurora clusters|schedule|unschedule`: clusters with their instances, and when runs start."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from holdfast._clock import SystemClock
from holdfast._errors import Conflict, NotFound
from holdfast.aurora.cluster import Cluster, Instance
from holdfast.aurora.names import Names
from holdfast.aurora.preflight import ONLY_VALID_NOW, CheckFinding, CheckResult, PlannedRun, check_run
from holdfast.aurora.schedule import DEFAULT_TIMEZONE, find_next_time, parse_schedule
from holdfast.cli.aurora.deploy import Prefix, Region
from holdfast.cli.output import Json, SettingsFile, print_note, print_result, print_rows
from holdfast.compose import open_aws_session
from holdfast.config import load

if TYPE_CHECKING:
    from holdfast.aurora.stack import ScalingStack, ScheduledRun

ClusterArgument: TypeAlias = Annotated[str, Parameter(name="CLUSTER", help="The id of the cluster.")]
TargetClass: TypeAlias = Annotated[str, Parameter(name="--class", help="The instance class, such as db.t4g.medium.")]
FallbackClasses: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--fallback-class", help="A class to use if AWS has no capacity for --class. Repeat it for several."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuroraOptions:
    """Options that select the account, the region and the deployed stack."""

    prefix: Prefix
    region: Region = None
    settings: SettingsFile = None

    @contextmanager
    def open(self) -> "Iterator[ScalingStack]":
        settings = load(self.settings, options={("aws", "region"): self.region}).settings
        name = Names(self.prefix).stack
        with open_aws_session(settings) as session:
            # Here, because the help of all commands is shown without boto3, and the session says what to install.
            from holdfast.aurora.stack import open_stack

            with open_stack(session, SystemClock(), name) as stack:
                yield stack


def clusters(*, options: AuroraOptions, json: Json = False) -> None:
    """Show the Aurora clusters of the region with their instances and schedules.

    Example: holdfast aurora clusters --prefix shop
    """
    schedules, note = [], ""
    with options.open() as stack:
        found = stack.list_clusters()
        try:
            schedules = stack.list_schedules()
        except NotFound as error:
            note = f"schedules are not shown: {error}"
    rows = [
        (each.id, *row, "; ".join(_format_schedule(one) for one in schedules if one.cluster == each.id))
        for each in found
        for row in build_rows(each)
    ]
    header = ("cluster", *INSTANCE_HEADER, "schedules")
    print_rows([build_cluster(each, schedules) for each in found], header, rows, as_json=json)
    if note:
        print_note(note, as_json=json)


def schedule(
    cluster: ClusterArgument,
    /,
    *,
    target: TargetClass,
    at: Annotated[str, Parameter(help="HH:MM for every day, or 'YYYY-MM-DD HH:MM' for once.")],
    timezone: Annotated[
        str | None,
        Parameter(help=f"Time zone of --at; needs EventBridge Scheduler. Default: {DEFAULT_TIMEZONE}."),
    ] = None,
    fallback: FallbackClasses = None,
    force: Annotated[bool, Parameter(help="Ignore warnings, and replace another cluster's schedule.")] = False,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """Change the class of a cluster every day at a time, or once.

    A stack with a rule holds one schedule. With EventBridge Scheduler there can be several: down and up again.
    Example: holdfast aurora schedule db --prefix a --class db.t4g.large --at 19:15
    """
    wanted, classes = parse_schedule(at), (target, *(fallback or ()))
    with options.open() as stack:
        from holdfast.aurora.stack import find_zone

        starts_at = find_next_time(wanted, SystemClock().wall(), find_zone(timezone or DEFAULT_TIMEZONE))
        planned = PlannedRun(cluster_id=cluster, classes=classes, starts_at=starts_at, is_daily=not wanted.is_once)
        findings = [each for each in check_run(stack.read_facts(planned)) if each.name not in ONLY_VALID_NOW]
        require_no_findings(findings, force=True)
        created = stack.schedule(cluster, planned.classes, at, timezone, force=force)
    print_result(created, f"{cluster}: {_format_schedule(created)}, by {created.eventbridge_name}", as_json=json)
    if created.is_rule:
        print_note(f"the rule {created.eventbridge_name} holds one schedule: an earlier one has ended", as_json=json)
    for each in findings:
        if each.result is CheckResult.WARNING and not force:
            print_note(f"{each.name}: {each.text}", as_json=json)


def unschedule(
    cluster: ClusterArgument,
    /,
    *,
    at: Annotated[str | None, Parameter(help="Only the schedule of this time. Default: all of the cluster.")] = None,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """End the schedules of a cluster. A run in progress goes on.

    Example: holdfast aurora unschedule shop-cluster --prefix shop
    """
    with options.open() as stack:
        ended = stack.unschedule(cluster, at)
    print_rows(
        ended,
        ("cluster", "ended schedule", "by"),
        [(each.cluster, _format_schedule(each), each.eventbridge_name) for each in ended],
        as_json=json,
    )


INSTANCE_HEADER = ("instance", "role", "class", "status")


def build_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """Return the rows of a table of instances."""
    return [
        (each.id, _describe_role(cluster, each), each.instance_class, each.status)
        for each in sorted(cluster.instances, key=lambda each: (not each.is_writer, each.tier, each.id))
    ]


def build_cluster(cluster: Cluster, schedules: "Sequence[ScheduledRun]" = ()) -> dict[str, Any]:
    """Return a cluster for `print_json`."""
    return {
        "id": cluster.id,
        "status": cluster.status,
        "engine": cluster.engine,
        "instances": [dict(zip(("id", "role", "class", "status"), row, strict=True)) for row in build_rows(cluster)],
        "schedules": [each for each in schedules if each.cluster == cluster.id],
    }


def _describe_role(cluster: Cluster, instance: Instance) -> str:
    if instance.is_writer:
        return "writer"
    if instance is cluster.dedicated_reader:
        return "dedicated reader"
    return "autoscaling reader" if instance.is_autoscaling else "reader"


def _format_schedule(schedule: "ScheduledRun") -> str:
    state = "" if schedule.is_enabled else " (disabled)"
    return f"{schedule.target_class} at {schedule.time} {schedule.timezone}{state}"


def require_no_findings(findings: Sequence[CheckFinding], *, force: bool) -> None:
    """Raise Conflict if a check refuses a run; also if one warns, unless `force` is set."""
    refused = [f"{each.name}: {each.text}" for each in findings if each.result is CheckResult.REFUSED]
    if refused:
        raise Conflict(f"refused: {'; '.join(refused)}")
    warnings = [f"{each.name}: {each.text}" for each in findings if each.result is CheckResult.WARNING]
    if warnings and not force:
        raise Conflict(f"not started because of warnings, which --force ignores: {'; '.join(warnings)}")

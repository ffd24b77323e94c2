"""`holdfast aurora clusters|schedule|unschedule`: clusters with their instances, and when runs start."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from holdfast._clock import SystemClock
from holdfast._errors import Conflict, NotFound
from holdfast.aurora.cluster import Cluster, Instance
from holdfast.aurora.names import Names, check_prefix
from holdfast.aurora.preflight import ONLY_VALID_NOW, CheckFinding, CheckResult, PlannedRun, check_run
from holdfast.aurora.schedule import (
    DEFAULT_TIMEZONE,
    check_class,
    check_cluster_id,
    find_next_time,
    parse_schedule,
)
from holdfast.cli.aurora.deploy import Prefix, Region
from holdfast.cli.output import Json, SettingsFile, print_json, print_note, print_result, print_rows, print_table
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
    def open(self, cluster: str | None = None) -> "Iterator[ScalingStack]":
        """Open the stack for a block. Raise InvalidValue if the prefix, or the id of `cluster`, is not valid."""
        check_prefix(self.prefix, "--prefix")
        if cluster is not None:
            check_cluster_id(cluster, "CLUSTER")
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
    rows = [(each.id, *row) for each in found for row in build_rows(each) or [("(no instances)", "", "", "")]]
    header = ("cluster", *INSTANCE_HEADER)
    print_rows([build_cluster(each, schedules) for each in found], header, rows, as_json=json)
    if schedules and not json:
        print()
        _print_schedules(schedules, "schedule")
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
        Parameter(help=f"Time zone of --at. Needs --scheduler scheduler in deploy. Default: {DEFAULT_TIMEZONE}."),
    ] = None,
    fallback: FallbackClasses = None,
    force: Annotated[bool, Parameter(help="Replace the schedule of another cluster in the rule.")] = False,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """Schedule a class change: every day at --at, or once. Runs the checks that are valid at any time first.

    A stack that was deployed with --scheduler rule has one schedule. With --scheduler scheduler it can have several.
    Example: holdfast aurora schedule db --prefix a --class db.t4g.large --at 19:15
    """
    parsed, classes = parse_schedule(at, "--at"), build_classes(target, fallback)
    with options.open(cluster) as stack:
        from holdfast.aurora.stack import find_zone

        starts_at = find_next_time(parsed, SystemClock().wall(), find_zone(timezone or DEFAULT_TIMEZONE))
        planned = PlannedRun(cluster_id=cluster, classes=classes, starts_at=starts_at, is_daily=not parsed.is_once)
        findings = [each for each in check_run(stack.read_facts(planned)) if each.name not in ONLY_VALID_NOW]
        raise_if_refused(findings, force=True)
        earlier = [each for each in stack.list_schedules() if each.is_rule and each.is_enabled]
        created = stack.schedule(cluster, planned.classes, at, timezone, force=force)
    text = f"{cluster}: {_format_schedule(created)} (schedule {created.eventbridge_name})"
    print_result(created, text, as_json=json)
    if created.is_rule and earlier:
        replaced = f"{earlier[0].cluster}, {_format_schedule(earlier[0])}"
        print_note(f"this replaces the earlier schedule of the rule: {replaced}", as_json=json)
    for each in findings:
        if each.result is CheckResult.WARNING:
            print_note(f"{each.name}: {each.text}", as_json=json)


def unschedule(
    cluster: ClusterArgument,
    /,
    *,
    at: Annotated[
        str | None, Parameter(help="End only the schedule at this time. Default: all schedules of the cluster.")
    ] = None,
    timezone: Annotated[str | None, Parameter(help="End only schedules in this time zone.")] = None,
    options: AuroraOptions,
    json: Json = False,
) -> None:
    """End the schedules of a cluster. A run in progress goes on.

    Example: holdfast aurora unschedule shop-cluster --prefix shop
    """
    if at is not None:
        parse_schedule(at, "--at")
    with options.open(cluster) as stack:
        ended = stack.unschedule(cluster, at, timezone)
    if json:
        print_json(ended)
    else:
        _print_schedules(ended, "ended schedule")


def _print_schedules(schedules: "Sequence[ScheduledRun]", title: str) -> None:
    rows = [(each.cluster, _format_schedule(each), each.eventbridge_name) for each in schedules]
    print_table(("cluster", title, "name in EventBridge"), rows)


def build_classes(target: str, fallback: list[str] | None) -> tuple[str, ...]:
    """Return --class and all --fallback-class. Raise InvalidValue if one is not a class."""
    return check_class(target, "--class"), *(check_class(each, "--fallback-class") for each in fallback or ())


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


def raise_if_refused(findings: Sequence[CheckFinding], *, force: bool) -> None:
    """Raise Conflict if a check refuses a run; also if one warns, unless `force` is set."""
    refused = [f"{each.name}: {each.text}" for each in findings if each.result is CheckResult.REFUSED]
    if refused:
        raise Conflict("\n  ".join(["refused by these checks:", *refused]))
    warnings = [f"{each.name}: {each.text}" for each in findings if each.result is CheckResult.WARNING]
    if warnings and not force:
        raise Conflict("\n  ".join(["not started, because of these warnings (--force starts it anyway):", *warnings]))

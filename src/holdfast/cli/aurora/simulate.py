"""`holdfast aurora simulate`: the real state machine and functions on a simulated cluster, in virtual time."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from holdfast.aurora.plan import format_duration
from holdfast.cli.output import NO_PICTURE, Json, PictureOptions, print_json, print_table

if TYPE_CHECKING:
    from holdfast.simulate.aurora import SimulatedRun

# A literal, so that help and completion list the names.
FaultName: TypeAlias = Literal[
    "deleting-instance",
    "failover-refused",
    "failover-never",
    "failover-reverted",
    "scaled-in",
    "scaled-out",
    "cluster-starting",
    "cluster-stopped",
    "throttling",
    "insufficient-capacity",
    "fallback-class",
    "class-never-applied",
    "roles-swapped",
    "failing-notification",
    "aborted",
    "timed-out",
    "duplicate",
]


def simulate(
    *,
    fault: Annotated[tuple[FaultName, ...], Parameter(help="What goes wrong. May be repeated.")] = (),
    readers: Annotated[int, Parameter(help="Autoscaling readers, 0 to 14.")] = 1,
    seed: Annotated[int | None, Parameter(help="Draw the times that changes take. Default: 700 s for a class.")] = None,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Simulate a run of the state machine on a cluster in which things go wrong. Takes seconds, and needs no account.

    The definition and the functions are those that are deployed. The picture shows every instance over time, and the
    path through the state machine. A run that ends with an error is a result, and no error of the command.
    Example: holdfast aurora simulate --fault failover-refused --svg run.svg
    """
    from holdfast.simulate import aurora, run_picture

    run = aurora.build_scenario(fault, readers, seed)
    picture.check()
    result = aurora.simulate(run)
    violations = aurora.find_violations(result)
    picture.draw(lambda: run_picture.draw_run(result))
    if json:
        print_json(_describe(result, violations))
        return
    print_table(
        ("from", "to", "instance", "class", "role", "status"),
        [
            (format_duration(span.begin), format_duration(span.end), name, span.instance_class, span.role, span.status)
            for name, spans in result.build_timelines().items()
            for span in spans
        ],
    )
    print(f"\n{result.status} after {format_duration(result.seconds)} (hours:minutes:seconds)")
    print(f"path: {len(result.path)} states, the last one is {result.path[-1].name}")
    for notification in result.notifications:
        print(f"notification at {format_duration(notification.at)}: {notification.subject}")
    print(f"rules: {'; '.join(violations) or 'kept'}")


def _describe(result: "SimulatedRun", violations: list[str]) -> dict[str, Any]:
    return {
        "status": result.status,
        "seconds": result.seconds,
        "instances": result.build_timelines(),
        "path": result.path,
        "notifications": result.notifications,
        "changes": result.calls,
        "history_events": result.event_count,
        "violations": violations,
    }

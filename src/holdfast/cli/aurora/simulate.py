"""`holdfast aurora simulate`: the real state machine and functions on a simulated cluster, in virtual time."""

import dataclasses
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
    fault: Annotated[tuple[FaultName, ...], Parameter(help="A fault to simulate. May be repeated.")] = (),
    readers: Annotated[int, Parameter(help="Autoscaling readers, 0 to 14.")] = 1,
    seed: Annotated[
        int | None,
        Parameter(help="Use random durations, the same for the same number. Default: fixed ones (700 s for a class)."),
    ] = None,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Simulate a run on a cluster, with faults that you choose. Takes seconds, and needs no AWS account.

    The state machine and the functions are those that are deployed. The picture shows every instance over time, and
    the path through the state machine. If the simulated run fails, the command still exits with code 0.
    Example: holdfast aurora simulate --fault failover-refused --svg run.svg
    """
    from holdfast.simulate import aurora, run_picture

    scenario = aurora.build_scenario(fault, readers, seed)
    picture.check()
    result = aurora.simulate(scenario)
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
        for line in notification.text.splitlines():
            if line.startswith(("Reason: ", "Note: ")):
                print(f"  {line}")
    if seed is not None:
        times = dataclasses.asdict(scenario.times)
        print(f"seconds: {', '.join(f'{name} {seconds:.0f}' for name, seconds in times.items())}")
    print(f"safety rules: {'; '.join(violations) or 'none was broken'}")


def _describe(result: "SimulatedRun", violations: list[str]) -> dict[str, Any]:
    return {
        "status": result.status,
        "seconds": result.seconds,
        "instances": result.build_timelines(),
        "path": result.path,
        "notifications": result.notifications,
        "changes": result.calls,
        "history_events": result.event_count,
        "times": result.scenario.times,
        "violations": violations,
    }

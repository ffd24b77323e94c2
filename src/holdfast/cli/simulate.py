"""`holdfast simulate`: scenarios with failing zones, as files or through the detector."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import Json, create_progress, format_time, print_json, print_rows, print_table

if TYPE_CHECKING:
    from holdfast.simulate.zones.scenario import Scenario
    from holdfast.telemetry.window import Window

Item = TypeVar("Item")
DETECTOR = "calibrated"

app = App(
    name="simulate",
    help="Simulate failures of zones. Takes seconds, and needs no service.\n\n"
    "Example: holdfast simulate zones latency-only",
    help_epilogue=EXIT_CODES_HELP,
)


@app.command(help_epilogue=EXIT_CODES_HELP)
def zones(
    scenario: Annotated[str, Parameter(help="Name of a scenario; --list shows all.")] = "zone-fails",
    /,
    *,
    list_: Annotated[bool, Parameter(name="--list", help="List the scenarios.")] = False,
    seed: Annotated[int, Parameter(help="Seed of the random numbers. The same seed gives the same result.")] = 1,
    hours: Annotated[float | None, Parameter(help="Hours to simulate, 1 to 744.")] = None,
    operations: Annotated[int | None, Parameter(help="Operations of the service, 1 to 2000.")] = None,
    instances: Annotated[int | None, Parameter(help="Instances in each zone, 1 to 200.")] = None,
    out: Annotated[
        Path | None, Parameter(help="Write CSV files into this folder, and do not run the detector.")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate a service in three zones with a known failure, and show when the detector finds it.

    Each scenario has its own hours, operations and instances, which the options replace.
    Example: holdfast simulate zones small-rise --seed 7
    """
    from holdfast.simulate.zones.scenario import Size
    from holdfast.simulate.zones.scenarios import SCENARIOS, create_scenario, describe_scenario

    if list_:
        found = {name: describe_scenario(name) for name in SCENARIOS}
        rows = [{"scenario": name, "description": text} for name, text in found.items()]
        print_rows(rows, ("scenario", "description"), found.items(), as_json=json)
        return
    created, random = create_scenario(scenario, seed, Size(operations=operations, instances=instances, hours=hours))
    facts = _describe(created) | {"scenario": scenario, "description": describe_scenario(scenario), "seed": seed}
    bins = round((created.times.end - created.times.start) / created.seconds)
    with create_progress() as progress:
        task = progress.add_task(scenario, total=bins)
        if out is not None:
            from holdfast.simulate.zones.files import write_scenario

            files = write_scenario(out, created, random, advance=lambda: progress.advance(task))
            result = {"files": [{"path": str(file.path), "rows": file.rows} for file in files]}
        else:
            from holdfast.simulate.zones.windows import iterate_windows

            windows = iterate_windows(created, random)
            result = _detect(created, _count(windows, lambda: progress.advance(task)))
    if json:
        print_json({**facts, **result})
        return
    _print_facts(facts)
    if out is not None:
        print_table(("rows", "file"), [(f"{file['rows']:,}", file["path"]) for file in result["files"]])
    else:
        _print_verdicts(result)


def _count(items: Iterable[Item], advance: Callable[[], None]) -> Iterator[Item]:
    for item in items:
        yield item
        advance()


def _describe(scenario: "Scenario") -> dict[str, Any]:
    return {
        "start": scenario.times.start,
        "end": scenario.times.end,
        "bin_seconds": scenario.seconds,
        "operations": len(scenario.operations),
        "zones": scenario.zones,
        "instances": scenario.fleet.instances,
        "labels": scenario.labels,
    }


def _detect(scenario: "Scenario", windows: "Iterable[Window]") -> dict[str, Any]:
    """Run the detector, and return its verdicts, and the delay of each label."""
    from holdfast.detect import DETECTORS, build_detector
    from holdfast.simulate.zones.outcome import find_labels, run_detector

    options = {"deploys_are_announced": True} if scenario.deployments else {}
    spans = run_detector(build_detector(DETECTOR, options), DETECTORS.get(DETECTOR).state_type(), windows)
    labels = [{**asdict(each.label), "delay": each.delay} for each in find_labels(scenario.labels, spans)]
    return {"detector": DETECTOR, "labels": labels, "verdicts": spans}


def _print_facts(facts: dict[str, Any]) -> None:
    hours = (facts["end"] - facts["start"]) / 3600
    print(f"{facts['scenario']}, seed {facts['seed']}: {facts['description']}")
    print(
        f"{hours:g} h from {format_time(facts['start'])}; zones: {len(facts['zones'])}, operations: "
        f"{facts['operations']}, instances in each zone: {facts['instances']}\n"
    )


def _print_verdicts(result: dict[str, Any]) -> None:
    if result["labels"]:
        print_table(
            ("failure", "of", "from", "to", f"found by {DETECTOR}"),
            [
                (
                    label["kind"],
                    label["instance"] or label["resource"] or label["zone"],
                    format_time(label["start"]),
                    format_time(label["end"]),
                    "no" if label["delay"] is None else f"after {label['delay']:g} s",
                )
                for label in result["labels"]
            ],
        )
    else:
        print("no failure: every verdict but healthy is false")
    print()
    print_table(
        ("verdict", "of", "from", "to", "summary"),
        [
            (each.kind, each.resource or each.zone, format_time(each.start), format_time(each.end), each.summary)
            for each in result["verdicts"]
        ],
    )

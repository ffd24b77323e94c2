"""`holdfast replay`: run detectors and alarms over recorded telemetry."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._errors import HoldfastError, InvalidValue, MissingExtra
from holdfast._names import format_count
from holdfast._types import Zone
from holdfast.cli.output import (
    NO_PICTURE,
    Json,
    PictureOptions,
    SettingsFile,
    create_progress,
    format_time,
    print_json,
    print_note,
    print_table,
)
from holdfast.config import Settings, load
from holdfast.detect.detector import DEFAULT_DETECTOR, parse_options
from holdfast.telemetry.source import SourceWorkload

if TYPE_CHECKING:
    from holdfast.replay.picture import ZoneHistory
    from holdfast.replay.report import ReplayResult
    from holdfast.replay.run import ReplayedWorkload, ReplayOptions
    from holdfast.replay.score import JudgeScore
    from holdfast.replay.tables import Label
    from holdfast.telemetry.window import Window

Value = TypeVar("Value")
_FAILURES = ("missed", "wrong", "false")


def replay(
    *files: Annotated[
        Path,
        Parameter(help="CSV of bins, lines of embedded metric format, or a range query of Prometheus; also with gzip."),
    ],
    detector: Annotated[
        tuple[str, ...], Parameter(help="A detector. May be repeated. Default: that of the settings.")
    ] = (),
    option: Annotated[
        tuple[str, ...], Parameter(help="A setting of the detectors, as name=value. May be repeated.")
    ] = (),
    no_alarms: Annotated[bool, Parameter(help="Run only detectors, without alarms: quicker.")] = False,
    against: Annotated[
        Path | None, Parameter(help="CSV of known failures, to score the run: start, end, kind, zone.")
    ] = None,
    deploys: Annotated[Path | None, Parameter(help="CSV of announced deploys: start, end, zone.")] = None,
    zone_states: Annotated[
        Path | None, Parameter(help="CSV of zones that were not in: start, end, zone, state.")
    ] = None,
    resources: Annotated[
        Path | None,
        Parameter(help="CSV of shared resources: resource, operation, zone. Default: those of the settings."),
    ] = None,
    bin_seconds: Annotated[
        float | None,
        Parameter(
            validator=Number(gte=0.5, lte=600),
            help="Length of a bin, in seconds. Default: found in the data; 10 for embedded metric format.",
        ),
    ] = None,
    label: Annotated[
        tuple[str, ...], Parameter(help="The name of a label in Prometheus, such as zone=az. May be repeated.")
    ] = (),
    skip_bad: Annotated[bool, Parameter(help="Count bad rows, and go on, instead of ending with an error.")] = False,
    fail_on: Annotated[
        str, Parameter(help="Exit with 1 if any was found: missed, wrong, false, separated by commas.")
    ] = "",
    settings: SettingsFile = None,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Run detectors and alarms over recorded telemetry, and print their verdicts.

    Example: holdfast replay bins.csv --against labels.csv --svg replay.svg
    """
    if not files:
        raise InvalidValue("a file is needed: holdfast replay FILE...")
    picture.check()
    failures = _parse_failures(fail_on)
    try:
        from holdfast.replay.files import ReadingOptions
        from holdfast.replay.report import build_report
        from holdfast.replay.run import ReplayOptions
        from holdfast.replay.score import Recording, find_label_notes, score_judge
        from holdfast.replay.tables import parse_deployments, parse_labels, parse_resources, parse_states
    except ModuleNotFoundError as error:
        raise MissingExtra("`holdfast replay`", "server") from error
    labels = _read_table(against, parse_labels)
    loaded = load(settings).settings
    options = ReplayOptions(
        reading=ReadingOptions(
            paths=files,
            seconds=bin_seconds,
            skips_bad=skip_bad,
            labels=_parse_pairs("--label", label),
            workloads=_list_sources(loaded),
            mappings=loaded.telemetry.emf,
        ),
        workloads=_list_workloads(loaded),
        detectors=_parse_detectors(detector, option),
        with_alarms=not no_alarms,
        deployments=tuple(_read_table(deploys, parse_deployments)),
        states=tuple(_read_table(zone_states, parse_states)),
        resources=tuple(_read_table(resources, parse_resources)),
    )
    histories: dict[str, ZoneHistory] = {}
    result = _run(options, histories if picture.svg is not None else None)
    result.notes += find_label_notes(labels, result.zones)
    recording = Recording(start=result.start, end=result.end, seconds=result.seconds, arrivals=result.arrivals)
    scores = [score_judge(judge, result.verdicts, labels, recording) for judge in result.judges]
    if len(histories) > 1:
        print_note(f"the picture shows {next(iter(histories))}: draw one workload at a time", as_json=json)
    picture.draw(lambda: _draw(result, histories, labels))
    if json:
        print_json(build_report(result, scores, has_labels=against is not None))
    else:
        _print(result, scores, has_labels=against is not None)
    if picture.svg is not None:
        print_note(f"the picture is in {picture.svg}", as_json=json)
    found = {
        "missed": sum(score.counts["missed"] for score in scores),
        "wrong": sum(score.wrong for score in scores),
        "false": sum(len(score.false) for score in scores),
    }
    if failed := [f"{found[name]} {name}" for name in failures if found[name]]:
        raise HoldfastError(f"the run does not pass --fail-on: {', '.join(failed)}")


def _run(options: "ReplayOptions", histories: "dict[str, ZoneHistory] | None") -> "ReplayResult":
    """Replay with a progress bar. Collect the measurements of zones in `histories`, for a picture."""
    from holdfast.replay.picture import ZoneHistory
    from holdfast.replay.run import replay as run_replay

    def observe(window: "Window | None") -> None:
        if histories is None:
            return
        if window is None:
            histories.clear()
            return
        history = histories.setdefault(window.workload, ZoneHistory(window.zones, window.seconds))
        history.add(window)

    with create_progress() as progress:
        task = progress.add_task("", total=1.0)
        return run_replay(
            options,
            report_progress=lambda share, at: progress.update(task, completed=share, description=format_time(at)),
            observe=None if histories is None else observe,
        )


def _draw(result: "ReplayResult", histories: "Mapping[str, ZoneHistory]", labels: "Sequence[Label]") -> str:
    from holdfast.replay.picture import draw_replay

    workload, history = next(iter(histories.items()))
    span = result.start, result.end
    return draw_replay(workload, history, span, result.verdicts, labels=labels, judges=result.judges)


def _print(result: "ReplayResult", scores: "Sequence[JudgeScore]", *, has_labels: bool) -> None:
    hours, bins = (result.end - result.start) / 3600, format_count(result.bins, "bin")
    print(
        f"{bins} of {result.seconds:g} s, {hours:.1f} hours from {format_time(result.start)}: "
        f"{format_count(result.rows, 'row')} in {result.elapsed_seconds:.1f} s"
    )
    counts = (
        (result.bins_without_data, "bin", "without data"),
        (result.lost_requests, "request", "that arrived too late"),
        (result.bad_rows, "bad row", "skipped"),
    )
    for count, noun, rest in counts:
        if count:
            print(f"{format_count(count, noun)} {rest}")
    for note in result.notes:
        print_note(note, as_json=False)
    print()
    if result.verdicts:
        print_table(
            ("opened", "closed", "by", "workload", "kind", "zone", "summary"),
            [
                (
                    format_time(each.opened),
                    format_time(each.closed),
                    each.judge,
                    each.workload,
                    each.kind,
                    each.resource or each.zone,
                    each.summary,
                )
                for each in result.verdicts
            ],
        )
    else:
        print("no verdicts")
    print()
    if has_labels:
        _print_labels(scores)
    header = ["by", "isolations", "false", "false per week"]
    rows: list[list[object]] = [
        [each.judge, each.isolations, len(each.false), f"{each.false_per_week:.2f}"] for each in scores
    ]
    if has_labels:
        header += ["right", "missed", "wrong", "median delay", "from arrival"]
        for row, score in zip(rows, scores, strict=True):
            delays = score.median_delay, score.median_delay_from_arrival
            row += [score.counts["right"], score.counts["missed"], score.wrong, *map(_format_delay, delays)]
    print_table(header, rows)


def _print_labels(scores: "Sequence[JudgeScore]") -> None:
    print_table(
        ("label", "kind", "zone", "by", "result", "delay", "from arrival"),
        [
            (
                format_time(found.label.start),
                found.label.kind,
                found.label.resource or found.label.zone,
                score.judge,
                found.result,
                _format_delay(found.delay),
                _format_delay(found.delay_from_arrival),
            )
            for score in scores
            for found in score.labels
        ],
    )
    print()


def _format_delay(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.0f} s"


def _list_sources(settings: Settings) -> tuple[SourceWorkload, ...]:
    from holdfast.telemetry.faults import FaultStatuses

    return tuple(
        SourceWorkload(
            each.name, frozenset(map(Zone, each.zones)), FaultStatuses.parse(each.fault_statuses).count_faults
        )
        for each in settings.workload
    )


def _list_workloads(settings: Settings) -> "tuple[ReplayedWorkload, ...]":
    from holdfast.replay.run import ReplayedWorkload

    found = []
    for each in settings.workload:
        watched = each.to_watched_workload(settings.evacuation)
        declaration = each.alarms.to_declaration(each.name, each.region, each.zones)
        found.append(
            ReplayedWorkload(
                name=watched.name,
                zones=watched.zones,
                alarms=declaration,
                detector=watched.detector,
                options=watched.options,
            )
        )
    return tuple(found)


def _parse_detectors(names: Sequence[str], options: Sequence[str]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the named detectors with these options. Options without a detector are for the default one."""
    values = {name: _parse_value(text) for name, text in _parse_pairs("--option", options).items()}
    found = tuple((name, values) for name in names or ((DEFAULT_DETECTOR,) if values else ()))
    for name, _ in found:
        parse_options(name, values)  # before a long run
    return found


def _parse_value(text: str) -> Any:
    """Return an option's value: a number or a truth value, as in the settings, or else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _parse_pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name or not value:
            raise InvalidValue(f"{option} {each!r}: expected name=value")
        found[name.strip()] = value.strip()
    return found


def _parse_failures(text: str) -> list[str]:
    found = [each.strip() for each in text.split(",") if each.strip()]
    for each in found:
        if each not in _FAILURES:
            raise InvalidValue(f"--fail-on {each!r}: expected {', '.join(_FAILURES)}")
    return found


def _read_table(path: Path | None, parse: Callable[[str, str], list[Value]]) -> list[Value]:
    if path is None:
        return []
    try:
        return parse(str(path), path.read_text(encoding="utf-8-sig", errors="replace"))
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}") from error

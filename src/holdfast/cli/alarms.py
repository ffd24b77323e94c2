"""`holdfast alarms`: show the tree of a workload's alarms, their states and history, and why one is in its state.

Reads the stores of the settings, even while the server is down, or with --server a remote server.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from cyclopts import App, Parameter
from cyclopts.validators import Number

from holdfast._errors import NotFound
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import Json, format_time, print_json, print_rows
from holdfast.cli.remote import RemoteServer, read_token
from holdfast.cli.zone import ZONES, ZoneOptions
from holdfast.compose import Databases, require_store
from holdfast.watch.alarm_views import ExplainedAlarm, RulePart, ShownAlarm, ShownSuppression, WorkloadAlarms

if TYPE_CHECKING:
    from holdfast.server.alarms import AlarmReports

app = App(
    name="alarms",
    help="Show the alarms of a workload: their tree, their states, their history, and reasons.\n\n"
    "Example: holdfast alarms tree",
    help_epilogue=EXIT_CODES_HELP,
)

Found = TypeVar("Found")
Workload: TypeAlias = Annotated[str | None, Parameter(help="The workload. Needed if there are several.")]
All: TypeAlias = Annotated[
    bool, Parameter(name="--all", help="Also alarms about single operations that are not in ALARM.")
]
_WORDS = {"OK": "ok", "ALARM": "ALARM", "INSUFFICIENT_DATA": "no data"}
"""States, as people read them."""


@app.command(help_epilogue=EXIT_CODES_HELP)
def tree(
    name: Annotated[str | None, Parameter(name="NAME", help="Only this alarm, and the alarms that it uses.")] = None,
    /,
    *,
    workload: Annotated[str | None, Parameter(help="Only this workload. Default: all.")] = None,
    include_all: All = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Draw the alarms: below each the alarms that its rule uses.

    Example: holdfast alarms tree use1-az1-isolated-impact
    """
    found = _list_alarms(workload, options, include_all=include_all or name is not None)
    if json:
        print_json(found)
        return
    known = [{alarm.name: alarm for alarm in each.alarms} for each in found]
    if name is not None and not any(name in alarms for alarms in known):
        raise NotFound(f"there is no alarm {name}: see `holdfast alarms state --all`")
    for each, alarms in zip(found, known, strict=True):
        print(f"{each.workload}{_describe_evaluation(each)}")
        roots = each.roots if name is None else [name]
        for line in _draw([alarms[root] for root in roots if root in alarms], alarms):
            print(line)


@app.command(help_epilogue=EXIT_CODES_HELP)
def state(
    *,
    workload: Annotated[str | None, Parameter(help="Only this workload. Default: all.")] = None,
    include_all: All = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """List the alarms with their states: those in ALARM first, beginning with conclusions about zones and resources.

    Example: holdfast alarms state --all
    """
    found = _list_alarms(workload, options, include_all=include_all)
    rows = [
        (each.workload, alarm.name, _WORDS[alarm.state], format_time(alarm.since), alarm.description)
        for each in found
        for alarm in sorted(each.alarms, key=_rank)
    ]
    print_rows(found, ("workload", "alarm", "state", "since", "meaning of ALARM"), rows, as_json=json)


@app.command(help_epilogue=EXIT_CODES_HELP)
def history(
    name: Annotated[str | None, Parameter(name="NAME", help="Only this alarm.")] = None,
    /,
    *,
    workload: Workload = None,
    limit: Annotated[int, Parameter(help="Maximum number of changes.", validator=Number(gte=1, lte=1000))] = 20,
    include_all: Annotated[
        bool,
        Parameter(
            name="--all", help="Also alarms about single operations, first OKs, and the alarms of a first start."
        ),
    ] = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """List the latest changes of alarms, newest first: states, definitions, and actions. 20 of each alarm are kept.

    Example: holdfast alarms history use1-az1-isolated-impact
    """
    from holdfast.alarms import HistoryItem  # imports NumPy

    given = {"workload": workload, "name": name, "limit": limit, "all": "true" if include_all else None}
    found = _ask(
        options,
        f"/v1/alarms/history?{_encode(given)}",
        list[HistoryItem],
        lambda reports: list(reports.list_history(workload, name, limit, include_all=include_all)),
    )
    if not found and not json:
        is_filtered = not include_all and name is None
        hint = "there is no news about alarms yet; --all also shows single operations and first states"
        print(hint if is_filtered else "no alarm has changed yet")
        return
    rows = [(format_time(item.timestamp), item.alarm_name, item.history_summary) for item in found]
    print_rows(found, ("at", "alarm", "change"), rows, as_json=json)


@app.command(help_epilogue=EXIT_CODES_HELP)
def explain(
    name: Annotated[str, Parameter(name="NAME", help="The name of an alarm.")],
    /,
    *,
    workload: Workload = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Explain the state of an alarm: its datapoints or rule, which part of it decided, and what withholds its actions.

    Example: holdfast alarms explain use1-az1-isolated-impact
    """
    found = _ask(
        options,
        f"/v1/alarms/{quote(name, safe='')}?{_encode({'workload': workload})}",
        ExplainedAlarm,
        lambda reports: reports.explain(workload, name),
    )
    if json:
        print_json(found)
        return
    for line in _describe(found):
        print(line)


def _list_alarms(workload: str | None, options: ZoneOptions, *, include_all: bool) -> list[WorkloadAlarms]:
    given = {"workload": workload, "all": "true" if include_all else None}
    return _ask(
        options,
        f"/v1/alarms?{_encode(given)}",
        list[WorkloadAlarms],
        lambda reports: reports.list_alarms(workload, include_all=include_all),
    )


def _rank(alarm: ShownAlarm) -> tuple[int, bool, bool]:
    """Return the rank of an alarm in a list: by state, then conclusions first and single operations last."""
    order = ("ALARM", "INSUFFICIENT_DATA", "OK")
    return order.index(alarm.state), not alarm.has_actions, alarm.is_about_operation


def _encode(given: Mapping[str, str | int | None]) -> str:
    return urlencode({name: value for name, value in given.items() if value is not None})


def _ask(options: ZoneOptions, path: str, kind: type[Found], read: "Callable[[AlarmReports], Found]") -> Found:
    """Return the answer of a server, or read it from the stores."""
    if options.server is not None:
        return RemoteServer(options.server, read_token()).request("GET", path, kind)
    from holdfast.server.alarms import AlarmReports

    values = options.load()
    if not values.workload:
        raise NotFound("there are no alarms: no workload is configured; add a [[workload]] to the settings")
    for subsystem in ("watch", "telemetry"):
        require_store(values, subsystem, hint=", start the server with `holdfast up`, or name one with --server")
    with Databases(values) as databases:
        return read(AlarmReports(values, databases.database))


def _describe_evaluation(found: WorkloadAlarms) -> str:
    if found.evaluated_at is None:
        return ": never evaluated"
    counts = ", ".join(f"{count} {_WORDS[state]}" for state, count in found.counts.items() if count)
    return f": {counts}, evaluated up to {format_time(found.evaluated_at)}"


def _draw(
    alarms: Sequence[ShownAlarm], known: Mapping[str, ShownAlarm], drawn: set[str] | None = None, indent: str = ""
) -> Iterator[str]:
    """Yield a line for each known alarm and those that it uses. What is below an alarm is drawn once."""
    drawn = set() if drawn is None else drawn
    for position, alarm in enumerate(alarms, 1):
        is_last = position == len(alarms)
        notes = [_WORDS[alarm.state], *(["reports its changes"] if alarm.has_actions else [])]
        children = [known[child] for child in alarm.children if child in known]
        if alarm.name in drawn and children:
            notes.append("see above")
            children = []
        drawn.add(alarm.name)
        yield f"{indent}{'└─' if is_last else '├─'} {alarm.name}  [{', '.join(notes)}]"
        yield from _draw(children, known, drawn, f"{indent}{'   ' if is_last else '│  '}")


def _describe(found: ExplainedAlarm) -> Iterator[str]:
    alarm = found.alarm
    since = "" if alarm.since is None else f" since {format_time(alarm.since)}"
    yield f"{alarm.name} ({found.workload}): {_WORDS[alarm.state]}{since}"
    yield f"  {alarm.description}"
    yield f"  reason of the last change: {alarm.reason}"
    yield f"  {'rule' if found.parts else 'condition'}: {found.condition}"
    yield f"  decided by: {found.decided_by}"
    if found.suppressed is not None:
        yield f"  {_describe_suppression(found.suppressed)}"
    if found.missing_data is not None:
        yield f"  missing data: {found.missing_data}"
    if found.datapoints:
        yield "  datapoints, oldest first; those marked * decided:"
    for point in found.datapoints:
        value = "no data" if point.value is None else f"{point.value:,.6g}"
        breaching = ", breaching" if point.is_breaching else ""
        yield f"   {'*' if point.is_used else ' '} {format_time(point.start)}  {value}{breaching}"
    for series, values in found.inputs.items():
        yield f"  {series}: {', '.join('no data' if value is None else f'{value:,.6g}' for value in values)}"
    if found.parts is not None:
        yield "  the parts that decided:"
        yield from _describe_parts([found.parts], "  ")


def _describe_suppression(found: ShownSuppression) -> str:
    reasons = {
        "WaitPeriod": f"it waits for {found.suppressor}",
        "Alarm": f"{found.suppressor} is in ALARM",
        "ExtensionPeriod": f"{found.suppressor} was in ALARM",
    }
    until = "" if found.until is None else f", until {format_time(found.until)}"
    then = "none is pending"
    if found.is_pending:
        then = "they run some time after it has ended" if found.until is None else "then they run"
    return f"actions are suppressed by {found.by}: {reasons[found.by]}{until}; {then}"


def _describe_parts(parts: Sequence[RulePart], indent: str) -> Iterator[str]:
    for position, part in enumerate(parts, 1):
        is_last = position == len(parts)
        states = ", ".join(f"{name} is {_WORDS[state]}" for name, state in part.states.items())
        value = "true" if part.value else "false"
        yield f"{indent}{'└─' if is_last else '├─'} {value}: {part.rule}{f'  ({states})' if states else ''}"
        yield from _describe_parts(part.deciding, f"{indent}{'   ' if is_last else '│  '}")

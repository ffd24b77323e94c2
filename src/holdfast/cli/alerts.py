"""`holdfast alerts`: who was told of which verdict, acknowledge and snooze, and test the channels.

Works directly on the store of the settings, even while the server is down, or with --server on a remote server.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stdout
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number

from holdfast._clock import SystemClock
from holdfast._errors import HoldfastError, InvalidValue, NotFound
from holdfast.alerts import AlertReport, AlertStore, AlertTestResult, DeliveryFailed, Snooze, send_test
from holdfast.alerts.store import SUBSYSTEM
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import SETTINGS, Json, SettingsOptions, format_time, print_json, print_result, print_rows
from holdfast.cli.remote import RemoteServer, read_token
from holdfast.cli.stored import get_own_name
from holdfast.cli.zone import ZONES, ZoneOptions
from holdfast.compose import Databases, open_alerts, require_store
from holdfast.config import AlertSettings, Settings
from holdfast.config.settings import require_known

app = App(
    name="alerts",
    help="Show who was told of which verdict, acknowledge and snooze verdicts, test the channels.\n\n"
    "Example: holdfast alerts list",
    help_epilogue=EXIT_CODES_HELP,
)

Found = TypeVar("Found")
Verdict: TypeAlias = Annotated[str, Parameter(name="ID", help="The id of a verdict.")]
By: TypeAlias = Annotated[str | None, Parameter(help="Who does it. Default: the user, or the credential.")]


@app.command(name="list", help_epilogue=EXIT_CODES_HELP)
def list_alerts(
    *,
    limit: Annotated[int, Parameter(help="Maximum number of verdicts.", validator=Number(gte=1, lte=1000))] = 20,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """List the latest verdicts, newest first, and who was told of each.

    Example: holdfast alerts list --limit 5
    """
    found = _ask(options, f"?limit={limit}", list[AlertReport], lambda store: list(store.list_latest(limit)))
    if not found and not json:
        print("there was no verdict to tell of yet")
        return
    rows = [
        (each.verdict.id, each.verdict.kind, format_time(each.verdict.opened_at), _describe_state(each), _told(each))
        for each in found
    ]
    print_rows(found, ("verdict", "kind", "opened", "state", "told"), rows, as_json=json)


@app.command(help_epilogue=EXIT_CODES_HELP)
def show(verdict: Verdict, /, *, options: ZoneOptions = ZONES, json: Json = False) -> None:
    """Show a verdict, and every message about it. Changes nothing.

    Example: holdfast alerts show shop/use1-az1/1700000000
    """
    found = _ask(options, f"/{quote(verdict)}", AlertReport, lambda store: store.get(verdict))
    if json:
        print_json(found)
        return
    for line in _describe(found):
        print(line)
    rows = [
        (each.alert, each.event, each.state, format_time(each.delivered_at), each.attempts, each.error)
        for each in found.deliveries
    ]
    if rows:
        print_rows(None, ("alert", "message", "state", "told", "attempts", "last error"), rows, as_json=False)


@app.command(help_epilogue=EXIT_CODES_HELP)
def acknowledge(verdict: Verdict, /, *, by: By = None, options: ZoneOptions = ZONES, json: Json = False) -> None:
    """Record that somebody takes care of a verdict. Everybody who was told of it learns this.

    Example: holdfast alerts acknowledge shop/use1-az1/1700000000 --by on-call
    """
    found = _ask(
        options,
        "/acknowledge",
        AlertReport,
        lambda store: store.acknowledge(verdict, by or get_own_name(), SystemClock().wall()),
        {"verdict": verdict, "by": by},
    )
    print_result(found, f"{verdict}: acknowledged by {found.verdict.acknowledged_by}", as_json=json)


@app.command(help_epilogue=EXIT_CODES_HELP)
def snooze(
    verdict: Annotated[str | None, Parameter(name="ID", help="The id of a verdict.")] = None,
    /,
    *,
    workload: Annotated[str | None, Parameter(help="All verdicts of this workload, also later ones.")] = None,
    duration: Annotated[str, Parameter(name="--for", help="How long: 90s, 30m, 2h30m, 1d or seconds.")],
    by: By = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Tell nobody of a verdict or a workload for some time; then of each verdict that is still open.

    Example: holdfast alerts snooze --workload shop --for 2h
    """
    if (verdict is None) == (workload is None):
        raise InvalidValue("expected either the ID of a verdict or --workload")
    seconds = parse_duration(duration)

    def change(store: AlertStore) -> Snooze:
        require_known(options.load().workload, None, workload)
        until = SystemClock().wall() + seconds
        return store.snooze(verdict=verdict, workload=workload, by=by or get_own_name(), until=until)

    body = {"verdict": verdict, "workload": workload, "for": seconds, "by": by}
    found = _ask(options, "/snooze", Snooze, change, body)
    print_result(found, f"{verdict or workload}: nobody is told until {format_time(found.until)}", as_json=json)


@app.command(name="test", help_epilogue=EXIT_CODES_HELP)
def send_tests(
    name: Annotated[str | None, Parameter(name="NAME", help="Only this alert. Default: all.")] = None,
    /,
    *,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Send a test message through the channel of each alert, and say what happened. Uses no store and no server.

    Exit code 1 if a message was not confirmed.
    Example: holdfast alerts test on-call
    """
    values = options.load()
    chosen = tuple(alert for alert in values.alert if name in (None, alert.name))
    if not chosen:
        known = ", ".join(alert.name for alert in values.alert)
        advice = f"expected one of {known}" if known else "add an [[alert]] to the settings"
        raise NotFound(f"there is no alert{f' {name}' if name else ''}: {advice}")
    # With --json, the line of a channel `stdout` must not be mixed with the result.
    with redirect_stdout(sys.stderr) if json else nullcontext():
        results = [_test(values, alert) for alert in chosen]
    rows = [(each.alert, "confirmed" if each.error is None else f"failed: {each.error}") for each in results]
    print_rows(results, ("alert", "result"), rows, as_json=json)
    failed = [each.alert for each in results if each.error is not None]
    if failed:
        raise DeliveryFailed(f"no test message was confirmed for {', '.join(failed)}")


def _test(values: Settings, alert: AlertSettings) -> AlertTestResult:
    """Test one alert. A missing secret of one alert does not hide the others."""
    with Databases(values) as databases:
        try:
            [opened] = open_alerts(msgspec.structs.replace(values, alert=(alert,)), databases)
        except HoldfastError as error:
            return AlertTestResult(alert.name, str(error))
        return send_test(opened, values.server.page_url, SystemClock().wall())


def _ask(
    options: ZoneOptions,
    path: str,
    kind: type[Found],
    use_store: Callable[[AlertStore], Found],
    change: dict[str, Any] | None = None,
) -> Found:
    """Ask a server, or use the store. With `change`, the request is a POST."""
    if options.server is not None:
        body = None if change is None else msgspec.json.encode(change)
        method = "GET" if change is None else "POST"
        return RemoteServer(options.server, read_token()).request(method, f"/v1/alerts{path}", kind, body)
    values = options.load()
    require_store(values, SUBSYSTEM, hint=", or name a running server with --server; it needs an [[alert]]")
    with Databases(values) as databases:
        return use_store(AlertStore(databases.database(SUBSYSTEM)))


def _describe_state(report: AlertReport) -> str:
    verdict = report.verdict
    if verdict.closed_at is not None:
        return f"resolved {format_time(verdict.closed_at)}"
    if verdict.acknowledged_by is not None:
        return f"acknowledged by {verdict.acknowledged_by}"
    if (verdict.snoozed_until or 0.0) > SystemClock().wall():
        return f"snoozed until {format_time(verdict.snoozed_until)}"
    return "open"


def _told(report: AlertReport) -> str:
    told = dict.fromkeys(each.alert for each in report.deliveries if each.delivered_at is not None)
    waiting = dict.fromkeys(each.alert for each in report.deliveries if each.state == "waiting")
    return ", ".join([*told, *(f"{name} (waiting)" for name in waiting)]) or "nobody"


def _describe(report: AlertReport) -> Iterator[str]:
    verdict = report.verdict
    yield f"{verdict.id}: {verdict.summary}"
    yield f"  workload {verdict.workload}, kind {verdict.kind}, since {format_time(verdict.since)}"
    yield f"  {_describe_state(report)}"
    if verdict.acknowledged_at is not None:
        yield f"  acknowledged {format_time(verdict.acknowledged_at)} by {verdict.acknowledged_by}"
    if verdict.snoozed_until is not None:
        yield f"  snoozed until {format_time(verdict.snoozed_until)} by {verdict.snoozed_by}"

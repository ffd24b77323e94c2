"""`holdfast verdict`: explain the current verdict of a workload.

Reads the stores of the settings, even while the server is down, or with --server a remote server.
"""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from holdfast._clock import SystemClock
from holdfast._errors import NotFound
from holdfast._types import ZoneState
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import Json, format_time, print_json
from holdfast.cli.remote import RemoteServer, read_token
from holdfast.cli.zone import ZONES, ZoneOptions
from holdfast.compose import Databases, open_status_store, require_store
from holdfast.watch.explanation import VerdictExplanation, ZoneExplanation

app = App(
    name="verdict",
    help="Explain what detection concludes about the zones of a workload.\n\nExample: holdfast verdict explain",
    help_epilogue=EXIT_CODES_HELP,
)


@app.command(help_epilogue=EXIT_CODES_HELP)
def explain(
    workload: Annotated[
        str | None, Parameter(name="WORKLOAD", help="The workload. Needed if there are several.")
    ] = None,
    /,
    *,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Explain the latest verdict: the evidence against each zone, how much is missing, and what holds it back.

    Example: holdfast verdict explain shop
    """
    found = _read(workload, options)
    if json:
        print_json(found)
        return
    for line in _describe(found):
        print(line)


def _read(workload: str | None, options: ZoneOptions) -> VerdictExplanation:
    if options.server is not None:
        server = RemoteServer(options.server, read_token())
        path = "/v1/verdicts/explanation" + (f"?workload={quote(workload, safe='')}" if workload else "")
        return server.request("GET", path, VerdictExplanation)
    from holdfast.compose_evacuation import read_runs
    from holdfast.server.verdicts import explain_workload
    from holdfast.watch import WatchStore

    values = options.load()
    if not values.workload:
        raise NotFound("there are no verdicts: no workload is configured; add a [[workload]] to the settings")
    require_store(values, "watch", hint=", start the server with `holdfast up`, or name one with --server")
    with Databases(values) as databases:
        return explain_workload(
            workload,
            workloads=values.workload,
            evacuation=values.evacuation,
            store=WatchStore(databases.database("watch")),
            statuses=open_status_store(values, databases),
            runs=read_runs(values, databases),
            now=SystemClock().wall(),
        )


def _describe(found: VerdictExplanation) -> Iterator[str]:
    verdict = found.verdict
    about = verdict.resource or verdict.zone
    yield f"{found.workload}: {verdict.kind}{f' ({about})' if about else ''}, by detector {found.detector}"
    yield f"  {verdict.summary}"
    if verdict.kind != "healthy":
        yield f"  since {format_time(verdict.since)}"
    yield f"  evaluated up to {format_time(verdict.at)}"
    yield f"  {found.evacuation}"
    for zone in found.zones:
        yield ""
        yield from _describe_zone(zone)
    if found.resources:
        yield ""
    for each in found.resources:
        affected = f"; affected in {', '.join(each.affected_zones)}" if each.affected_zones else ""
        yield f"{each.resource} is {each.observability}: {each.meaning}{affected}"


def _describe_zone(found: ZoneExplanation) -> Iterator[str]:
    state = "" if found.state is ZoneState.IN else f" ({found.state})"
    if not found.signals:
        yield f"{found.sentence}{state}"
        return
    requests, rate = found.measured.get("requests"), found.measured.get("fault_rate")
    failed = "" if rate is None else f", {rate:.1%} of them failed"
    yield f"{found.zone}{state}: {requests} requests in the last window{failed}"
    for signal in found.signals:
        yield f"  {signal.sentence}"
    if found.worst_instances:
        yield f"  worst instances: {', '.join(found.worst_instances)}"

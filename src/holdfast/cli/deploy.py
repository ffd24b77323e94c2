"""`holdfast deploy`: announce that a deploy begins or ends, and list the announced deploys.

Works directly on the store of the settings, even while the server is down, or with --server on a remote server.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeAlias
from urllib.parse import urlencode

import msgspec
from cyclopts import App, Parameter

from holdfast._clock import SystemClock
from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import Json, format_time, print_result, print_rows
from holdfast.cli.remote import RemoteServer, read_token
from holdfast.cli.stored import get_own_name
from holdfast.cli.zone import ZONES, ZoneOptions
from holdfast.compose import Databases, require_store
from holdfast.config import Settings
from holdfast.config.settings import require_watched
from holdfast.watch.deploy import AnnouncedDeploy
from holdfast.watch.deploy_store import DeployStore

app = App(
    name="deploy",
    help="Announce that a deploy begins or ends, so that detection takes it into account.\n\n"
    "Example: holdfast deploy begin --workload shop --zone use1-az1",
    help_epilogue=EXIT_CODES_HELP,
)

WorkloadOption: TypeAlias = Annotated[str, Parameter(name="--workload", help="The workload that is deployed.")]
ZoneOption: TypeAlias = Annotated[
    str | None, Parameter(name="--zone", help="Only this zone, an AZ-ID. Default: all zones of the workload.")
]


@app.command
def begin(
    *,
    workload: WorkloadOption,
    zone: ZoneOption = None,
    by: Annotated[str | None, Parameter(help="Who deploys. Default: you, or your credential at --server.")] = None,
    note: Annotated[str, Parameter(help="Text for people, such as a version.")] = "",
    duration: Annotated[
        str | None,
        Parameter(
            name="--for",
            allow_leading_hyphen=True,  # so that -5m gets the error message about durations
            help="The announcement expires after 90s, 30m or seconds, at most 1h. Default: 15m.",
        ),
    ] = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Announce that a deploy begins. Detectors are shown it until 15 minutes after its end.

    `calibrated` uses it only with `deploys_are_announced`, until 5 minutes after its end.

    Example: holdfast deploy begin --workload shop --zone use1-az1 --note v42
    """
    wanted, seconds = _parse(zone), None if duration is None else parse_duration(duration)
    if options.server is not None:
        body = {"workload": workload, "zone": wanted, "by": by, "note": note, "for": seconds}
        begun = _post(options.server, "/v1/deploys", body)
    else:
        with _open(options) as (values, store):
            require_watched(values.workload, workload, wanted)
            begun = store.begin(workload, wanted, by=by or get_own_name(), note=note, seconds=seconds)
    text = f"deploy {begun.id} of {_describe(begun)} is announced until {format_time(begun.expires_at)}"
    print_result(begun, text, as_json=json)


@app.command
def end(
    deploy_id: Annotated[str | None, Parameter(name="ID", help="The id of the deploy.")] = None,
    /,
    *,
    workload: Annotated[str | None, Parameter(help="The workload. Needed without an ID.")] = None,
    zone: ZoneOption = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """End an announced deploy: by its id, or the running one of this zone. Without --zone, that of all zones.

    Example: holdfast deploy end --workload shop --zone use1-az1
    """
    wanted = _parse(zone)
    if (deploy_id is None) == (workload is None) or (deploy_id is not None and wanted is not None):
        raise InvalidValue("expected either the ID of a deploy, or --workload with or without --zone")
    if options.server is not None:
        ended = _post(options.server, "/v1/deploys/end", {"id": deploy_id, "workload": workload, "zone": wanted})
    else:
        with _open(options) as (values, store):
            if deploy_id is None:
                require_watched(values.workload, workload, wanted)
            ended = store.end(deploy_id, workload=workload, zone=wanted)
    print_result(ended, f"deploy {ended.id} of {_describe(ended)} ended at {format_time(ended.end)}", as_json=json)


@app.command(name="list")
def list_deploys(
    *,
    workload: Annotated[str | None, Parameter(help="Only this workload. Default: all.")] = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """List the running deploys, and those that ended in the last day, newest first.

    Example: holdfast deploy list --workload shop
    """
    if options.server is not None:
        query = "" if workload is None else f"?{urlencode({'workload': workload})}"
        remote = RemoteServer(options.server, read_token())
        found = remote.request("GET", f"/v1/deploys{query}", list[AnnouncedDeploy])
    else:
        with _open(options) as (values, store):
            if workload is not None:
                require_watched(values.workload, workload)
            found = [*store.list(workload)]
    if not found:
        print_result(found, "no deploy was announced in the last day", as_json=json)
        return
    now = SystemClock().wall()
    header = ("id", "workload", "zone", "state", "began", "ends", "by", "note")
    rows = [
        (
            *(each.id, each.workload, each.zone or "(all)", _get_state(each, now)),
            *(format_time(each.started_at), format_time(each.end), each.by, each.note),
        )
        for each in found
    ]
    print_rows(found, header, rows, as_json=json)


def _parse(zone: str | None) -> Zone | None:
    return None if zone is None else parse_zone(zone)


def _get_state(deploy: AnnouncedDeploy, now: float) -> str:
    if deploy.is_running(now):
        return "running"
    return "expired" if deploy.ended_at is None else "ended"


def _describe(deploy: AnnouncedDeploy) -> str:
    return f"{deploy.workload}, {deploy.zone or 'all zones'},"


def _post(server: str, path: str, body: Mapping[str, object]) -> AnnouncedDeploy:
    try:
        encoded = msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InvalidValue("expected Unicode text") from error
    return RemoteServer(server, read_token()).request("POST", path, AnnouncedDeploy, encoded)


@contextmanager
def _open(options: ZoneOptions) -> Iterator[tuple[Settings, DeployStore]]:
    values = options.load()
    # An announcement in a store that no server reads would only seem to be one.
    require_store(values, "watch", hint=", or ask the server with --server URL")
    with Databases(values) as databases:
        yield values, DeployStore(databases.database("watch"))

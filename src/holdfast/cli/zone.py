"""`holdfast zone`: which zones are out, and taking them out or in.

Works on the store of the settings directly, also while the server is down, or with --server on a server elsewhere.
"""

import os
import pwd
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import App, Parameter

from holdfast._clock import Clock, SystemClock
from holdfast._types import StatusStore, Zone, ZoneStatus
from holdfast.cli.commands import EXIT_CODES
from holdfast.cli.duration import seconds_of
from holdfast.cli.output import DataDirectory, Json, SettingsFile, moment, print_json, print_table
from holdfast.cli.remote import RemoteZones
from holdfast.compose import Databases, existing_store, open_status_store
from holdfast.config import WorkloadSettings, load
from holdfast.config.workloads import require_known
from holdfast.status.change import Changes
from holdfast.status.names import workload_of, zone_of
from holdfast.status.stores.sql import SUBSYSTEM

app = App(
    name="zone",
    help="See which zones are out, take one out, bring it in.\n\nExample: holdfast zone status",
    help_epilogue=EXIT_CODES,
)

ZoneArgument: TypeAlias = Annotated[str, Parameter(name="ZONE", help="An AZ-ID such as use1-az1.")]
Reason: TypeAlias = Annotated[str, Parameter(help="Why, for whoever comes next.")]
Workload: TypeAlias = Annotated[str | None, Parameter(help="Only for this workload; without it, for all.")]
Server: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Ask the server at this URL instead of the store of the settings, with the token in $HOLDFAST_TOKEN."
    ),
]


@app.command
def status(
    zone: Annotated[str | None, Parameter(name="ZONE", help="Only this one.")] = None,
    /,
    *,
    workload: Annotated[str | None, Parameter(help="What holds for this workload.")] = None,
    server: Server = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Show every zone that is out, and those that were once.

    Example: holdfast zone status use1-az1
    """
    wanted = None if zone is None else zone_of(zone)
    concerned = None if workload is None else workload_of(workload)
    with _zones(server, settings, data_directory) as zones:
        statuses, now = zones.read()
    shown = sorted(
        (
            replace(each, out=each.is_out(now))
            for each in statuses
            if wanted in (None, each.zone) and (concerned is None or each.workload in (None, concerned))
        ),
        key=lambda each: (each.zone, each.workload or ""),
    )
    if json:
        print_json(shown)
    elif not shown:
        found = "no zone was ever taken out" if wanted is None else f"{wanted} was never taken out"
        print(found if concerned is None else f"{found} for {concerned}")
    else:
        print_table(("zone", "workload", "status", "since", "until", "by", "reason"), [_row(each) for each in shown])


@app.command(name="out")
def take_out(
    zone: ZoneArgument,
    /,
    *,
    reason: Reason,
    workload: Workload = None,
    duration: Annotated[
        str | None,
        Parameter(name="--for", help="In again by itself after 90s, 30m, 2h30m, 1d; without it, when brought in."),
    ] = None,
    force: Annotated[bool, Parameter(negative="", help="Also while another zone is out.")] = False,
    server: Server = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Take a zone out. One that is out already gets the new reason, and the new time.

    Refused while another zone is out, unless by force. A server on the same store tells everybody within a second.
    Example: holdfast zone out use1-az2 --reason "errors on checkout" --for 2h
    """
    wanted, concerned = zone_of(zone), None if workload is None else workload_of(workload)
    seconds = None if duration is None else seconds_of(duration)
    with _zones(server, settings, data_directory, is_new=True) as zones:
        written = zones.take_out(wanted, concerned, reason=reason, seconds=seconds, force=force)
    if json:
        print_json(written)
    else:
        end = "it is brought in" if written.expires is None else moment(written.expires)
        print(f"{zone} is out for {workload or 'all workloads'} until {end}")


@app.command(name="in")
def bring_in(
    zone: ZoneArgument,
    /,
    *,
    reason: Reason,
    workload: Workload = None,
    server: Server = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Bring a zone in again. One that is in already stays as it is.

    Example: holdfast zone in use1-az2 --reason "mended"
    """
    wanted, concerned = zone_of(zone), None if workload is None else workload_of(workload)
    with _zones(server, settings, data_directory) as zones:
        written = zones.bring_in(wanted, concerned, reason=reason)
    if json:
        print_json(written)
    else:
        print(f"{zone} is in for {workload or 'all workloads'}")


class _StoredZones:
    """Reads and changes the statuses of a store, as the user who runs the command."""

    def __init__(self, store: StatusStore, workloads: Sequence[WorkloadSettings], clock: Clock) -> None:
        self._store = store
        self._workloads = workloads
        self._clock = clock
        self._changes = Changes(store, clock)

    def read(self) -> tuple[Sequence[ZoneStatus], float]:
        return self._store.read(), self._clock.wall()

    def take_out(
        self, zone: Zone, workload: str | None, *, reason: str, seconds: float | None, force: bool
    ) -> ZoneStatus:
        require_known(self._workloads, zone, workload)
        return self._changes.take_out(zone, workload, by=_user(), reason=reason, seconds=seconds, force=force)

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str) -> ZoneStatus:
        require_known(self._workloads, zone, workload)
        return self._changes.bring_in(zone, workload, by=_user(), reason=reason)


@contextmanager
def _zones(
    server: str | None, file: Path | None, data_directory: Path | None, *, is_new: bool = False
) -> Iterator[_StoredZones | RemoteZones]:
    """Where statuses are read and changed; a store that is not there yet is made only for what will be written."""
    if server is not None:
        yield RemoteZones.open(server)
        return
    values = load(file, options={("data_directory",): data_directory}).settings
    if not is_new and values.status.store == "database":
        existing_store(values, SUBSYSTEM)
    clock = SystemClock()
    with Databases(values) as databases:
        yield _StoredZones(open_status_store(values, databases, clock), values.workload, clock)


def _row(status: ZoneStatus) -> tuple[object, ...]:
    return (
        status.zone,
        status.workload or "(all)",
        "out" if status.out else "in",
        moment(status.since),
        moment(status.expires),
        status.by,
        status.reason,
    )


def _user() -> str:
    """Who decides, for the record: by the system's word, which no variable changes."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run as anybody
        name = f"uid-{number}"
    return f"{name}@{socket.gethostname()}"

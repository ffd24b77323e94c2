"""`holdfast zone`: show which zones are out, take a zone out, bring it in, find the own zone. See also `evacuate.py`.

Works directly on the store of the settings, even while the server is down, or with --server on a remote server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from holdfast._clock import SystemClock
from holdfast._errors import InvalidValue
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import ZoneState, ZoneStatus
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import (
    Json,
    SettingsFile,
    SettingsOptions,
    format_time,
    print_json,
    print_note,
    print_result,
    print_rows,
)
from holdfast.cli.remote import RemoteZones, read_token
from holdfast.cli.stored import StoredZones
from holdfast.compose import Databases, find_zone
from holdfast.config import load

app = App(
    name="zone",
    help="Show which zones are out, take a zone out, evacuate it, bring it back, find the zone of this host.\n\n"
    "Example: holdfast zone status",
    help_epilogue=EXIT_CODES_HELP,
)
# By name, so that only these commands import the modules of evacuation.
for _command in ("plan", "evacuate", "resume", "restore", "runs", "runbook"):
    app.command(f"holdfast.cli.evacuate:{_command}", name=_command)

ZoneArgument: TypeAlias = Annotated[str, Parameter(name="ZONE", help="An AZ-ID such as use1-az1.")]
# Catches extra arguments, to explain the likely mistake: without it, they are refused without a hint.
Others: TypeAlias = Annotated[str, Parameter(show=False)]
Reason: TypeAlias = Annotated[str, Parameter(help="Reason, recorded in the history.")]
Workload: TypeAlias = Annotated[str | None, Parameter(help="Only for this workload. Default: all workloads.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions(SettingsOptions):
    """Options that select where statuses are read and changed."""

    server: Annotated[
        str | None, Parameter(help="Use the server at this URL, with the token in $HOLDFAST_TOKEN, not the store.")
    ] = None

    @contextmanager
    def open(self) -> Iterator[StoredZones | RemoteZones]:
        if self.server is not None:
            yield RemoteZones(self.server, read_token())
            return
        values = self.load()
        with Databases(values) as databases:
            yield StoredZones(values, databases, SystemClock())


ZONES = ZoneOptions()


@app.command
def status(
    zone: Annotated[str | None, Parameter(name="ZONE", help="Only this zone.")] = None,
    /,
    *others: Others,
    workload: Annotated[str | None, Parameter(help="Show the statuses that apply to this workload.")] = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show the zones that are out, and those that were out before.

    Example: holdfast zone status use1-az1
    """
    require_no_others(others)
    wanted, for_workload = (
        None if zone is None else parse_zone(zone),
        None if workload is None else check_workload_name(workload),
    )
    with options.open() as zones:
        statuses, now = zones.read(wanted, for_workload)
    listed = sorted(
        (
            _apply_expiry(each, now)
            for each in statuses
            if wanted in (None, each.zone) and (for_workload is None or each.workload in (None, for_workload))
        ),
        key=lambda each: (each.zone, each.workload or ""),
    )
    if not listed:
        found = "no zone was ever taken out" if wanted is None else f"{wanted} was never taken out"
        print_result(listed, found if for_workload is None else f"{found} for {for_workload}", as_json=json)
        return
    print_rows(listed, _HEADER, map(_build_row, listed), as_json=json)


@app.command(name="out")
def take_out(
    zone: ZoneArgument,
    /,
    *others: Others,
    reason: Reason,
    workload: Workload = None,
    duration: Annotated[
        str | None,
        Parameter(
            name="--for",
            allow_leading_hyphen=True,  # so that -5m gets the error message about durations
            help="Bring the zone in automatically after 90s, 30m, 2h30m, 1d or seconds. Default: until `zone in`.",
        ),
    ] = None,
    force: Annotated[bool, Parameter(help="Take the zone out even while another zone is out.")] = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Take a zone out. If it is out already, it gets the new reason and end.

    Refused while another zone is out, unless --force is given. A server on the same store publishes it within a second.
    Example: holdfast zone out use1-az2 --reason "errors on checkout" --for 2h
    """
    require_no_others(others)
    wanted, for_workload = parse_zone(zone), None if workload is None else check_workload_name(workload)
    seconds = None if duration is None else parse_duration(duration)
    with options.open() as zones:
        written = zones.take_out(wanted, for_workload, reason=reason, seconds=seconds, force=force)
    end = "it is brought in" if written.expires is None else format_time(written.expires)
    text = f"{zone} is out for {workload or 'all workloads'} until {end} ({zones.location})"
    print_result(written, text, as_json=json)
    if seconds is not None and not zones.can_expire:
        print_note(
            "a Holdfast server must run at that time, or readers that ignore expiry, such as Route 53, keep it out",
            as_json=json,
        )


@app.command(name="in")
def bring_in(
    zone: ZoneArgument,
    /,
    *others: Others,
    reason: Reason,
    workload: Workload = None,
    force: Annotated[
        bool, Parameter(help="Bring it in even if an evacuation took it out, whose journal is lost.")
    ] = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Bring a zone in again. A zone that is in already stays unchanged. To undo an evacuation, use `zone restore`.

    Brought in for all workloads, it stays out for single workloads with their own status; the command lists them.
    Example: holdfast zone in use1-az2 --reason "fixed"
    """
    require_no_others(others)
    wanted, for_workload = parse_zone(zone), None if workload is None else check_workload_name(workload)
    with options.open() as zones:
        # Read before the change: if that fails, nothing was changed.
        statuses, now = ((), 0.0) if for_workload else zones.read()
        written = zones.bring_in(wanted, for_workload, reason=reason, force=force)
    left = sorted(each.workload for each in statuses if each.zone == wanted and each.workload and each.is_out(now))
    if json:
        print_json(written)
        if left:
            print_note(f"{zone} is still out for {', '.join(left)}", as_json=True)
    elif left:
        print(f"{zone} is no longer out for all workloads, but still out for {', '.join(left)} ({zones.location})")
    else:
        print(f"{zone} is in for {workload or 'all workloads'} ({zones.location})")


@app.command
def history(
    *,
    limit: Annotated[
        int, Parameter(validator=Number(gte=1, lte=1000), help="Maximum number of changes, 1 to 1000.")
    ] = 100,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show the latest changes of zone statuses, newest first, as servers recorded them.

    Changes made while no server runs are recorded when the next one starts.
    Example: holdfast zone history --limit 20
    """
    with options.open() as zones:
        changes = zones.history(limit)
    if not changes:
        print_result(changes, "no server has recorded a change yet", as_json=json)
        return
    rows = [(format_time(each.seen_at), *_build_row(each.status)) for each in changes]
    print_rows(changes, ("seen", *_HEADER), rows, as_json=json)


@app.command
def here(*, settings: SettingsFile = None, json: Json = False) -> None:
    """Print the AZ-ID of this host or container, and how it was found.

    Asks the setting agent.zone, Lambda, ECS, Kubernetes and EC2, in this order. Changes nothing.
    Example: holdfast zone here
    """
    found = find_zone(load(settings).settings)
    facts = {"zone": found.zone, "source": found.source, "name": found.name, "cached": found.is_cached}
    print_result(facts, f"{found.zone} ({found.how})", as_json=json)


def require_no_others(others: Sequence[str]) -> None:
    """Raise InvalidValue for unexpected arguments."""
    if others:
        raise InvalidValue(
            f"unexpected arguments {' '.join(others)!r}: give one zone, and put a reason of several words in quotes"
        )


def _apply_expiry(status: ZoneStatus, now: float) -> ZoneStatus:
    """Return the status as it applies at `now`: an expired one is in, without an end."""
    return replace(status, state=ZoneState.IN, share=None, expires=None) if status.has_expired(now) else status


_HEADER = ("zone", "workload", "state", "since", "until", "by", "reason")


def _build_row(status: ZoneStatus) -> tuple[object, ...]:
    times = format_time(status.since), format_time(status.expires)
    return status.zone, status.workload or "(all)", status.state, *times, status.by, status.reason

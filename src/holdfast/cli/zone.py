"""`holdfast zone`: which zones are out, and taking them out or in.

Works on the store of the settings directly, also while the server is down, or with --server on a server elsewhere.
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
from holdfast.cli.output import Json, SettingsOptions, format_time, print_json, print_note, print_result, print_rows
from holdfast.cli.remote import RemoteZones, read_token
from holdfast.cli.stored import StoredZones
from holdfast.compose import Databases

app = App(
    name="zone",
    help="See which zones are out, take one out, bring it in.\n\nExample: holdfast zone status",
    help_epilogue=EXIT_CODES_HELP,
)

ZoneArgument: TypeAlias = Annotated[str, Parameter(name="ZONE", help="An AZ-ID such as use1-az1.")]
# Only to be told from a slip: words that are left over would else be refused without a word on why.
Others: TypeAlias = Annotated[str, Parameter(show=False)]
Reason: TypeAlias = Annotated[str, Parameter(help="Why, for whoever comes next.")]
Workload: TypeAlias = Annotated[str | None, Parameter(help="Only for this workload; without it, for all.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions(SettingsOptions):
    """The options that say where statuses are read and changed."""

    server: Annotated[
        str | None,
        Parameter(
            help="Ask the server at this URL instead of the store of the settings, with the token in $HOLDFAST_TOKEN."
        ),
    ] = None

    @contextmanager
    def open(self) -> Iterator[StoredZones | RemoteZones]:
        """Open the store, or speak to the server."""
        if self.server is not None:
            yield RemoteZones(self.server, read_token())
            return
        values = self.load()
        with Databases(values) as databases:
            yield StoredZones(values, databases, SystemClock())


ZONES = ZoneOptions()


@app.command
def status(
    zone: Annotated[str | None, Parameter(name="ZONE", help="Only this one.")] = None,
    /,
    *others: Others,
    workload: Annotated[str | None, Parameter(help="What holds for this workload.")] = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show every zone that is out, and those that were once.

    Example: holdfast zone status use1-az1
    """
    _require_no_others(others)
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
            allow_leading_hyphen=True,  # so that -5m is told what a duration is
            help="In again by itself after 90s, 30m, 2h30m, 1d; without it, when brought in.",
        ),
    ] = None,
    force: Annotated[bool, Parameter(help="Also while another zone is out.")] = False,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Take a zone out. One that is out already gets the new reason, and the new time.

    Refused while another zone is out, unless by force. A server on the same store tells everybody within a second.
    Example: holdfast zone out use1-az2 --reason "errors on checkout" --for 2h
    """
    _require_no_others(others)
    wanted, for_workload = parse_zone(zone), None if workload is None else check_workload_name(workload)
    seconds = None if duration is None else parse_duration(duration)
    with options.open() as zones:
        written = zones.take_out(wanted, for_workload, reason=reason, seconds=seconds, force=force)
    end = "it is brought in" if written.expires is None else format_time(written.expires)
    text = f"{zone} is out for {workload or 'all workloads'} until {end} ({zones.location})"
    print_result(written, text, as_json=json)
    if seconds is not None and not zones.can_expire:
        print_note(
            "a server has to run to bring it in at that time for those who know nothing of it, such as Route 53",
            as_json=json,
        )


@app.command(name="in")
def bring_in(
    zone: ZoneArgument,
    /,
    *others: Others,
    reason: Reason,
    workload: Workload = None,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Bring a zone in again. One that is in already stays as it is.

    Brought in for all, it stays out for single workloads that it is out for, and the command says for which.
    Example: holdfast zone in use1-az2 --reason "mended"
    """
    _require_no_others(others)
    wanted, for_workload = parse_zone(zone), None if workload is None else check_workload_name(workload)
    with options.open() as zones:
        # Before the change: if it cannot be read, nothing was done.
        statuses, now = ((), 0.0) if for_workload else zones.read()
        written = zones.bring_in(wanted, for_workload, reason=reason)
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
        int, Parameter(validator=Number(gte=1, lte=1000), help="How many changes at the most, 1 to 1000.")
    ] = 100,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show who took which zone out or in, and when, the latest change first, as servers recorded it.

    What is changed while no server runs is recorded when the next one starts.
    Example: holdfast zone history --limit 20
    """
    with options.open() as zones:
        changes = zones.history(limit)
    if not changes:
        print_result(changes, "no server has recorded a change yet", as_json=json)
        return
    rows = [(format_time(each.seen_at), *_build_row(each.status)) for each in changes]
    print_rows(changes, ("seen", *_HEADER), rows, as_json=json)


def _require_no_others(others: Sequence[str]) -> None:
    if others:
        raise InvalidValue(
            f"one zone at a time, and a reason of several words in quotes: what is {' '.join(others)!r}?"
        )


def _apply_expiry(status: ZoneStatus, now: float) -> ZoneStatus:
    """The status as it is by now: one whose time is over is in, and has no end to come."""
    return replace(status, state=ZoneState.IN, share=None, expires=None) if status.has_expired(now) else status


_HEADER = ("zone", "workload", "status", "since", "until", "by", "reason")


def _build_row(status: ZoneStatus) -> tuple[object, ...]:
    times = format_time(status.since), format_time(status.expires)
    return status.zone, status.workload or "(all)", status.state, *times, status.by, status.reason

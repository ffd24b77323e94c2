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
from holdfast._names import workload_of, zone_of
from holdfast._types import ZoneState, ZoneStatus
from holdfast.cli.commands import EXIT_CODES
from holdfast.cli.duration import seconds_of
from holdfast.cli.output import Json, SettingsOptions, moment, print_json, print_note, print_result, print_rows
from holdfast.cli.remote import RemoteZones, token_of_environment
from holdfast.cli.stored import StoredZones
from holdfast.compose import Databases

app = App(
    name="zone",
    help="See which zones are out, take one out, bring it in.\n\nExample: holdfast zone status",
    help_epilogue=EXIT_CODES,
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
            yield RemoteZones(self.server, token_of_environment())
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
    _expect_alone(others)
    wanted, concerned = None if zone is None else zone_of(zone), None if workload is None else workload_of(workload)
    with options.open() as zones:
        statuses, now = zones.read(wanted, concerned)
    shown = sorted(
        (
            _as_of(each, now)
            for each in statuses
            if wanted in (None, each.zone) and (concerned is None or each.workload in (None, concerned))
        ),
        key=lambda each: (each.zone, each.workload or ""),
    )
    if not shown:
        found = "no zone was ever taken out" if wanted is None else f"{wanted} was never taken out"
        print_result(shown, found if concerned is None else f"{found} for {concerned}", as_json=json)
        return
    print_rows(shown, _HEADER, map(_row, shown), as_json=json)


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
    _expect_alone(others)
    wanted, concerned = zone_of(zone), None if workload is None else workload_of(workload)
    seconds = None if duration is None else seconds_of(duration)
    with options.open() as zones:
        written = zones.take_out(wanted, concerned, reason=reason, seconds=seconds, force=force)
    end = "it is brought in" if written.expires is None else moment(written.expires)
    told = f"{zone} is out for {workload or 'all workloads'} until {end} ({zones.place})"
    print_result(written, told, as_json=json)
    if seconds is not None and not zones.ends_by_itself:
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
    _expect_alone(others)
    wanted, concerned = zone_of(zone), None if workload is None else workload_of(workload)
    with options.open() as zones:
        # Before the change: if it cannot be read, nothing was done.
        statuses, now = ((), 0.0) if concerned else zones.read()
        written = zones.bring_in(wanted, concerned, reason=reason)
    left = sorted(each.workload for each in statuses if each.zone == wanted and each.workload and each.is_out(now))
    if json:
        print_json(written)
        if left:
            print_note(f"{zone} is still out for {', '.join(left)}", as_json=True)
    elif left:
        print(f"{zone} is no longer out for all workloads, but still out for {', '.join(left)} ({zones.place})")
    else:
        print(f"{zone} is in for {workload or 'all workloads'} ({zones.place})")


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
    rows = [(moment(each.seen_at), *_row(each.status)) for each in changes]
    print_rows(changes, ("seen", *_HEADER), rows, as_json=json)


def _expect_alone(others: Sequence[str]) -> None:
    if others:
        raise InvalidValue(
            f"one zone at a time, and a reason of several words in quotes: what is {' '.join(others)!r}?"
        )


def _as_of(status: ZoneStatus, now: float) -> ZoneStatus:
    """The status as it is by now: one whose time is over is in, and has no end to come."""
    return replace(status, state=ZoneState.IN, share=None, expires=None) if status.has_expired(now) else status


_HEADER = ("zone", "workload", "status", "since", "until", "by", "reason")


def _row(status: ZoneStatus) -> tuple[object, ...]:
    times = moment(status.since), moment(status.expires)
    return status.zone, status.workload or "(all)", status.state, *times, status.by, status.reason

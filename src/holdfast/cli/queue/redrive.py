"""`holdfast queue redrive`: put back what was given up, or forget it."""

import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, InvalidValue
from holdfast.cli.output import DataDirectory, Json, SettingsFile, print_json, print_note
from holdfast.cli.queue.buried import PAGE, Before, Ids, Reason, Tenant, letters
from holdfast.cli.queue.store import At, QueueArgument, open_store
from holdfast.cli.queue.times import moment_of
from holdfast.queue.backend import Backend, DeadQuery

MOST = 1 << 40
_RESOLUTION = 0.001
"""Seconds: times are kept as whole milliseconds."""


def redrive(
    queue: QueueArgument,
    /,
    *,
    tenant: Tenant = None,
    reason: Reason = None,
    id_: Ids = None,
    before: Before = None,
    all_: Annotated[
        bool, Parameter(name="--all", negative="", help="All of them: needed where nothing else says which.")
    ] = False,
    rate: Annotated[
        float | None, Parameter(help="At most so many per second, so that they do not come back all at once.")
    ] = None,
    discard: Annotated[bool, Parameter(negative="", help="Forget them, instead of putting them back.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Only count them.")] = False,
    at: At = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Put messages that were given up back into their queue, as if they had just been sent, or forget them.

    Those that are given up again meanwhile stay where they are. Interrupted, it has done what it says, and can be
    repeated for the rest.
    Example: holdfast queue redrive mail --reason ConnectionError --rate 50
    """
    if not (all_ or tenant or reason or id_ or before):
        raise InvalidValue("which ones: name --tenant, --reason, --id or --before, or say --all")
    if rate is not None and not 0 < rate <= 1e6:
        raise InvalidValue(f"--rate {rate:g}: expected messages per second, more than 0 and a million at the most")
    with open_store(at, settings, data_directory) as store:
        name = store.require(queue)
        now = store.backend.look(name, top=0).at
        # What fails again while this goes on is not put back again: it would never end.
        limit = now + _RESOLUTION if before is None else moment_of(before, now)
        query = DeadQuery(
            queue=name, tenant=tenant, reason=reason, ids=tuple(id_ or ()), buried_before=limit, limit=MOST
        )
        if dry_run:
            count = sum(1 for _ in letters(store.backend, query))
        else:
            count = _carried_out(Redrive(store.backend, query, rate, discard=discard), as_json=json)
    if json:
        print_json({"queue": name, "count": count, "discarded": discard, "dry_run": dry_run})
    else:
        print(_told(count, name, discard=discard, dry_run=dry_run))


def _told(count: int, name: str, *, discard: bool, dry_run: bool) -> str:
    done = "forgotten" if discard else f"put back into {name}"
    return f"{count:,} would be {done}" if dry_run else f"{count:,} {done}"


class Redrive:
    """Puts dead letters back in small steps, no faster than it may."""

    def __init__(
        self, backend: Backend, query: DeadQuery, rate: float | None, *, discard: bool, clock: Clock | None = None
    ) -> None:
        self._backend = backend
        # A step is no more than comes in half a second, so that a rate is one that workers see as such.
        step = PAGE if rate is None else max(1, min(PAGE, round(rate / 2)))
        self.query = msgspec.structs.replace(query, limit=step)
        self.discard = discard
        self._rate = rate
        self._clock = clock or SystemClock()
        self._begun = self._clock.monotonic()
        self.done = 0

    def step(self) -> bool:
        """Put some back, in time; false: there are no more."""
        if self._rate is not None:
            self._clock.sleep(max(0.0, self._begun + self.done / self._rate - self._clock.monotonic()))
        count = self._backend.redrive(self.query, discard=self.discard)
        self.done += count
        return count > 0


def _carried_out(work: Redrive, *, as_json: bool) -> int:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = (TextColumn("{task.completed:,.0f} done"),)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
            task = shown.add_task("")
            while work.step():
                shown.update(task, completed=work.done)
    except (HoldfastError, KeyboardInterrupt):
        print_note(_told(work.done, work.query.queue, discard=work.discard, dry_run=False), as_json=as_json)
        raise
    return work.done

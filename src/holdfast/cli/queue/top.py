"""`holdfast queue top`: a live view of queues and their busiest tenants."""

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._errors import EngineUnavailable
from holdfast._names import escape_unprintable
from holdfast.cli.output import Json, format_time, print_note
from holdfast.cli.queue.rates import compute_rate, compute_tenant_rates, format_age, format_rate, seconds_until_empty
from holdfast.cli.queue.store import QUEUES, QueueOptions, QueueStore
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.depth import compute_age, count_by_state

MAX_TENANTS = 10
"""Maximum tenants shown: as many as fit on a screen."""


class BacklogFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a queue or of a tenant by state, and how fast its backlog changes."""

    queue: str
    ready: int
    """Messages that wait, without spilled ones."""
    spilled: int
    leased: int
    delayed: int
    dead: int
    change_rate: float | None
    """Growth of the backlog in messages per second, negative if it shrinks; None without an earlier sample."""
    seconds_until_empty: float | None
    """Estimated seconds until the backlog is empty, or None if it does not shrink."""


class QueueFigures(BacklogFigures, frozen=True, kw_only=True):
    """The figures of a queue."""

    lanes_in_use: int
    """Number of lanes that are not empty."""
    oldest_age: float | None
    """Age of the oldest waiting message in seconds, or None if none waits."""


class TenantFigures(BacklogFigures, frozen=True, kw_only=True):
    """The figures of one tenant in a queue."""

    tenant: str


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of queues, and of the tenants with the most waiting messages in any of them."""

    at: float
    queues: Sequence[QueueFigures]
    tenants: Sequence[TenantFigures]


class QueueSampler:
    """Takes samples of one queue, or of all queues, including new ones."""

    def __init__(self, store: QueueStore, queue: str | None) -> None:
        self.store = store
        self._queue = queue
        self._before: dict[str, QueueSnapshot] = {}

    def sample(self) -> Figures:
        """Return the figures of now, with rates since the previous sample."""
        names = self.store.names() if self._queue is None else [self._queue]
        snapshots = self.store.inspect(names, top=MAX_TENANTS)
        figures = compute_figures(snapshots, self._before)
        self._before = {snapshot.queue: snapshot for snapshot in snapshots}
        return figures


def compute_figures(snapshots: Sequence[QueueSnapshot], before: Mapping[str, QueueSnapshot]) -> Figures:
    """Compute figures from snapshots and from the previous snapshot of each queue, if there is one."""
    queues: list[QueueFigures] = []
    tenants: list[TenantFigures] = []
    for snapshot in snapshots:
        earlier, totals = before.get(snapshot.queue), snapshot.totals
        rate, rates = compute_rate(earlier, snapshot), compute_tenant_rates(earlier, snapshot)
        queues.append(
            QueueFigures(
                queue=snapshot.queue,
                **count_by_state(totals),
                lanes_in_use=totals.lanes_in_use,
                oldest_age=compute_age(snapshot, totals.oldest_since),
                change_rate=rate,
                seconds_until_empty=seconds_until_empty(totals.waiting, rate),
            )
        )
        tenants += (
            TenantFigures(
                tenant=one.tenant,
                queue=snapshot.queue,
                **count_by_state(one),
                change_rate=rates.get(one.tenant),
                seconds_until_empty=seconds_until_empty(one.waiting, rates.get(one.tenant)),
            )
            for one in snapshot.tenants
        )
    tenants.sort(key=lambda one: (-one.ready - one.spilled, one.queue, one.tenant))
    at = max((snapshot.at for snapshot in snapshots), default=0.0)
    return Figures(at=at, queues=queues, tenants=tenants[:MAX_TENANTS])


_QUIT = (b"q", b"Q", b"")
"""Keys that quit, and the end of the input."""


class KeyReader:
    """Reads single key presses without echo while it is open. Without a terminal it reads nothing."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._kept: list[Any] = []

    def __enter__(self) -> Self:
        try:
            file = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # closed, or not a file
            return self
        if os.isatty(file):
            import termios
            import tty

            self._file, self._kept = file, termios.tcgetattr(file)
            tty.setcbreak(file)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            import termios

            termios.tcsetattr(self._file, termios.TCSADRAIN, self._kept)
            self._file = None

    def is_quit_within(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return True immediately if a key to quit is pressed."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._file is None:
                time.sleep(left)
            elif select.select([self._file], [], [], left)[0] and os.read(self._file, 1) in _QUIT:
                return True
        return False


_QUEUES = (
    "queue",
    "ready",
    "spilled",
    "change/s",
    "empty in",
    "oldest age",
    "in flight",
    "delayed",
    "dead",
    "lanes in use",
)
_TENANTS = ("tenant", "queue", "ready", "spilled", "change/s", "empty in", "in flight", "delayed", "dead")


def top(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this queue; without it, all.")] = None,
    /,
    *,
    interval: Annotated[
        float, Parameter(validator=Number(gte=0.1, lte=3600), help="Seconds between two samples, 0.1 to 3600.")
    ] = 2.0,
    once: Annotated[bool, Parameter(help="Print one sample, and exit.")] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Watch queues and their busiest tenants: waiting and leased messages, their age, and how fast the backlog changes.

    Press q or Ctrl-C to quit. Without a terminal, and with --json, every sample is printed until Ctrl-C: a line for
    each queue, or with --json for each sample. Rates are computed between two samples, so the first has none.
    Example: holdfast queue top mail --interval 5
    """
    with options.open() as store:
        if queue is not None:
            store.require(queue)
        store.note_estimates(as_json=json)
        sampler = QueueSampler(store, queue)
        if once:
            _print(sampler.sample(), as_json=json)
        elif json or not sys.stdout.isatty():
            _print_all(sampler, interval, as_json=json)
        else:
            _show_live(sampler, interval)


def _queue_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.queues:
        yield (
            one.queue,
            *_format_waiting(one),
            format_age(one.oldest_age),
            *_format_others(one),
            f"{one.lanes_in_use:,}",
        )


def _tenant_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.tenants:
        yield one.tenant, one.queue, *_format_waiting(one), *_format_others(one)


def _format_waiting(one: BacklogFigures) -> tuple[str, ...]:
    return f"{one.ready:,}", f"{one.spilled:,}", format_rate(one.change_rate), format_age(one.seconds_until_empty)


def _format_others(one: BacklogFigures) -> tuple[str, ...]:
    return f"{one.leased:,}", f"{one.delayed:,}", f"{one.dead:,}"


def _print(figures: Figures, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(figures).decode(), flush=True)
        return
    busiest = {one.queue: one.tenant for one in reversed(figures.tenants)}
    for one, row in zip(figures.queues, _queue_rows(figures), strict=True):
        named = [f"{name} {value}" for name, value in zip(_QUEUES[1:], row[1:], strict=True) if value]
        most = [f"most {escape_unprintable(busiest[one.queue])}"] if one.queue in busiest else []
        print(f"{format_time(figures.at)} {one.queue}: {', '.join([*named, *most])}", flush=True)


def _print_all(sampler: QueueSampler, interval: float, *, as_json: bool) -> None:
    keys = KeyReader()  # not opened, only used to wait: opening it in the background would stop the process
    while True:
        try:
            _print(sampler.sample(), as_json=as_json)
        except EngineUnavailable as error:
            print_note(f"{error}; trying again", as_json=as_json)
        if keys.is_quit_within(interval):
            return


def _show_live(sampler: QueueSampler, interval: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for position, name in enumerate(header):
            drawn.add_column(name, justify="left" if position == 0 or name == "queue" else "right", no_wrap=True)
        for row in rows:
            drawn.add_row(*(Text(escape_unprintable(cell)) for cell in row))  # neither markup nor control characters
        return drawn

    def drawn(figures: Figures, error: str) -> Group:
        title = Text(f"{sampler.store.address}, {format_time(figures.at)}, every {interval:g} s; {estimates}q quits")
        shown: list[Any] = [title, Text(error, style="bold red")]
        shown.append(table(_QUEUES, _queue_rows(figures)) if figures.queues else Text("there are no queues yet"))
        if figures.tenants:
            shown += [Text(), table(_TENANTS, _tenant_rows(figures))]
        return Group(*shown)

    estimates = "" if sampler.store.is_exact else "estimates; "
    figures = sampler.sample()
    with KeyReader() as keys, Live(drawn(figures, ""), console=Console(), screen=True, auto_refresh=False) as live:
        while not keys.is_quit_within(interval):
            message = ""
            try:
                figures = sampler.sample()
            except EngineUnavailable as error:
                message = str(error)
            live.update(drawn(figures, message), refresh=True)

"""`holdfast queue top`: queues and their busiest tenants, as they change."""

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
from holdfast.cli.output import Json, moment, print_note, printable
from holdfast.cli.queue.depths import age, change, pace, paces, seconds_left
from holdfast.cli.queue.store import QUEUES, QueueOptions, Store
from holdfast.queue.backend import Snapshot
from holdfast.queue.depth import age_at, states_of

TENANTS = 10
"""Tenants that are shown at the most: a screen has room for them."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a queue, and how its backlog changes."""

    queue: str
    ready: int
    """Messages that wait, without those that are spilled."""
    spilled: int
    leased: int
    delayed: int
    dead: int
    change: float | None
    """Messages per second; below 0, the backlog shrinks. None: there is no look before it."""
    seconds_left: float | None
    """Until nothing waits, if it goes on like this; None: it does not come to that."""


class QueueFigures(Change, frozen=True, kw_only=True):
    """A queue as a whole."""

    lanes: int
    """Lanes that are not empty."""
    oldest: float | None
    """Seconds for which the message has been waiting that waits the longest; None: none waits."""


class TenantFigures(Change, frozen=True, kw_only=True):
    """One of its tenants."""

    tenant: str


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A look at queues, and at the tenants that have the most waiting in any of them."""

    at: float
    queues: Sequence[QueueFigures]
    tenants: Sequence[TenantFigures]


class Watch:
    """Looks at one queue, or at all; queues may come to be meanwhile."""

    def __init__(self, store: Store, queue: str | None) -> None:
        self.store = store
        self._queue = queue
        self._before: dict[str, Snapshot] = {}

    def look(self) -> Figures:
        """Return how queues are now."""
        names = self.store.names() if self._queue is None else [self._queue]
        looks = self.store.look(names, top=TENANTS)
        figures = figures_of(looks, self._before)
        self._before = {look.queue: look for look in looks}
        return figures


def figures_of(looks: Sequence[Snapshot], before: Mapping[str, Snapshot]) -> Figures:
    """What looks say, beside the looks before them."""
    queues: list[QueueFigures] = []
    tenants: list[TenantFigures] = []
    for look in looks:
        earlier = before.get(look.queue)
        totals, rate, rates = look.totals, pace(earlier, look), paces(earlier, look)
        queues.append(
            QueueFigures(
                queue=look.queue,
                **states_of(totals),
                lanes=totals.lanes,
                oldest=age_at(look, totals.oldest),
                change=rate,
                seconds_left=seconds_left(totals.waiting, rate),
            )
        )
        tenants += (
            TenantFigures(
                tenant=one.tenant,
                queue=look.queue,
                **states_of(one),
                change=rates.get(one.tenant),
                seconds_left=seconds_left(one.waiting, rates.get(one.tenant)),
            )
            for one in look.tenants
        )
    tenants.sort(key=lambda one: (-one.ready - one.spilled, one.queue, one.tenant))
    return Figures(at=max((look.at for look in looks), default=0.0), queues=queues, tenants=tenants[:TENANTS])


_QUIT = (b"q", b"Q", b"")
"""Also the end of the input: nobody is there any more."""


class Keys:
    """What is pressed, at once and unseen, while it is open; nothing where there is no terminal to press keys on."""

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
        """Wait so long; true, and at once, when somebody wants no more."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._file is None:
                time.sleep(left)
            elif select.select([self._file], [], [], left)[0] and os.read(self._file, 1) in _QUIT:
                return True
        return False


_QUEUES = ("queue", "ready", "spilled", "change/s", "empty in", "oldest", "in flight", "delayed", "dead", "lanes")
_TENANTS = ("tenant", "queue", "ready", "spilled", "change/s", "empty in", "in flight", "delayed", "dead")


def top(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this one; without it, all.")] = None,
    /,
    *,
    every: Annotated[
        float, Parameter(validator=Number(gte=0.1, lte=3600), help="Seconds between two looks, 0.1 to 3600.")
    ] = 2.0,
    once: Annotated[bool, Parameter(help="Look once, print it, and end.")] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Watch queues and their busiest tenants: what waits, how fast that changes, how old it is, what workers hold.

    Ends with q or Ctrl-C. Without a terminal, and with --json, every look is printed, until Ctrl-C: a line for each
    queue, or for each look. Rates are those between two looks, so the first has none.
    Example: holdfast queue top mail --every 5
    """
    with options.open() as store:
        if queue is not None:
            store.require(queue)
        store.note_estimates(as_json=json)
        watch = Watch(store, queue)
        if once:
            _print(watch.look(), as_json=json)
        elif json or not sys.stdout.isatty():
            _print_all(watch, every, as_json=json)
        else:
            _live(watch, every)


def _queue_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.queues:
        yield one.queue, *_waiting(one), age(one.oldest), *_others(one), f"{one.lanes:,}"


def _tenant_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.tenants:
        yield one.tenant, one.queue, *_waiting(one), *_others(one)


def _waiting(one: Change) -> tuple[str, ...]:
    return f"{one.ready:,}", f"{one.spilled:,}", change(one.change), age(one.seconds_left)


def _others(one: Change) -> tuple[str, ...]:
    return f"{one.leased:,}", f"{one.delayed:,}", f"{one.dead:,}"


def _print(figures: Figures, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(figures).decode(), flush=True)
        return
    busiest = {one.queue: one.tenant for one in reversed(figures.tenants)}
    for one, row in zip(figures.queues, _queue_rows(figures), strict=True):
        named = [f"{name} {value}" for name, value in zip(_QUEUES[1:], row[1:], strict=True) if value]
        most = [f"most {printable(busiest[one.queue])}"] if one.queue in busiest else []
        print(f"{moment(figures.at)} {one.queue}: {', '.join([*named, *most])}", flush=True)


def _print_all(watch: Watch, every: float, *, as_json: bool) -> None:
    keys = Keys()  # not open, they only wait: a terminal would stop whoever opens them in the background
    while True:
        try:
            _print(watch.look(), as_json=as_json)
        except EngineUnavailable as error:
            print_note(f"{error}; looking again", as_json=as_json)
        if keys.is_quit_within(every):
            return


def _live(watch: Watch, every: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for position, name in enumerate(header):
            drawn.add_column(name, justify="left" if position == 0 or name == "queue" else "right", no_wrap=True)
        for row in rows:
            drawn.add_row(*(Text(printable(cell)) for cell in row))  # nothing in it is markup, or for the terminal
        return drawn

    def drawn(figures: Figures, trouble: str) -> Group:
        title = Text(f"{watch.store.address}, {moment(figures.at)}, every {every:g} s; {estimates}q ends")
        shown: list[Any] = [title, Text(trouble, style="bold red")]
        shown.append(table(_QUEUES, _queue_rows(figures)) if figures.queues else Text("there is no queue yet"))
        if figures.tenants:
            shown += [Text(), table(_TENANTS, _tenant_rows(figures))]
        return Group(*shown)

    estimates = "" if watch.store.is_exact else "estimates; "
    figures = watch.look()
    with Keys() as keys, Live(drawn(figures, ""), console=Console(), screen=True, auto_refresh=False) as live:
        while not keys.is_quit_within(every):
            trouble = ""
            try:
                figures = watch.look()
            except EngineUnavailable as error:
                trouble = str(error)
            live.update(drawn(figures, trouble), refresh=True)

"""`holdfast queue top`: queues and their busiest tenants, as they change."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._errors import EngineUnavailable
from holdfast.cli.output import DataDirectory, Json, SettingsFile, moment, print_note, printable
from holdfast.cli.queue.depths import age, change
from holdfast.cli.queue.keys import Keys
from holdfast.cli.queue.store import At, open_store
from holdfast.cli.queue.watch import Figures, Watch

_QUEUES = ("queue", "ready", "spilled", "change/s", "empty in", "oldest", "in flight", "delayed", "dead", "lanes")
_TENANTS = ("tenant", "queue", "ready", "spilled", "change/s", "empty in", "in flight", "delayed", "dead")


def top(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this one; without it, all.")] = None,
    /,
    *,
    every: Annotated[
        float, Parameter(validator=Number(gte=0.1, lte=3600), help="Seconds between two looks, 0.1 to 3600.")
    ] = 2.0,
    once: Annotated[bool, Parameter(negative="", help="Look once, print it, and end.")] = False,
    at: At = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Watch queues and their busiest tenants: what waits, how fast that changes, how old it is, what workers hold.

    Ends with q or Ctrl-C. Without a terminal, and with --json, every look is printed, until Ctrl-C: a line for each
    queue, or for each look. Rates are those between two looks, so the first has none.
    Example: holdfast queue top mail --every 5
    """
    with open_store(at, settings, data_directory) as store:
        if queue is not None:
            store.require(queue)
        watch = Watch(store, queue)
        if once:
            _print(watch.look(), as_json=json)
        elif json or not sys.stdout.isatty():
            _print_all(watch, every, as_json=json)
        else:
            _live(watch, every)


def _queue_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.queues:
        yield (
            one.queue,
            f"{one.ready:,}",
            f"{one.spilled:,}",
            change(one.change),
            age(one.seconds_left),
            age(one.oldest),
            f"{one.leased:,}",
            f"{one.delayed:,}",
            f"{one.dead:,}",
            f"{one.lanes:,}",
        )


def _tenant_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for one in figures.tenants:
        yield (
            one.tenant,
            one.queue,
            f"{one.ready:,}",
            f"{one.spilled:,}",
            change(one.change),
            age(one.seconds_left),
            f"{one.leased:,}",
            f"{one.delayed:,}",
            f"{one.dead:,}",
        )


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
        title = Text(f"{watch.place}, {moment(figures.at)}, every {every:g} s; q ends")
        shown: list[Any] = [title, Text(trouble, style="bold red")]
        shown.append(table(_QUEUES, _queue_rows(figures)) if figures.queues else Text("there is no queue yet"))
        if figures.tenants:
            shown += [Text(), table(_TENANTS, _tenant_rows(figures))]
        return Group(*shown)

    figures = watch.look()
    with Keys() as keys, Live(drawn(figures, ""), console=Console(), screen=True, auto_refresh=False) as live:
        while not keys.is_quit_within(every):
            trouble = ""
            try:
                figures = watch.look()
            except EngineUnavailable as error:
                trouble = str(error)
            live.update(drawn(figures, trouble), refresh=True)

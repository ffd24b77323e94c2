"""`holdfast calls advise`: the timeout that fits measured latencies, and why; the options for pictures."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from cyclopts import Parameter

from holdfast._errors import Conflict, InvalidValue
from holdfast.cli.calls.latencies import Unit, read_latencies
from holdfast.cli.output import Json, new_file, print_json, print_note, print_table

if TYPE_CHECKING:
    from holdfast.simulate import Advice

Item = TypeVar("Item")

Svg: TypeAlias = Annotated[Path | None, Parameter(help="A new file for a picture.")]
Force: TypeAlias = Annotated[bool, Parameter(negative="", help="Overwrite the file of --svg.")]


def draw(path: Path | None, picture: Callable[[], str], *, force: bool) -> None:
    """Write a picture, if one is wanted."""
    if path is None:
        return
    drawn = picture().encode()  # first, so that no empty file stays where it cannot be drawn
    with new_file(path, force=force) as file:
        file.write(drawn)


def check_svg(path: Path | None, *, force: bool) -> None:
    """Refuse at once, and not after a long run, what could not be written then."""
    if path is None and force:
        raise InvalidValue("--force is for the file of --svg")
    if path is not None and path.exists() and not force:
        raise Conflict(f"{path} exists already: remove it, or overwrite it with --force")


def told(items: Iterable[Item], count: int, what: str) -> Iterator[Item]:
    """The same items; at a terminal, how many of them are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=count)
        for item in items:
            progress.advance(task)
            yield item


MOSTLY = 0.5
"""A timeout that cuts off more than this is hardly what was wanted."""


def advise(
    file: Annotated[
        str,
        Parameter(
            name="FILE", allow_leading_hyphen=True, help="Latencies: a number on each line, CSV or JSON lines; or -."
        ),
    ],
    /,
    *,
    column: Annotated[
        str | None, Parameter(help="The column of CSV or the field of JSON, if there are several.")
    ] = None,
    unit: Annotated[Unit, Parameter(help="What the numbers are: s, ms or us.")] = "s",
    percent: Annotated[float, Parameter(help="The percentile that is to be the timeout.")] = 99.9,
    floor: Annotated[float, Parameter(help="Seconds; a timeout is never shorter.")] = 0.01,
    ceiling: Annotated[float, Parameter(help="Seconds; a timeout is never longer.")] = 10.0,
    padding: Annotated[float, Parameter(help="At least the median and this share of it.")] = 1.0,
    network: Annotated[float, Parameter(help="Seconds that are added for clients far away.")] = 0.0,
    rate: Annotated[float | None, Parameter(help="Calls per second: with it, a limit is advised, too.")] = None,
    svg: Svg = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the timeout that fits latencies which were measured, and say why it is that one.

    A request that was cut off is written inf. The picture is how latencies are spread, with the timeout.
    Example: holdfast calls advise latencies.csv --column ms --unit ms
    """
    from holdfast.calls import Percentile
    from holdfast.simulate import advise as advise_on
    from holdfast.simulate import pictures

    policy = Percentile(percent, floor=floor, ceiling=ceiling, padding=padding, network=network)
    check_svg(svg, force=force)
    latencies = read_latencies(file, unit=unit, column=column)
    found = advise_on(latencies, policy, rate=rate)
    draw(svg, lambda: pictures.latencies(found, latencies), force=force)
    if json:
        print_json(_written(found))
    else:
        print_table(("timeout", _told(found.timeout)), list(_facts(found)))
    if found.false_timeouts > MOSTLY:
        print_note(
            f"this would cut off {found.false_timeouts:.0%} of them, because of the ceiling of {ceiling:g} s: "
            "give a higher --ceiling, or say --unit ms if they are milliseconds",
            as_json=json,
        )
    if not found.is_enough:
        print_note(
            f"{found.count:,} latencies are too few to believe it: {found.needed:,} are needed for "
            f"the {percent:g}th percentile",
            as_json=json,
        )


def _written(found: "Advice") -> dict[str, object]:
    written: dict[str, object] = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return written | {"is_enough": found.is_enough}


def _facts(found: "Advice") -> Iterator[tuple[str, str]]:
    yield from (("because", reason) for reason in found.reasons)
    cut = f", {found.cut_off:,} of them cut off" if found.cut_off else ""
    yield "latencies", f"{found.count:,}{cut}; {found.needed:,} are needed"
    for name, seconds in found.percentiles.items():
        yield name, _told(seconds)
    highest = "nobody knows: too few" if found.highest is None else _told(found.highest)
    yield "the percentile is", f"{_told(found.lowest)} to {highest} (95 %)"
    yield "would have cut off", f"{found.false_timeouts:.3%} of these"
    yield "in code", found.code
    if found.limit is not None and found.under_way is not None:
        yield "under way", f"{found.under_way:.3g} on average, by Little's law: rate times {_told(found.mean)}"
        yield "limit in code", f"Limit({found.limit})"


def _told(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1000:.4g} ms"

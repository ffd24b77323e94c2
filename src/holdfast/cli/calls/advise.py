"""`holdfast calls advise`: the timeout that fits measured latencies, and why; how simulations tell their progress."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from holdfast.cli.calls.latencies import Unit, read_latencies
from holdfast.cli.output import (
    NO_PICTURE,
    Json,
    PictureOptions,
    create_progress,
    pick_attributes,
    print_note,
    print_rows,
)

if TYPE_CHECKING:
    from holdfast.simulate import Advice

Item = TypeVar("Item")


def show_progress(items: Iterable[Item], count: int, what: str) -> Iterator[Item]:
    """The same items; at a terminal, how many of them are done."""
    with create_progress() as shown:
        task = shown.add_task(what, total=count)
        for item in items:
            shown.advance(task)
            yield item


MAX_FALSE_TIMEOUTS = 0.5
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
    network_latency: Annotated[float, Parameter(help="Seconds that are added for clients far away.")] = 0.0,
    rate: Annotated[float | None, Parameter(help="Calls per second: with it, a limit is advised, too.")] = None,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Find the timeout that fits latencies which were measured, and say why it is that one.

    A request that was cut off is written inf. The picture is how latencies are spread, with the timeout.
    Example: holdfast calls advise latencies.csv --column ms --unit ms
    """
    from holdfast.calls import Percentile
    from holdfast.simulate import advise as advise_on
    from holdfast.simulate import pictures

    policy = Percentile(percent, floor=floor, ceiling=ceiling, padding=padding, network_latency=network_latency)
    picture.check()
    latencies = read_latencies(file, unit=unit, column=column)
    found = advise_on(latencies, policy, rate=rate)
    picture.draw(lambda: pictures.draw_latencies(found, latencies))
    print_rows(
        pick_attributes(found, *found.__dataclass_fields__, "has_enough_samples"),
        ("timeout", _format_seconds(found.timeout)),
        _facts(found),
        as_json=json,
    )
    if found.false_timeouts > MAX_FALSE_TIMEOUTS:
        print_note(
            f"this would cut off {found.false_timeouts:.0%} of them, because of the ceiling of {ceiling:g} s: "
            "give a higher --ceiling, or say --unit ms if they are milliseconds",
            as_json=json,
        )
    if not found.has_enough_samples:
        print_note(
            f"{found.count:,} latencies are too few to believe it: {found.samples_needed:,} are needed for "
            f"the {percent:g}th percentile",
            as_json=json,
        )


def _facts(found: "Advice") -> Iterator[tuple[str, str]]:
    yield from (("because", reason) for reason in found.reasons)
    cut = f", {found.cut_off:,} of them cut off" if found.cut_off else ""
    yield "latencies", f"{found.count:,}{cut}; {found.samples_needed:,} are needed"
    for name, seconds in found.percentiles.items():
        yield name, _format_seconds(seconds)
    highest = "nobody knows: too few" if found.percentile_high is None else _format_seconds(found.percentile_high)
    yield "the percentile is", f"{_format_seconds(found.percentile_low)} to {highest} (95 %)"
    yield "would have cut off", f"{found.false_timeouts:.3%} of these"
    yield "in code", found.code
    if found.limit is not None and found.in_flight is not None:
        yield (
            "under way",
            f"{found.in_flight:.3g} on average, by Little's law: rate times {_format_seconds(found.mean)}",
        )
        yield "limit in code", f"Limit({found.limit})"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1000:.4g} ms"

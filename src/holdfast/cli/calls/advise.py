"""`holdfast calls advise`: a timeout for measured latencies, with reasons. Also the progress bar of simulations."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from holdfast._names import format_count
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
    """Yield the items, with a progress bar on a terminal."""
    with create_progress() as shown:
        task = shown.add_task(what, total=count)
        for item in items:
            shown.advance(task)
            yield item


MAX_FALSE_TIMEOUTS = 0.5
"""Above this share of false timeouts, the ceiling or the unit is probably wrong."""


def advise(
    file: Annotated[
        str,
        Parameter(
            name="FILE",
            allow_leading_hyphen=True,
            help="File with latencies: a number on each line, CSV or JSON lines; - for standard input.",
        ),
    ],
    /,
    *,
    column: Annotated[
        str | None, Parameter(help="Column of CSV or field of JSON with the latencies, if there are several.")
    ] = None,
    unit: Annotated[Unit, Parameter(help="Unit of the latencies: s, ms or us.")] = "s",
    percent: Annotated[float, Parameter(help="Percentile to use as the timeout.")] = 99.9,
    floor: Annotated[float, Parameter(help="Minimum timeout in seconds.")] = 0.01,
    ceiling: Annotated[float, Parameter(help="Maximum timeout in seconds.")] = 10.0,
    median_margin: Annotated[float, Parameter(help="The timeout is at least the median times 1 + this margin.")] = 1.0,
    network_latency: Annotated[float, Parameter(help="Seconds to add for remote clients.")] = 0.0,
    rate: Annotated[float | None, Parameter(help="Calls per second. With it, a limit is recommended, too.")] = None,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Recommend a timeout for measured latencies, with the reasons.

    Write inf for a request that timed out. The picture shows the distribution of latencies, with the timeout.
    Example: holdfast calls advise latencies.csv --column ms --unit ms
    """
    from holdfast.calls import Percentile
    from holdfast.simulate import advise as advise_on
    from holdfast.simulate import pictures

    policy = Percentile(
        percent, floor=floor, ceiling=ceiling, median_margin=median_margin, network_latency=network_latency
    )
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
            f"{found.false_timeouts:.0%} of these requests would time out, because of the ceiling of {ceiling:g} s: "
            "set a higher --ceiling, or --unit ms if they are milliseconds",
            as_json=json,
        )
    if not found.has_enough_samples:
        print_note(
            f"only {format_count(found.count, 'latency', 'latencies')}: {found.samples_needed:,} are needed for a "
            f"reliable {percent:g}th percentile",
            as_json=json,
        )


def _facts(found: "Advice") -> Iterator[tuple[str, str]]:
    yield from (("because", reason) for reason in found.reasons)
    cut = f", {found.timeouts:,} of them timed out" if found.timeouts else ""
    yield "latencies", f"{found.count:,}{cut}; {found.samples_needed:,} are needed"
    for name, seconds in found.percentiles.items():
        yield name, _format_seconds(seconds)
    highest = "unknown (too few)" if found.percentile_high is None else _format_seconds(found.percentile_high)
    yield "95 % confidence", f"{_format_seconds(found.percentile_low)} to {highest}"
    yield "false timeouts", f"{found.false_timeouts:.3%} of these"
    yield "in code", found.code
    if found.limit is not None and found.in_flight is not None:
        mean = _format_seconds(found.mean)
        yield "in flight", f"{found.in_flight:.3g} on average, by Little's law: rate times {mean}"
        yield "limit in code", f"Limit({found.limit})"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1000:.4g} ms"

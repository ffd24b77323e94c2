"""`holdfast telemetry show`: show the measurements of a workload over time."""

from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from cyclopts import Parameter

from holdfast._clock import SystemClock
from holdfast._errors import NotFound
from holdfast._names import check_workload_name, parse_operation, parse_zone
from holdfast._types import Side
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import Json, print_rows
from holdfast.cli.remote import RemoteServer, read_token
from holdfast.cli.zone import ZONES, ZoneOptions
from holdfast.compose import Databases, require_store
from holdfast.telemetry.query import MeasuredSeries, SeriesAnswer, SeriesPoint, SeriesQuery, limit_time

_BARS = "▁▂▃▄▅▆▇█"
_BAR_COUNT = 30
"""Characters of a small chart: a table of ten columns fits into 120 characters."""


def show(
    workload: Annotated[str, Parameter(name="WORKLOAD", help="The name of a workload.")],
    /,
    *,
    by: Annotated[
        Literal["zone", "operation", "instance"] | None, Parameter(help="One row for each. Default: zone.")
    ] = "zone",
    last: Annotated[str, Parameter(help="How far to look back: 90s, 30m, 24h.")] = "15m",
    step: Annotated[
        str | None, Parameter(help="Length of a point, such as 10s or 1m. Default: one that gives at most 300 points.")
    ] = None,
    operation: Annotated[str | None, Parameter(help="Only this operation, as service/name.")] = None,
    zone: Annotated[str | None, Parameter(help="Only this zone.")] = None,
    instance: Annotated[str | None, Parameter(help="Only this instance. Kept for 15 minutes.")] = None,
    side: Annotated[Side, Parameter(help="Who measured: server, client or canary.")] = Side.SERVER,
    options: ZoneOptions = ZONES,
    json: Json = False,
) -> None:
    """Show requests, faults and latency of a workload: for the last 24 hours at most, without the bin in progress.

    Reads the store of the settings, even while the server is down, or with --server a remote server.
    Example: holdfast telemetry show shop --by operation --zone use1-az2 --last 1h
    """
    now = SystemClock().wall()
    start, end = limit_time(now - parse_duration(last), now, now)
    query = SeriesQuery(
        workload=check_workload_name(workload),
        start=start,
        end=end,
        by=by,
        operation=None if operation is None else parse_operation(operation),
        zone=None if zone is None else parse_zone(zone),
        instance=instance,
        side=side,
        step=None if step is None else parse_duration(step),
    )
    answer = _ask(query, options, now)
    if not answer.series and not json:
        given = {"zone": zone, "operation": operation, "instance": instance, "side": side}
        chosen = ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)
        print(f"no measurements of {workload} in the last {last} ({chosen})")
        return
    print_rows(
        answer,
        (
            by or "total",
            "requests",
            "per second",
            "peak",
            "faults",
            "p50",
            "p90",
            "p99",
            "requests over time",
            "faults",
        ),
        [_build_row(series) for series in answer.series],
        as_json=json,
    )


def _ask(query: SeriesQuery, options: ZoneOptions, now: float) -> SeriesAnswer:
    if options.server is not None:
        given = {
            "workload": query.workload,
            "by": query.by,
            "operation": query.operation,
            "zone": query.zone,
            "instance": query.instance,
            "side": query.side,
            "start": query.start,
            "end": query.end,
            "step": query.step,
        }
        path = f"/v1/series?{urlencode({name: value for name, value in given.items() if value is not None})}"
        return RemoteServer(options.server, read_token()).request("GET", path, SeriesAnswer)
    from holdfast.telemetry.history import SUBSYSTEM, answer_from  # imports NumPy

    values = options.load()
    zones = {each.name: each.zones for each in values.workload}
    if query.workload not in zones:
        expected = f"expected one of {', '.join(zones)}" if zones else "they have no [[workload]]"
        raise NotFound(f"there is no workload {query.workload} in the settings: {expected}")
    if query.zone is not None and query.zone not in zones[query.workload]:
        known = ", ".join(zones[query.workload])
        raise NotFound(f"workload {query.workload} has no zone {query.zone}: expected one of {known}")
    require_store(values, SUBSYSTEM, hint=", or name a running server with --server")
    with Databases(values) as databases:
        return answer_from(databases.database(SUBSYSTEM), query, values.telemetry.bin_seconds, now)


def _build_row(series: MeasuredSeries) -> Sequence[str]:
    total, points = series.total, series.points
    return (
        series.label or "",
        f"{total.requests:,}",
        f"{total.rate:,.1f}",
        "" if total.peak is None else f"{total.peak:,}/s",
        "" if total.fault_share is None else f"{total.fault_share:.2%}",
        *(_format_latency(value, total) for value in (total.p50, total.p90, total.p99)),
        draw_bars([point.rate for point in points]),
        draw_bars([point.fault_share or 0.0 for point in points], top=1.0),
    )


def _format_latency(seconds: float | None, point: SeriesPoint) -> str:
    if seconds is None:
        return ""
    return f"{'about ' if point.is_coarse else ''}{seconds * 1000:,.0f} ms"


def draw_bars(values: Sequence[float], top: float | None = None) -> str:
    """Return a small chart of the values, oldest first: a bar for several of them, if there are many.

    A full bar is `top`, or the largest value.
    """
    size = -(-len(values) // _BAR_COUNT) or 1
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    means = [sum(group) / len(group) for group in groups]
    full = top or max(means, default=0.0) or 1.0
    # A value above nothing shows at least the second bar, so that few faults are not invisible.
    return "".join(
        _BARS[min(len(_BARS) - 1, max(int(mean > 0), round(mean / full * (len(_BARS) - 1))))] for mean in means
    )

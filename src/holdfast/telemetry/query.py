"""A question about the measurements of the last day, and its answer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Zone
from holdfast.telemetry.bins import LONG_TERM, MINUTE
from holdfast.telemetry.collector import MAX_AHEAD_SECONDS

_MAX_SECONDS = 1e11
"""A time in the year 5138. Computing with larger ones could overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """A question about the measurements of one workload from `start` up to `end`."""

    workload: str
    start: float
    end: float
    by: str | None = None
    """`zone`, `operation` or `instance`: one series for each. None means one series."""
    operation: Operation | None = None
    zone: Zone | None = None
    instance: str | None = None
    side: Side = Side.SERVER
    step: float | None = None
    """Seconds of each point. None chooses one that gives at most 300 points."""

    @property
    def is_by_instance(self) -> bool:
        """Whether the answer needs measurements by instance, which are kept for 15 minutes."""
        return self.by == "instance" or self.instance is not None

    def __post_init__(self) -> None:
        if self.by not in (None, "zone", "operation", "instance"):
            raise InvalidValue(f"by is {self.by!r}: expected zone, operation or instance")
        if not -_MAX_SECONDS < self.start < self.end < _MAX_SECONDS:
            raise InvalidValue(
                f"start is {self.start:.16g} and end is {self.end:.16g}: expected seconds since the epoch, and an end "
                "after the start"
            )
        if self.step is not None and not 0 < self.step < _MAX_SECONDS:
            raise InvalidValue(f"step is {self.step:g}: expected more than 0 seconds")


def limit_time(start: float, end: float, now: float) -> tuple[float, float]:
    """Return the part of a time for which measurements are kept, or the time itself if none are.

    The default step of a query follows its time. Without a limit, a query for all measurements would get one point.
    """
    first, last = max(start, now - LONG_TERM - MINUTE), min(end, now + MAX_AHEAD_SECONDS)
    return (first, last) if first < last else (start, end)


class SeriesPoint(Struct, frozen=True):
    """The measurements of one series in one step of time."""

    start: float
    requests: int
    faults: int
    rate: float
    """Requests per second."""
    fault_share: float | None
    """Share of requests that count against availability; None without requests."""
    peak: int | None
    """The most requests in one second; None if the point is the sum of several series."""
    p50: float | None
    """Percentiles of the latency of requests without 5xx, in seconds; None without such requests."""
    p90: float | None
    p99: float | None
    is_coarse: bool = False
    """Whether percentiles are rough, because the source has wide buckets."""


class MeasuredSeries(Struct, frozen=True):
    """One series of an answer."""

    label: str | None
    """The zone, operation or instance, by which the query groups; None if it does not."""
    total: SeriesPoint
    """The whole time in one point."""
    points: Sequence[SeriesPoint]
    """Oldest first. There is no point for a time without any stored bin, such as a time when the server was down."""


class SeriesAnswer(Struct, frozen=True):
    """The answer to a query."""

    workload: str
    step: float
    series: Sequence[MeasuredSeries]

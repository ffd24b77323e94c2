"""The measurements of one series in one span of time, and the deltas that telemetry sources deliver. Pure.

A bin is a span of the clock, ten seconds by default: bins of several servers cover the same spans. Every source, of
whatever format, delivers BinDeltas. `collector.py` adds them up.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from holdfast._types import Operation, Outcome, Side, Zone
from holdfast.metrics.histogram import Histogram

BIN_SECONDS = 10.0
"""Default length of a bin, in seconds: three fit in half a minute, and one has 100 requests at 10 per second."""
MINUTE = 60.0
"""Length of the bins that are kept for a day, in seconds."""
SHORT_TERM = 900.0
"""Seconds that bins with instances are kept: a verdict takes less than a minute."""
MEDIUM_TERM = 3600.0
"""Seconds that bins of less than a minute are kept over all instances: a detector learns from them after a start."""
LONG_TERM = 86_400.0
"""Seconds that bins of a minute are kept: a day, because traffic repeats daily."""
MAX_REQUESTS = 10**9
"""Maximum requests in one delta. No instance answers more in a minute, so a larger count is an error of the source."""


class BinKey(Struct, frozen=True, cache_hash=True, gc=False):
    """The labels of a series: measurements with the same labels are added up."""

    workload: str
    operation: Operation
    zone: Zone
    instance: str
    """The host or container; "" in measurements of all instances of a zone together."""
    side: Side


class Bin(Struct, gc=False):
    """Counts of requests, and their latencies."""

    count_2xx: int = 0
    count_3xx: int = 0
    count_4xx: int = 0
    count_5xx: int = 0
    faults: int = 0
    """Requests that count against availability, by the workload's `fault_statuses`: normally those with 5xx."""
    success_seconds: Histogram = field(default_factory=Histogram)
    """Latencies of requests with other statuses than 5xx."""
    fault_seconds: Histogram = field(default_factory=Histogram)
    """Latencies of requests with 5xx."""
    by_second: dict[int, int] = {}
    """Requests in each second since the epoch; empty if the source does not know them."""
    is_coarse: bool = False
    """Whether a latency comes from wide buckets of the source, so that its percentiles are rough."""

    @property
    def requests(self) -> int:
        return self.count_2xx + self.count_3xx + self.count_4xx + self.count_5xx

    def add_request(self, second: int, status_class: int, seconds: float | None, *, is_fault: bool) -> None:
        """Add one request."""
        if status_class == 2:
            self.count_2xx += 1
        elif status_class == 5:
            self.count_5xx += 1
        elif status_class == 4:
            self.count_4xx += 1
        else:
            self.count_3xx += 1
        if is_fault:
            self.faults += 1
        if seconds is not None:
            (self.fault_seconds if status_class == 5 else self.success_seconds).add(seconds)
        self.by_second[second] = self.by_second.get(second, 0) + 1

    def merge(self, other: "Bin") -> None:
        """Add the measurements of `other`."""
        self.count_2xx += other.count_2xx
        self.count_3xx += other.count_3xx
        self.count_4xx += other.count_4xx
        self.count_5xx += other.count_5xx
        self.faults += other.faults
        self.success_seconds.merge(other.success_seconds)
        self.fault_seconds.merge(other.fault_seconds)
        for second, count in other.by_second.items():
            self.by_second[second] = self.by_second.get(second, 0) + count
        self.is_coarse = self.is_coarse or other.is_coarse


class BinDelta(Struct, frozen=True, gc=False):
    """A change to one bin, as telemetry sources deliver it."""

    key: BinKey
    start: float
    seconds: float
    """Resolution of the source: `measured` covers this many seconds from `start` on."""
    measured: Bin
    replaces: bool = False
    """Whether `measured` replaces the bin's content, as for a source that reports totals, or is added to it."""


RequestRow: TypeAlias = tuple[BinKey, int, int, bool, float | None]
"""One request: its labels, its second since the epoch, its class of status (2 to 5), whether it is a fault, and its
latency in seconds, if that is known.

Most records of telemetry are single requests. A row for each takes a fifth of the time that a BinDelta takes.
"""


def bin_number(at: float, seconds: float) -> int:
    """Return the number of the bin that contains the time `at`. A bin includes its start, despite float rounding."""
    return math.floor(at / seconds + 1e-6)


def sum_requests(rows_by_bin: Mapping[int, Iterable[RequestRow]], seconds: float) -> list[BinDelta]:
    """Sum single requests, by the number of their bin, into deltas, to be added to bins of `seconds` seconds."""
    found: dict[tuple[BinKey, int], Bin] = defaultdict(Bin)
    for number, rows in rows_by_bin.items():
        for key, second, status_class, is_fault, took in rows:
            found[key, number].add_request(second, status_class, took, is_fault=is_fault)
    return [BinDelta(key, number * seconds, seconds, measured) for (key, number), measured in found.items()]


def build_deltas(outcomes: Iterable[Outcome], seconds: float) -> list[BinDelta]:
    """Sum outcomes into deltas, to be added to bins of `seconds` seconds. Skip outcomes with `is_ignored`."""
    found: dict[tuple[BinKey, int], Bin] = defaultdict(Bin)
    for outcome in outcomes:
        if not outcome.is_ignored:
            key = BinKey(outcome.workload, outcome.operation, outcome.zone, outcome.instance, outcome.side)
            _add_outcome(found[key, bin_number(outcome.at, seconds)], outcome)
    return [BinDelta(key, number * seconds, seconds, measured) for (key, number), measured in found.items()]


def _add_outcome(measured: Bin, outcome: Outcome) -> None:
    count = outcome.count_2xx + outcome.count_3xx + outcome.count_4xx + outcome.count_5xx
    measured.merge(
        Bin(
            outcome.count_2xx,
            outcome.count_3xx,
            outcome.count_4xx,
            outcome.count_5xx,
            outcome.count_5xx,
            Histogram.of(outcome.success_seconds),
            Histogram.of(outcome.fault_seconds),
            {int(outcome.at): count},
        )
    )

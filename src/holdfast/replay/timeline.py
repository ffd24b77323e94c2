"""Put recorded rows into bins, oldest first, as the live loop would have seen them. Pure. Needs NumPy."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from holdfast._errors import InvalidValue
from holdfast.replay.rows import Rows, concatenate
from holdfast.telemetry.collector import DEFAULT_LATENESS, GRACE_SECONDS, MAX_AHEAD_SECONDS

HORIZON_SECONDS = 900.0
"""How much older than a row before it a row may be. Files are sorted by time or by arrival, with few exceptions."""
MIN_BIN_SECONDS, MAX_BIN_SECONDS = 0.5, 600.0
MAX_GAP_SECONDS = 86_400.0
"""A longer time without any row is skipped: the recording was paused."""


class OutOfOrder(Exception):
    """A row is older than a bin that was complete. Only with a longer horizon can its file be replayed."""


@dataclass(frozen=True, slots=True)
class RecordedBin:
    """The rows of one bin, of all workloads."""

    start: float
    seconds: float
    rows: Rows | None
    """Rows that arrived in time for a verdict; None if there were none."""
    late: Rows | None = None
    """Rows that arrived later, but early enough for stored series, and so for alarms."""

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def arrived(self) -> float:
        """When the last row in time arrived: at the end of the bin if that is not recorded."""
        if self.rows is None or np.all(np.isnan(self.rows.arrived)):
            return self.end
        return float(np.nanmax(self.rows.arrived))


@dataclass(slots=True)
class Timeline:
    """The rows that are not complete bins yet."""

    seconds: float
    horizon: float = HORIZON_SECONDS
    lost_requests: int = 0
    """Requests whose rows arrived too late for a verdict."""
    skipped_seconds: float = 0.0
    """Time without any row that was too long for empty bins."""
    _held: list[Rows] = field(default_factory=list)
    _next: int | None = None

    def add(self, rows: Rows, watermark: float) -> Iterator[RecordedBin]:
        """Add rows, and yield the bins that are complete. All later rows are at most `horizon` before `watermark`."""
        self._held.append(rows)
        if watermark - self.horizon > -math.inf:
            yield from self._pop(math.floor((watermark - self.horizon) / self.seconds + 1e-6))

    def finish(self) -> Iterator[RecordedBin]:
        """Yield the remaining bins."""
        yield from self._pop(None)

    def _pop(self, end: int | None) -> Iterator[RecordedBin]:
        """Yield the bins before the number `end`."""
        if not self._held:
            return
        rows = concatenate(self._held)
        numbers = np.floor(rows.starts / self.seconds + 1e-6).astype(np.int64)
        if np.any(np.diff(numbers) < 0):
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows.take(order), numbers[order]
        if self._next is not None and numbers[0] < self._next:
            raise OutOfOrder
        limit = len(numbers) if end is None else int(np.searchsorted(numbers, end))
        self._held = [rows.slice(limit, len(numbers))] if limit < len(numbers) else []
        if not limit:
            return
        found, begins = np.unique(numbers[:limit], return_index=True)
        ends = [*begins[1:].tolist(), limit]
        for number, begin, stop in zip(found.tolist(), begins.tolist(), ends, strict=True):
            yield from self._fill_gap(number)
            yield self._build(number, rows.slice(begin, stop))
            self._next = number + 1

    def _fill_gap(self, number: int) -> Iterator[RecordedBin]:
        if self._next is None:
            return
        gap = (number - self._next) * self.seconds
        if gap > MAX_GAP_SECONDS:
            self.skipped_seconds += gap
            return
        for empty in range(self._next, number):
            yield RecordedBin(empty * self.seconds, self.seconds, None)

    def _build(self, number: int, rows: Rows) -> RecordedBin:
        start, end = number * self.seconds, (number + 1) * self.seconds
        arrived = rows.arrived
        with np.errstate(invalid="ignore"):  # NaN is on time
            is_late = arrived > end + GRACE_SECONDS
            is_usable = is_late & (arrived <= end + DEFAULT_LATENESS)
            is_dropped = arrived < start - MAX_AHEAD_SECONDS
        if not np.any(is_late | is_dropped):
            return RecordedBin(start, self.seconds, rows)
        self.lost_requests += int(rows.requests[is_late | is_dropped].sum())
        parts = [np.flatnonzero(each) for each in (~(is_late | is_dropped), is_usable)]
        in_time, late = (rows.take(part) if len(part) else None for part in parts)
        return RecordedBin(start, self.seconds, in_time, late)


def find_bin_seconds(rows: Rows) -> float | None:
    """Return the length of a bin: the most frequent time between two rows of a series. None if no series has two."""
    order = np.lexsort((rows.starts, rows.numbers))
    starts, numbers = rows.starts[order], rows.numbers[order]
    steps = np.round(np.diff(starts)[np.diff(numbers) == 0], 3)
    lengths, counts = np.unique(steps[(steps >= MIN_BIN_SECONDS) & (steps <= MAX_BIN_SECONDS)], return_counts=True)
    return float(lengths[np.argmax(counts)]) if len(lengths) else None


def check_bin_seconds(rows: Rows, seconds: float) -> None:
    """Raise InvalidValue if rows that are a fixed time apart cannot be put into bins of this length."""
    apart = find_bin_seconds(rows)
    if apart is None:
        return
    steps = (rows.starts - rows.starts[0]) / apart
    if np.any(np.abs(steps - np.rint(steps)) > 1e-3):
        return  # rows at any time fit bins of any length
    ratio = max(apart, seconds) / min(apart, seconds)
    if not math.isclose(ratio, round(ratio), rel_tol=1e-6):
        raise InvalidValue(
            f"rows are {apart:g} s apart; --bin-seconds {seconds:g} does not fit: "
            f"leave it out, or use a multiple of {apart:g}"
        )

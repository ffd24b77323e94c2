"""Collect deltas into bins until each bin is complete. Pure.

Deltas arrive late and out of order. Detectors judge a bin soon after its end, so its measurements have three outcomes:
*on time* if they arrive before that; *late* if they arrive within the allowance of their source, which adds them to the
stored series but not to a verdict; and *too late* after that, or *too early* if they are dated in the future. The last
two are counted and dropped. Measurements from before the start are late for an hour: nobody has judged them, and a
detector can learn from them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast.telemetry.bins import BIN_SECONDS, MEDIUM_TERM, MINUTE, Bin, BinDelta, BinKey, RequestRow, bin_number
from holdfast.telemetry.series import SeriesTable

GRACE_SECONDS = 1.5
"""How long after its end a bin waits for late deltas: senders batch for up to half a second."""
MAX_AHEAD_SECONDS = 60.0
"""How far ahead a delta may be dated. Clocks of hosts differ by less than a second, or are wrong by hours."""
DEFAULT_LATENESS = 60.0
"""How long after its end a bin accepts deltas of a source that has no allowance of its own."""
MAX_LATENESS = 600.0
"""Maximum allowance of a source: bins that can be amended are kept for 15 minutes."""
MAX_EMPTY_BINS = 60
"""Maximum number of empty bins that one call returns, after a jump of the clock or a long pause of the machine."""


class Arrivals(Struct):
    """The number of requests that arrived, by outcome."""

    on_time: int = 0
    late: int = 0
    """Added to the stored series, but after their bin was judged."""
    too_late: int = 0
    too_early: int = 0
    """Dated in the future."""
    overflowed: int = 0
    """Requests counted as `other` because of a limit. They are also counted as on time or late."""

    def merge(self, other: "Arrivals") -> None:
        """Add the requests of `other`."""
        self.on_time += other.on_time
        self.late += other.late
        self.too_late += other.too_late
        self.too_early += other.too_early
        self.overflowed += other.overflowed


@dataclass(slots=True)
class Amendment:
    """Late measurements of a bin that is complete."""

    added: dict[BinKey, Bin] = field(default_factory=dict)
    replaced: dict[BinKey, Bin] = field(default_factory=dict)
    """The whole new content of some series. Measurements in `added` are added to it."""


class Collector:
    """The bins that are not complete yet. Not thread-safe."""

    def __init__(self, table: SeriesTable, seconds: float = BIN_SECONDS) -> None:
        if not 0.5 <= seconds <= 600:
            raise InvalidValue(f"bins of {seconds:g} seconds: expected 0.5 to 600")
        self.seconds = seconds
        self.minute = max(MINUTE, seconds)
        """Length of the bins for measurements of a resolution above `seconds`."""
        self._table = table
        self._open: dict[int, dict[BinKey, Bin]] = defaultdict(dict)
        self._completed: int | None = None
        self._before_start = 0
        """The number of the last bin that ended before the start."""
        self._late: dict[int, Amendment] = defaultdict(Amendment)
        self._late_minutes: dict[int, Amendment] = defaultdict(Amendment)

    def require_resolution(self, seconds: float) -> None:
        """Raise InvalidValue if measurements of this resolution fit into no bin."""
        if not 0 < seconds <= self.minute:
            raise InvalidValue(f"measurements of {seconds:g} s: expected at most {self.minute:g} s")

    def add(self, deltas: Iterable[BinDelta], now: float, lateness: float = DEFAULT_LATENESS) -> Arrivals:
        """Add deltas that arrive at `now`, from a source whose deltas may be late by `lateness` seconds.

        The collector keeps `measured` of the deltas, and changes it. A source whose deltas replace others passes all
        deltas of a bin in one call: only then the sum of those beyond a limit is right. Raise InvalidValue, and add
        nothing more, if a delta covers more than a minute.
        """
        arrivals, seconds = Arrivals(), self.seconds
        completed = self._start(now)
        too_late = now - min(max(lateness, GRACE_SECONDS), MAX_LATENESS)
        too_early = now + MAX_AHEAD_SECONDS
        overflowed: set[tuple[bool, int, BinKey]] = set()
        for delta in deltas:
            start, measured, replaces = delta.start, delta.measured, delta.replaces
            requests = measured.requests
            if start > too_early:
                arrivals.too_early += requests
                continue
            is_long = delta.seconds > seconds
            if is_long:
                self.require_resolution(delta.seconds)
            length = self.minute if is_long else seconds
            number = bin_number(start, length)
            is_judged = is_long or number <= completed
            is_earlier = number <= self._before_start and not is_long and not replaces
            if is_judged and (number + 1) * length < (now - MEDIUM_TERM if is_earlier else too_late):
                arrivals.too_late += requests
                continue
            key = self._table.admit(delta.key, requests)
            if key is not delta.key:
                arrivals.overflowed += requests
                # Several series become one: the first of a call replaces its content, the others are added to that.
                replaces = replaces and (is_long, number, key) not in overflowed
                overflowed.add((is_long, number, key))
            if is_judged:
                arrivals.late += requests
                amendment = (self._late_minutes if is_long else self._late)[number]
                if replaces:
                    amendment.added.pop(key, None)
                    amendment.replaced[key] = measured
                else:
                    _add(amendment.added, key, measured)
            else:
                arrivals.on_time += requests
                bins = self._open[number]
                if replaces:
                    bins[key] = measured
                else:
                    _add(bins, key, measured)
        return arrivals

    def add_requests(
        self, rows_by_bin: Mapping[int, Sequence[RequestRow]], now: float, lateness: float = DEFAULT_LATENESS
    ) -> Arrivals:
        """Add single requests, by the number of their bin, that arrive at `now`. Otherwise the same as `add`."""
        arrivals, admit = Arrivals(), self._table.admit
        for number, rows in rows_by_bin.items():
            outcome, bins = self._find_bins(number, now, lateness)
            setattr(arrivals, outcome, getattr(arrivals, outcome) + len(rows))
            if bins is None:
                continue
            for key, second, status_class, is_fault, seconds in rows:
                measured = bins.get(key)
                if measured is None:
                    admitted = admit(key, 1)
                    arrivals.overflowed += admitted is not key
                    measured = bins.get(admitted)
                    if measured is None:
                        measured = bins[admitted] = Bin()
                measured.add_request(second, status_class, seconds, is_fault=is_fault)
        return arrivals

    def _find_bins(self, number: int, now: float, lateness: float) -> tuple[str, dict[BinKey, Bin] | None]:
        """Return the outcome of requests in a bin, and the bins to add them to, or None to drop them."""
        if number * self.seconds > now + MAX_AHEAD_SECONDS:
            return "too_early", None
        if number > self._start(now):
            return "on_time", self._open[number]
        allowance = min(max(lateness, GRACE_SECONDS), MAX_LATENESS)
        if (number + 1) * self.seconds < now - (MEDIUM_TERM if number <= self._before_start else allowance):
            return "too_late", None
        return "late", self._late[number].added

    def pop_complete(self, now: float) -> list[tuple[int, dict[BinKey, Bin]]]:
        """Return the bins completed since the last call, with their numbers, oldest first; empty ones too."""
        newest = int((now - GRACE_SECONDS) // self.seconds) - 1
        self._completed = self._start(now)
        if newest < self._completed - 1:
            # The clock was set back: bins in the future were counted by the old clock.
            self._completed = newest
            for number in [number for number in self._open if number > newest]:
                del self._open[number]
        # After a jump ahead, or a long pause of the machine, old bins are useless.
        self._completed = max(self._completed, newest - MAX_EMPTY_BINS)
        finished = []
        while self._completed < newest:
            self._completed += 1
            finished.append((self._completed, self._open.pop(self._completed, {})))
        for number in [number for number in self._open if number <= newest]:
            del self._open[number]
        return finished

    def pop_late(self) -> Mapping[int, Amendment]:
        """Return the late measurements since the last call, by the number of their bin."""
        found, self._late = self._late, defaultdict(Amendment)
        return found

    def pop_late_minutes(self) -> Mapping[int, Amendment]:
        """Return the measurements that cover more than a bin since the last call, by the number of their minute."""
        found, self._late_minutes = self._late_minutes, defaultdict(Amendment)
        return found

    def _start(self, now: float) -> int:
        """Return the number of the last bin that was reported as complete, at first that of the last one to end.

        Bins from before the start may be stored already. So measurements of them are late, and are added to them.
        """
        if self._completed is None:
            self._completed = self._before_start = bin_number(now, self.seconds) - 1
        return self._completed


def _add(bins: dict[BinKey, Bin], key: BinKey, measured: Bin) -> None:
    known = bins.get(key)
    if known is None:
        bins[key] = measured
    else:
        known.merge(measured)

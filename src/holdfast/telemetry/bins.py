"""Sum measurements in bins of ten seconds, by workload, operation, zone, instance and side. Pure.

Every telemetry source delivers its measurements as BinDeltas. Bins are aligned to the clock, so that bins of several
servers can be compared. Deltas arrive late and out of order. A bin is complete some seconds after its end; deltas that
arrive later are counted as late and ignored.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Outcome, Side, Zone
from holdfast.metrics.histogram import Histogram

BIN_SECONDS = 10.0
"""Default length of a bin, in seconds: three fit in half a minute, and one has 100 requests at 10 per second."""

GRACE_SECONDS = 1.5
"""How long after its end a bin waits for late deltas: senders batch for up to half a second."""

MAX_EMPTY_BINS = 60
"""Maximum number of empty bins that one call returns, after a jump of the clock or a long pause of the machine."""


@dataclass(frozen=True, slots=True)
class BinKey:
    """The labels of a bin."""

    workload: str
    operation: Operation
    zone: Zone
    instance: str
    side: Side


@dataclass(slots=True)
class Bin:
    """Counts of requests, and their latencies."""

    requests: int = 0
    faults: int = 0
    client_errors: int = 0
    success_seconds: Histogram = field(default_factory=Histogram)
    fault_seconds: Histogram = field(default_factory=Histogram)

    def add(self, outcome: Outcome) -> None:
        self.requests += outcome.count_2xx + outcome.count_3xx + outcome.count_4xx + outcome.count_5xx
        self.faults += outcome.count_5xx
        self.client_errors += outcome.count_4xx
        for seconds in outcome.success_seconds:
            self.success_seconds.add(seconds)
        for seconds in outcome.fault_seconds:
            self.fault_seconds.add(seconds)

    def merge(self, other: "Bin") -> None:
        self.requests += other.requests
        self.faults += other.faults
        self.client_errors += other.client_errors
        self.success_seconds.merge(other.success_seconds)
        self.fault_seconds.merge(other.fault_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinDelta:
    """A change to one bin, as telemetry sources deliver it."""

    key: BinKey
    start: float
    seconds: float
    """Duration of the measurements, from `start` on: at most the length of a bin."""
    measured: Bin
    replaces: bool = False
    """Whether `measured` replaces the bin's content, as for a source that reports totals, or is added to it."""


def bin_number(at: float, seconds: float) -> int:
    """Return the number of the bin that contains the time `at`. A bin includes its start, despite float rounding."""
    return math.floor(at / seconds + 1e-6)


def build_deltas(outcomes: Iterable[Outcome], seconds: float) -> list[BinDelta]:
    """Sum outcomes into deltas, to be added to bins of `seconds` seconds. Skip outcomes with `is_ignored`."""
    found: dict[tuple[BinKey, int], Bin] = defaultdict(Bin)
    for outcome in outcomes:
        if not outcome.is_ignored:
            key = BinKey(outcome.workload, outcome.operation, outcome.zone, outcome.instance, outcome.side)
            found[key, bin_number(outcome.at, seconds)].add(outcome)
    return [
        BinDelta(key=key, start=number * seconds, seconds=seconds, measured=measured)
        for (key, number), measured in found.items()
    ]


class Bins:
    """The bins of the last minutes. Not thread-safe."""

    def __init__(self, seconds: float = BIN_SECONDS) -> None:
        if not 0.5 <= seconds <= 600:
            raise InvalidValue(f"bins of {seconds:g} seconds: expected 0.5 to 600")
        self.seconds = seconds
        self.late_requests = 0
        """Requests that arrived after their bin was complete, or were dated too far in the future."""
        self._bins: dict[int, dict[BinKey, Bin]] = defaultdict(lambda: defaultdict(Bin))
        self._completed: int | None = None

    def check_fits(self, delta: BinDelta) -> None:
        """Raise InvalidValue if a delta covers more time than a bin."""
        if delta.seconds > self.seconds:
            raise InvalidValue(
                f"measurements of {delta.seconds:g} s do not fit into bins of {self.seconds:g} s: "
                "set telemetry.bin_seconds to at least that"
            )

    def add(self, delta: BinDelta, now: float) -> None:
        """Apply a delta to the bin of its time. Raise InvalidValue if it covers more time than a bin."""
        self.check_fits(delta)
        number = bin_number(delta.start, self.seconds)
        if (self._completed is not None and number <= self._completed) or delta.start > now + self.seconds:
            self.late_requests += delta.measured.requests
            return
        if delta.replaces:
            self._bins[number].pop(delta.key, None)
        self._bins[number][delta.key].merge(delta.measured)

    def pop_complete(self, now: float) -> Iterable[tuple[float, dict[BinKey, Bin]]]:
        """Return the bins completed since the last call, with their starts, oldest first; empty ones too."""
        newest = int((now - GRACE_SECONDS) // self.seconds) - 1
        if self._completed is None:
            self._completed = min([newest, *(number - 1 for number in self._bins)])
        if newest < self._completed - 1:
            # The clock was set back: bins in the future were counted by the old clock.
            self._completed = newest
            for number in [number for number in self._bins if number > newest]:
                del self._bins[number]
        # After a jump ahead, or a long pause of the machine, old bins are useless.
        self._completed = max(self._completed, newest - MAX_EMPTY_BINS)
        finished = []
        while self._completed < newest:
            self._completed += 1
            finished.append((self._completed * self.seconds, dict(self._bins.pop(self._completed, {}))))
        for number in [number for number in self._bins if number <= newest]:
            del self._bins[number]
        return finished

"""Counts of calls for CloudWatch, as lines of its embedded metric format: a few a minute, not one for each attempt.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
Whatever is logged is paid by size, and each combination of a metric with its dimensions by the month.
"""

import logging
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Self, TextIO

import msgspec

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying
from holdfast.calls.failure import Kind
from holdfast.calls.forks import renew_after_fork
from holdfast.calls.sinks.names import Names

__all__ = ["EmfSink"]

log = logging.getLogger(__name__)

MOST_VALUES = 100
"""Of one metric in one line: CloudWatch's limit."""
MOST_DIMENSIONS = 30
"""Of one set: CloudWatch's limit; two of them are the dependency and the operation."""
LONGEST_DIMENSION = 1024
LONGEST_DIMENSION_NAME = 250
MOST_OPERATIONS = 200
"""Operations with metrics of their own; at seven metrics each, they are what is paid for."""
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#: -]{0,254}")
_DIMENSION_NAME = re.compile(r"[!-9;-~][ -~]{0,249}")
SHORTEST = 1e-6
"""Seconds; what took less is counted with it, where there are many."""
STEP = math.log(1.03)
"""Between two buckets, where there are many: as wide as those that timeouts are learned from."""
COUNTS = ("Attempts", "Failures", "Timeouts", "Throttles", "Retries", "GaveUp")
LATENCY = "AttemptLatency"
EXHAUSTED = "BudgetExhausted"


class Spread:
    """How long things took, as at most a hundred values: each of them, or percentiles if there were more. Pure."""

    __slots__ = ("_few", "_many", "_most")

    def __init__(self) -> None:
        self._few: list[float] = []
        self._many: Counter[int] | None = None  # by the logarithm
        self._most = 0.0

    def add(self, seconds: float) -> None:
        self._most = max(self._most, seconds)
        if self._many is not None:
            self._many[_bucket(seconds)] += 1
            return
        self._few.append(seconds)
        if len(self._few) > MOST_VALUES:
            self._many = Counter(map(_bucket, self._few))

    def values(self) -> list[float]:
        """Seconds, in order; the longest is always exact."""
        if self._many is None:
            return sorted(self._few)
        # In one pass, because it is the thread of some call that pays for it.
        found: list[float] = []
        count = MOST_VALUES - 1
        total = self._many.total()
        seen = 0
        for bucket, inside in sorted(self._many.items()):
            seen += inside
            middle = min(math.exp(bucket * STEP), self._most)
            while len(found) < count and (len(found) + 0.5) / count * total <= seen:
                found.append(middle)
        return [*found, self._most]


def _bucket(seconds: float) -> int:
    return round(math.log(max(seconds, SHORTEST)) / STEP)


class Tally:
    """The counts of one operation."""

    __slots__ = ("counts", "spread")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.spread = Spread()

    def add(self, event: Attempted | Retrying | GaveUp) -> None:
        """Count one event."""
        match event:
            case Attempted():
                self.counts["Attempts"] += 1
                self.counts["Failures"] += event.failure is not None
                self.counts["Timeouts"] += event.failure is Kind.TIMEOUT
                self.counts["Throttles"] += event.failure is Kind.THROTTLED
                self.spread.add(event.seconds)
            case Retrying():
                self.counts["Retries"] += 1
            case GaveUp():
                self.counts["GaveUp"] += 1


class Counted:
    """All that is counted until lines are written."""

    __slots__ = ("exhausted", "since", "tallies")

    def __init__(self) -> None:
        self.since = 0.0
        self.tallies: dict[tuple[str, str], Tally] = {}
        self.exhausted: Counter[str] = Counter()


class EmfSink:
    """Writes a line for each operation that was called, every `every` seconds, to a stream or a function.

    Dimensions are `Dependency` and `Operation`, and those that are given; with `rollup`, every metric is there for the
    dependency as a whole as well. Lines are written by the first event after the time is over, in the thread that it
    comes from; `flush` and `close` write what is left, as the end of a Lambda invocation should. What cannot be written
    is dropped, and counted in `dropped`. Thread-safe; a forked child begins at nothing.
    """

    def __init__(
        self,
        to: TextIO | Callable[[str], object],
        *,
        namespace: str,
        every: float = 60.0,
        dimensions: Mapping[str, str] | None = None,
        rollup: bool = False,
        most_operations: int = MOST_OPERATIONS,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidValue(
                f"namespace {namespace!r}: expected 1 to 255 letters, digits and ._-/#: that do not begin with AWS/"
            )
        if not 0 < every < math.inf:
            raise InvalidValue(f"lines every {every} seconds: expected more than 0")
        self._fixed = _fixed(dimensions or {})
        self._write = to if callable(to) else _writer(to)
        self._namespace = namespace
        self._every = every
        self._rollup = rollup
        self._most = most_operations
        self._clock = clock
        self.dropped = 0
        """Lines that could not be written."""
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin at nothing, in the child of a fork."""
        self._lock = threading.Lock()
        self._names = Names(self._most)
        self._begin()

    def emit(self, event: CallEvent) -> None:
        with self._lock:
            taken = self._take() if self._clock.monotonic() >= self._over else None
            self._count(event)
        if taken is not None:
            self._write_all(self._lines(taken))

    def flush(self) -> None:
        """Write what was counted since the last lines."""
        with self._lock:
            taken = self._take()
        self._write_all(self._lines(taken))

    def close(self) -> None:
        """The same, at the end. May be repeated."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._over = math.inf
        self._counted = Counted()

    def _count(self, event: CallEvent) -> None:
        match event:
            case Attempted() | Retrying() | GaveUp():
                name = self._names.operation(event.operation)
                tally = self._counted.tallies.get(name)
                if tally is None:
                    tally = self._counted.tallies[name] = Tally()
                tally.add(event)
            case Exhausted():
                dependency = self._names.dependency(event.dependency)
                self._counted.exhausted[dependency] += 1
            case _:
                return  # a timeout that has changed is for logs: a metric with gaps says little
        if self._over == math.inf:
            self._counted.since, self._over = event.at, self._clock.monotonic() + self._every

    def _take(self) -> Counted:
        """What was counted; counting begins anew."""
        counted = self._counted
        self._begin()
        return counted

    def _lines(self, counted: Counted) -> list[bytes]:
        """Not under the lock, so that other calls do not wait."""
        lines = []
        for (dependency, operation), tally in counted.tallies.items():
            named = {"Dependency": _dimension(dependency), "Operation": _dimension(operation)}
            metrics: dict[str, tuple[str, Any]] = {name: ("Count", count) for name, count in tally.counts.items()}
            if tally.counts["Attempts"]:
                metrics[LATENCY] = ("Milliseconds", [round(1000 * value, 3) for value in tally.spread.values()])
            lines.append(self._line(counted.since, named, metrics))
        for dependency, count in counted.exhausted.items():
            named = {"Dependency": _dimension(dependency)}
            lines.append(self._line(counted.since, named, {EXHAUSTED: ("Count", count)}))
        return lines

    def _line(self, since: float, named: dict[str, str], metrics: dict[str, tuple[str, Any]]) -> bytes:
        sets = [[*self._fixed, *named]]
        if self._rollup and len(named) > 1:
            sets.append([*self._fixed, "Dependency"])
        directive = {
            "Namespace": self._namespace,
            "Dimensions": sets,
            "Metrics": [{"Name": name, "Unit": unit} for name, (unit, _) in metrics.items()],
        }
        return msgspec.json.encode(
            {
                "_aws": {"Timestamp": round(since * 1000), "CloudWatchMetrics": [directive]},
                **self._fixed,
                **named,
                **{name: value for name, (_, value) in metrics.items()},
            }
        )

    def _write_all(self, lines: list[bytes]) -> None:
        for place, line in enumerate(lines):
            try:
                self._write(line.decode())
            except Exception:
                self.dropped += len(lines) - place
                log.exception("metrics of calls could not be written; %d lines are lost so far", self.dropped)
                return


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(line: str) -> None:
        stream.write(f"{line}\n")  # in one piece: others may write to the same stream
        stream.flush()

    return write


def _fixed(dimensions: Mapping[str, str]) -> dict[str, str]:
    if len(dimensions) > MOST_DIMENSIONS - 2:
        raise InvalidValue(f"{len(dimensions)} dimensions: expected at most {MOST_DIMENSIONS - 2} besides our own")
    taken = {"_aws", "Dependency", "Operation", LATENCY, EXHAUSTED, *COUNTS}
    for name, value in dimensions.items():
        if name in taken or not _DIMENSION_NAME.fullmatch(name):
            raise InvalidValue(
                f"dimension {name!r}: expected a name of 1 to {LONGEST_DIMENSION_NAME} ASCII characters, and none of "
                + ", ".join(sorted(taken))
            )
        if _dimension(value) != value:
            raise InvalidValue(
                f"dimension {name} {value!r}: expected 1 to {LONGEST_DIMENSION} printable ASCII characters, "
                "not only blanks and without a colon in front"
            )
    return dict(dimensions)


def _dimension(text: str) -> str:
    """The text as CloudWatch allows it in the value of a dimension."""
    allowed = "".join(char if " " <= char <= "~" else "?" for char in text).lstrip(": ")
    return allowed[:LONGEST_DIMENSION].rstrip() or "?"

"""Counts of calls for CloudWatch, as lines of its embedded metric format: a few a minute, not one for each attempt.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
Whatever is logged is paid by size, and each combination of a metric with its dimensions by the month.
"""

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Self, TextIO

from holdfast._clock import Clock, SystemClock
from holdfast._forks import renew_after_fork
from holdfast.calls.classify import Kind
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying
from holdfast.calls.sinks.embedded import Lines, Metrics, Spread, checked_every, dimension
from holdfast.calls.sinks.names import Names

__all__ = ["EmfSink"]

log = logging.getLogger(__name__)

MOST_OPERATIONS = 200
"""Operations with metrics of their own; at seven metrics each, they are what is paid for."""
COUNTS = ("Attempts", "Failures", "Timeouts", "Throttles", "Retries", "GaveUp")
LATENCY = "AttemptLatency"
EXHAUSTED = "BudgetExhausted"
TAKEN = frozenset({"_aws", "Dependency", "Operation", LATENCY, EXHAUSTED, *COUNTS})


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
        self._lines = Lines(to, namespace, dimensions or {}, TAKEN)
        self._every = checked_every(every)
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
            self._write_all(taken)

    def flush(self) -> None:
        """Write what was counted since the last lines."""
        with self._lock:
            taken = self._take()
        self._write_all(taken)

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

    def _metrics(self, counted: Counted) -> Iterator[tuple[dict[str, str], Metrics]]:
        """Not under the lock, so that other calls do not wait."""
        for (dependency, operation), tally in counted.tallies.items():
            named = {"Dependency": dimension(dependency), "Operation": dimension(operation)}
            metrics: Metrics = {name: ("Count", count) for name, count in tally.counts.items()}
            if tally.counts["Attempts"]:
                metrics[LATENCY] = ("Milliseconds", [round(1000 * value, 3) for value in tally.spread.values()])
            yield named, metrics
        for dependency, count in counted.exhausted.items():
            yield {"Dependency": dimension(dependency)}, {EXHAUSTED: ("Count", count)}

    def _write_all(self, counted: Counted) -> None:
        lines = list(self._metrics(counted))
        for place, (named, metrics) in enumerate(lines):
            rollup = ["Dependency"] if self._rollup and len(named) > 1 else []
            try:
                self._lines.write(counted.since, named, metrics, rollup=rollup)
            except Exception:
                self.dropped += len(lines) - place
                log.exception("metrics of calls could not be written; %d lines are lost so far", self.dropped)
                return

"""Counts of calls for Prometheus, kept in memory and written in its text format by this module itself.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/ and the names follow
https://prometheus.io/docs/practices/naming/.
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast._forks import renew_after_fork
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.sinks.exposition import CONTENT_TYPE, Labels, checked_buckets, family, histogram
from holdfast.calls.sinks.names import Names

if TYPE_CHECKING:
    from holdfast.calls.dependency import Dependency

__all__ = ["CONTENT_TYPE", "PrometheusSink"]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; those of the client libraries of Prometheus."""
MOST_OPERATIONS = 200
"""Operations with series of their own: with 11 buckets and 7 outcomes, some 5,000 series."""


class PrometheusSink:
    """Counts attempts, retries and what was given up; `render` writes the counts for a scrape. Thread-safe.

    Budgets, timeouts and limits of the given `dependencies` are read when it renders. Every process has its own counts,
    and a forked child begins at nothing, so that what its parent counted is not counted twice: scrape each. After the
    first `most_operations` operations, others are counted as `other`.
    """

    def __init__(
        self,
        dependencies: "Iterable[Dependency]" = (),
        *,
        buckets: Sequence[float] = BUCKETS,
        most_operations: int = MOST_OPERATIONS,
    ) -> None:
        self._dependencies = tuple(dependencies)
        self._buckets = checked_buckets(buckets)
        self._most = most_operations
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin at nothing, in the child of a fork."""
        self._lock = threading.Lock()
        self._names = Names(self._most)
        self._attempts: defaultdict[Labels, float] = defaultdict(float)
        self._retries: defaultdict[Labels, float] = defaultdict(float)
        self._gave_up: defaultdict[Labels, float] = defaultdict(float)
        self._exhausted: defaultdict[Labels, float] = defaultdict(float)
        self._timeouts: dict[Labels, float] = {}
        self._seconds: dict[Labels, list[float]] = {}  # a count for each bucket, for what is beyond, and the sum
        for dependency in self._dependencies:
            # Prometheus sees no increase in a series that begins at 1: an alert on it would miss the first time.
            self._exhausted[("dependency", self._names.dependency(dependency.name)),] = 0.0

    def emit(self, event: CallEvent) -> None:
        with self._lock:
            match event:
                case Attempted():
                    labels = self._labels(event)
                    outcome = "success" if event.failure is None else str(event.failure)
                    self._attempts[*labels, ("outcome", outcome)] += 1
                    self._observe(labels, event.seconds)
                case Retrying():
                    self._retries[*self._labels(event), ("failure", str(event.failure))] += 1
                case GaveUp():
                    self._gave_up[*self._labels(event), ("reason", str(event.reason))] += 1
                case Exhausted():
                    self._exhausted[("dependency", self._names.dependency(event.dependency)),] += 1
                case TimeoutChanged():
                    dependency = self._names.dependency(event.dependency)
                    self._timeouts[("dependency", dependency), ("what", event.what)] = event.after

    def render(self) -> str:
        """Everything in the text format; serve it with `CONTENT_TYPE`."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from family("holdfast_call_attempts_total", "counter", "Attempts that have ended.", self._attempts)
        seconds = {labels: (seen[:-1], seen[-1]) for labels, seen in self._seconds.items()}
        yield from histogram("holdfast_call_attempt_seconds", "How long attempts took.", self._buckets, seconds)
        yield from family("holdfast_call_retries_total", "counter", "Attempts after the first.", self._retries)
        yield from family("holdfast_call_gave_up_total", "counter", "Calls that failed in the end.", self._gave_up)
        yield from family(
            "holdfast_call_budget_exhausted_total", "counter", "Times that a retry budget ran dry.", self._exhausted
        )
        timeouts = dict(self._timeouts)
        tokens: dict[Labels, float] = {}
        in_flight: dict[Labels, float] = {}
        for dependency in self._dependencies:
            label = ("dependency", dependency.name)
            timeouts[label, ("what", "attempt")] = dependency.timeout
            timeouts[label, ("what", "connect")] = dependency.connect_timeout
            tokens[label,] = dependency.tokens
            if dependency.limit is not None:
                in_flight[label,] = float(dependency.in_flight)
        yield from family("holdfast_call_timeout_seconds", "gauge", "How long it may take now.", timeouts)
        yield from family("holdfast_call_budget_tokens", "gauge", "What is left of the retry budget.", tokens)
        yield from family("holdfast_call_in_flight", "gauge", "Attempts under way, where they are limited.", in_flight)

    def _labels(self, event: Attempted | Retrying | GaveUp) -> Labels:
        dependency, operation = self._names.operation(event.operation)
        return ("dependency", dependency), ("operation", operation)

    def _observe(self, labels: Labels, seconds: float) -> None:
        seen = self._seconds.get(labels)
        if seen is None:
            seen = self._seconds[labels] = [0.0] * (len(self._buckets) + 2)
        seen[bisect_left(self._buckets, seconds)] += 1
        seen[-1] += seconds

"""Queues for CloudWatch, as lines of its embedded metric format: one for each queue and busy tenant, every minute.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
Metrics have the names that SQS gives its own where they mean the same. Each combination of a metric with a tenant is
paid by the month: with 20 tenants these are some 300 for each queue.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Self, TextIO

from holdfast._clock import Clock, SystemClock
from holdfast._forks import renew_after_fork
from holdfast.calls.sinks.embedded import Lines, Metrics, Spread, checked_every, dimension
from holdfast.calls.sinks.names import OTHER
from holdfast.queue.alarms import QueueAlarm, Reading
from holdfast.queue.events import Ending
from holdfast.queue.metrics.busiest import MOST_TENANTS, checked_most
from holdfast.queue.metrics.tally import Observed, QueueTally, Tallies, Tally

__all__ = ["EmfQueueSink"]

log = logging.getLogger(__name__)

QUEUE, TENANT = "Queue", "Tenant"
Counted = QueueTally[Spread, Spread]


class EmfQueueSink:
    """Writes lines about queues every `every` seconds, to a stream or a function.

    Dimensions are `Queue`, and `Queue` with `Tenant` for the `most_tenants` busiest and as many with the most messages
    waiting, the rest of whom is `other`; and those that are given. Depths are there for the first 200 queues; under
    `other`, `QueuesLeftOut` counts those that are without. Lines are written by the first event after the time
    is over, in the thread that it comes from; `flush` and `close` write what is left. What cannot be written is
    dropped, and counted in `lost_lines`. Thread-safe; a forked child begins at nothing.
    """

    def __init__(
        self,
        to: TextIO | Callable[[str], object],
        *,
        namespace: str,
        every: float = 60.0,
        dimensions: Mapping[str, str] | None = None,
        most_tenants: int = MOST_TENANTS,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self._lines = Lines(to, namespace, dimensions or {}, _TAKEN)
        self._every = checked_every(every)
        self._most = checked_most(most_tenants)
        self._clock = clock
        self.lost_lines = 0
        """Lines that could not be written."""
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin at nothing, in the child of a fork."""
        self._lock = threading.Lock()
        self._since = 0.0
        self._over = math.inf
        self._tallies: Tallies[Spread, Spread] = Tallies(
            lambda: Tally(Spread, Spread), lambda: Tally(Spread, Spread), self._most
        )

    def emit(self, event: Observed) -> None:
        if isinstance(event, QueueAlarm | Reading):
            return  # CloudWatch has alarms of its own
        with self._lock:
            taken = self._take() if self._clock.monotonic() >= self._over else None
            if self._over == math.inf:
                self._since, self._over = event.at, self._clock.monotonic() + self._every
            self._tallies.add(event)
        if taken is not None:
            self._write_all(*taken)

    def flush(self) -> None:
        """Write what was counted since the last lines."""
        with self._lock:
            taken = self._take()
        self._write_all(*taken)

    def close(self) -> None:
        """The same, at the end. May be repeated."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self) -> tuple[float, dict[str, Counted]]:
        self._over = math.inf
        return self._since, self._tallies.take()

    def _write_all(self, since: float, queues: Mapping[str, Counted]) -> None:
        """Not under the lock, so that workers do not wait for each other."""
        for named, metrics in self._metrics(queues):
            try:
                self._lines.write(since, named, metrics)
            except Exception:
                self.lost_lines += 1
                if self.lost_lines == 1:  # a disk that is full stays full for a while
                    log.exception("metrics of queues could not be written; further lines that are lost are counted")

    def _metrics(self, queues: Mapping[str, Counted]) -> Iterator[tuple[dict[str, str], Metrics]]:
        for name, queue in sorted(queues.items()):
            of_queue = {QUEUE: dimension(name)}
            yield of_queue, _queue_metrics(queue)
            if self._most:
                for tenant in sorted(queue.tenants.keys() | queue.depth_of_tenants.keys()):
                    metrics = _tenant_metrics(queue, tenant)
                    if metrics:
                        yield of_queue | {TENANT: dimension(tenant)}, metrics
        if self._tallies.nameless:
            yield {QUEUE: OTHER}, {"QueuesLeftOut": ("Count", len(self._tallies.nameless))}


def _queue_metrics(queue: Counted) -> Metrics:
    """Counts also where they are 0, as alarms need them, but nothing of what was not measured."""
    polls, total = queue.polls, queue.total
    metrics: Metrics = {}
    asked = polls.empty + polls.filled
    if asked or total.endings:
        metrics |= {
            "Polls": ("Count", asked),
            "NumberOfEmptyReceives": ("Count", polls.empty),
            "NumberOfMessagesReceived": ("Count", total.received),
            **{_ENDINGS[ending]: ("Count", total.endings[ending]) for ending in Ending},
            "MessagesRedelivered": ("Count", polls.redelivered),
            "MessagesDropped": ("Count", polls.dropped),
            "MessagesSidelined": ("Count", polls.sidelined),
            "MessagesAbandoned": ("Count", polls.abandoned),
        }
    if asked:
        metrics["EmptyPollRatio"] = ("Percent", round(100 * polls.empty / asked, 3))
    metrics |= _durations(total)
    if asked or queue.troubles:
        metrics["Troubles"] = ("Count", queue.troubles.total())
    depth = queue.depth
    if depth is not None:
        metrics |= {
            "ApproximateNumberOfMessagesVisible": ("Count", depth.waiting),
            "ApproximateNumberOfMessagesNotVisible": ("Count", depth.leased),
            "ApproximateNumberOfMessagesDelayed": ("Count", depth.delayed),
            "ApproximateAgeOfOldestMessage": ("Seconds", round(depth.oldest or 0.0, 3)),
            "MessagesSpilled": ("Count", depth.spilled),
            "DeadLetters": ("Count", depth.dead),
            "LanesInUse": ("Count", depth.lanes),
        }
    return metrics


def _tenant_metrics(queue: Counted, tenant: str) -> Metrics:
    """Only what is there: each of them is paid for."""
    metrics: Metrics = {}
    tally = queue.tenants.get(tenant)
    if tally is not None:
        if tally.received:
            metrics["NumberOfMessagesReceived"] = ("Count", tally.received)
        metrics |= {_ENDINGS[ending]: ("Count", count) for ending, count in tally.endings.items()}
        metrics |= _durations(tally)
    states = queue.depth_of_tenants.get(tenant)
    if states is not None:
        waiting = states["ready"] + states["spilled"]
        found = {
            "ApproximateNumberOfMessagesVisible": waiting,
            "ApproximateNumberOfMessagesNotVisible": states["leased"],
            "MessagesSpilled": states["spilled"],
            "DeadLetters": states["dead"],
        }
        metrics |= {name: ("Count", count) for name, count in found.items() if count}
    return metrics


def _durations(tally: Tally[Spread]) -> Metrics:
    metrics: Metrics = {}
    for name, spread in (
        ("AgeOnReceipt", tally.age),
        ("AgeOfFirstAttempt", tally.first_attempt_age),
        ("AgeOfFirstSubscriberFirstAttempt", tally.first_subscriber_age),
    ):
        if values := spread.values():
            metrics[name] = ("Seconds", [round(value, 3) for value in values])
    if values := tally.seconds.values():
        metrics["HandlerLatency"] = ("Milliseconds", [round(1000 * value, 3) for value in values])
    return metrics


_ENDINGS = {ending: f"Messages{ending.value.capitalize()}" for ending in Ending}
_TAKEN = frozenset(
    {"_aws", QUEUE, TENANT, "Polls", "NumberOfEmptyReceives", "NumberOfMessagesReceived", "EmptyPollRatio", "Troubles"}
    | {"MessagesRedelivered", "MessagesDropped", "MessagesSidelined", "MessagesAbandoned", *_ENDINGS.values()}
    | {"AgeOnReceipt", "AgeOfFirstAttempt", "AgeOfFirstSubscriberFirstAttempt", "HandlerLatency"}
    | {"ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible", "MessagesSpilled", "LanesInUse"}
    | {"ApproximateNumberOfMessagesDelayed", "ApproximateAgeOfOldestMessage", "DeadLetters", "QueuesLeftOut"}
)

"""Queues for Prometheus: counts of workers and looks at queues, in memory, written in its text format.

The names follow https://prometheus.io/docs/practices/naming/.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from holdfast._forks import renew_after_fork
from holdfast.calls.sinks.exposition import CONTENT_TYPE, Labels, checked_buckets, family, head, histogram, sample
from holdfast.calls.sinks.prometheus import BUCKETS as CALL_BUCKETS
from holdfast.queue.events import Ending
from holdfast.queue.metrics.busiest import MOST_TENANTS, checked_most
from holdfast.queue.metrics.depth import STATES
from holdfast.queue.metrics.tally import Observed, QueueTally, Tallies, Tally, Total

__all__ = ["CONTENT_TYPE", "PrometheusQueueMetrics"]

HANDLER_BUCKETS = (*CALL_BUCKETS, 30.0, 60.0, 300.0, 900.0)
"""Seconds; those of requests, and what only work in the background may take."""
AGE_BUCKETS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
"""Seconds; from what users take for at once to a day."""

Samples = dict[Labels, float]


class Buckets:
    """Seconds as a histogram of Prometheus."""

    __slots__ = ("counts", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        """One for each bucket, and one for what is beyond them."""
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.edges, seconds)] += 1
        self.sum += seconds


class PrometheusQueueMetrics:
    """Counts what workers do, and keeps what a `Watcher` sees; `render` writes it for a scrape. Thread-safe.

    Of each queue, the `most_tenants` busiest tenants have series of their own, and the others are `other`; 0: no series
    of tenants. The first 200 queues have series of their own; what workers do in others is counted as `other`, and
    `holdfast_queue_left_out` says how many are without depths and alarms. `queues` have their series from the start, so
    that the first event is seen as an increase. Every process has its own counts, and a forked child begins at nothing:
    scrape each. The depth of a queue is the same in every process that looks at it: take the `max` over them, not the
    `sum`.
    """

    def __init__(
        self,
        *,
        queues: Iterable[str] = (),
        most_tenants: int = MOST_TENANTS,
        handler_buckets: Sequence[float] = HANDLER_BUCKETS,
        age_buckets: Sequence[float] = AGE_BUCKETS,
    ) -> None:
        self._queues = tuple(queues)
        self._most = checked_most(most_tenants)
        self._handler_buckets = checked_buckets(handler_buckets)
        self._age_buckets = checked_buckets(age_buckets)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin at nothing, in the child of a fork."""
        self._lock = threading.Lock()
        self._tallies: Tallies[Buckets, Total] = Tallies(
            lambda: Tally(lambda: Buckets(self._handler_buckets), lambda: Buckets(self._age_buckets)),
            lambda: Tally(Total, Total),
            self._most,
        )
        for queue in self._queues:
            self._tallies.of(queue)

    def emit(self, event: Observed) -> None:
        with self._lock:
            self._tallies.add(event)

    def render(self) -> str:
        """Everything in the text format; serve it with `CONTENT_TYPE`."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        queues = sorted(self._tallies.queues.items())
        # A process that only looks at queues has nothing to tell of workers.
        worked = [(name, queue) for name, queue in queues if _has_worked(queue) or name in self._queues]
        yield from _worker_lines(worked)
        for field, what in _DURATIONS:
            edges = self._handler_buckets if field == "seconds" else self._age_buckets
            buckets: list[tuple[str, Buckets]] = [(name, getattr(queue.total, field)) for name, queue in worked]
            seen: dict[Labels, tuple[list[int], float]] = {
                (("queue", name),): (one.counts, one.sum) for name, one in buckets
            }
            yield from histogram(f"holdfast_queue_{field_name(field)}_seconds", what, edges, seen)
        if self._most:
            yield from _tenant_lines(worked)
        yield from _depth_lines(queues, with_tenants=bool(self._most))
        waits: Samples = {
            (("queue", name),): queue.first_attempt_age for name, queue in queues if queue.first_attempt_age is not None
        }
        yield from family(
            "holdfast_queue_first_attempt_wait_seconds",
            "gauge",
            "How long new work waits for its first attempt, as its alarm sees it.",
            waits,
        )
        yield from family(
            "holdfast_queue_alarm_open",
            "gauge",
            "Whether an alarm on the queue is open.",
            {
                (("queue", name), ("alarm", what)): int(it)
                for name, queue in queues
                for what, it in queue.alarms.items()
            },
        )
        left_out: Samples = {(): len(self._tallies.nameless)} if self._tallies.nameless else {}
        yield from family(
            "holdfast_queue_left_out", "gauge", "Queues without depths and alarms, because there are so many.", left_out
        )


Queues = list[tuple[str, QueueTally[Buckets, Total]]]

_DURATIONS = (
    ("seconds", "How long handlers took."),
    ("age", "Age of messages when they were received."),
    ("first_attempt_age", "Age at the first attempt."),
    ("first_subscriber_age", "Age at the first attempt of the first subscriber."),
)
_POLLED = (
    ("redelivered", "Messages whose leases had ended, and that were delivered again."),
    ("dropped", "Messages that were too old to be worth anything."),
    ("sidelined", "Messages that were moved to where the excess of their tenants waits."),
    ("abandoned", "Messages that were buried because none of their workers was ever heard of again."),
)


def field_name(field: str) -> str:
    """The part of a metric's name that stands for durations."""
    return "handler" if field == "seconds" else field


def _has_worked(queue: QueueTally[Buckets, Total]) -> bool:
    return bool(queue.polls.empty or queue.polls.filled or queue.total.endings or queue.troubles)


def _worker_lines(queues: Queues) -> Iterator[str]:
    yield from family(
        "holdfast_queue_polls_total",
        "counter",
        "Times that workers asked for messages.",
        {
            (("queue", name), ("result", result)): getattr(queue.polls, result)
            for name, queue in queues
            for result in ("empty", "filled")
        },
    )
    yield from family(
        "holdfast_queue_received_total",
        "counter",
        "Messages that workers received.",
        {(("queue", name),): queue.total.received for name, queue in queues},
    )
    yield from family(
        "holdfast_queue_handled_total",
        "counter",
        "Attempts to handle a message that have ended.",
        {
            (("queue", name), ("ending", ending)): queue.total.endings[ending]
            for name, queue in queues
            for ending in Ending
        },
    )
    for what, description in _POLLED:
        samples: Samples = {(("queue", name),): getattr(queue.polls, what) for name, queue in queues}
        yield from family(f"holdfast_queue_{what}_total", "counter", description, samples)
    yield from family(
        "holdfast_queue_troubles_total",
        "counter",
        "Times that what keeps the messages could not be reached.",
        {
            (("queue", name), ("doing", doing)): count
            for name, queue in queues
            for doing, count in ({"lease": 0, "settle": 0} | queue.troubles).items()
        },
    )


def _tenant_lines(queues: Queues) -> Iterator[str]:
    tenants = [
        (((("queue", name), ("tenant", tenant))), tally)
        for name, queue in queues
        for tenant, tally in sorted(queue.tenants.items())
    ]
    yield from family(
        "holdfast_queue_tenant_received_total",
        "counter",
        "Messages of the busiest tenants that workers received.",
        {labels: tally.received for labels, tally in tenants},
    )
    yield from family(
        "holdfast_queue_tenant_handled_total",
        "counter",
        "Attempts to handle a message of the busiest tenants that have ended.",
        {(*labels, ("ending", ending)): n for labels, tally in tenants for ending, n in tally.endings.items()},
    )
    for field, what in _DURATIONS:
        totals: dict[Labels, Total] = {
            labels: getattr(tally, field) for labels, tally in tenants if getattr(tally, field).count
        }
        yield from _summary(f"holdfast_queue_tenant_{field_name(field)}_seconds", f"{what[:-1]}, by tenant.", totals)


def _depth_lines(queues: Queues, *, with_tenants: bool) -> Iterator[str]:
    depths = [(name, queue, queue.depth) for name, queue in queues if queue.depth is not None]
    yield from family(
        "holdfast_queue_messages",
        "gauge",
        "Messages in the queue, each in one state.",
        {(("queue", name), ("state", state)): getattr(depth, state) for name, _, depth in depths for state in STATES},
    )
    yield from family(
        "holdfast_queue_oldest_age_seconds",
        "gauge",
        "How long the message has been waiting that waits the longest; 0 if none waits.",
        {(("queue", name),): depth.oldest or 0.0 for name, _, depth in depths},
    )
    yield from family(
        "holdfast_queue_lanes_in_use",
        "gauge",
        "Lanes that are not empty.",
        {(("queue", name),): depth.lanes for name, _, depth in depths},
    )
    yield from family(
        "holdfast_queue_looked_at_timestamp_seconds",
        "gauge",
        "When the queue was looked at.",
        {(("queue", name),): queue.looked or 0.0 for name, queue, _ in depths},
    )
    if with_tenants:
        yield from family(
            "holdfast_queue_tenant_messages",
            "gauge",
            "Messages of the tenants with the most of them, each in one state.",
            {
                (("queue", name), ("tenant", tenant), ("state", state)): count
                for name, queue, _ in depths
                for tenant, states in queue.depth_of_tenants.items()
                for state, count in states.items()
            },
        )


def _summary(name: str, description: str, totals: dict[Labels, Total]) -> Iterator[str]:
    yield from head(name, "summary", description, totals)
    for labels, total in sorted(totals.items()):
        yield sample(f"{name}_sum", labels, total.sum)
        yield sample(f"{name}_count", labels, total.count)

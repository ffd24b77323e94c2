"""Metrics of queues by OpenTelemetry. Needs an extra.

Metrics and attributes have the names of https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/ where
it has some, and begin with `holdfast.queue` otherwise.
"""

import threading
from collections import Counter
from typing import TYPE_CHECKING

from holdfast._errors import MissingExtra
from holdfast._forks import renew_after_fork
from holdfast.calls.sinks.names import Names
from holdfast.queue.backend import Snapshot
from holdfast.queue.events import Ending, Handled, Polled, Trouble
from holdfast.queue.metrics.ages import age_of, is_first_attempt
from holdfast.queue.metrics.busiest import MOST_TENANTS, Busiest, Places, checked_most
from holdfast.queue.metrics.depth import STATES, depth_of, tenants_of
from holdfast.queue.metrics.tally import MOST_QUEUES, Nameless, Observed

try:
    from opentelemetry import metrics
except ImportError as error:
    raise MissingExtra("the OpenTelemetry sink", "opentelemetry") from error

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["OpenTelemetryQueueSink"]

Attributes = dict[str, str | bool]

QUEUE = "messaging.destination.name"
TENANT = "holdfast.tenant"
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; those that the conventions recommend."""
AGE_BOUNDARIES = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
IN_ALL = 5
"""Names that a queue's tenants get over the life of a process, for each that has one at the same time."""
FAILED = frozenset({Ending.RETRIED, Ending.BURIED})


class OpenTelemetryQueueSink:
    """Records what workers do, and what a `Watcher` sees, with a meter, by default one of the global provider.

    Of each queue the `most_tenants` busiest tenants are told apart, and the others are `other`; 0: tenants are not told
    apart. OpenTelemetry keeps what it was ever given for as long as the process runs: so after five times as many names
    no tenant gets a new one, and those that had one share the places among themselves. Gauges are there for the first
    200 queues; `holdfast.queue.left_out` counts the others. Thread-safe.
    """

    def __init__(self, meter: "Meter | None" = None, *, most_tenants: int = MOST_TENANTS) -> None:
        self._most = checked_most(most_tenants)
        meter = metrics.get_meter("holdfast.queue") if meter is None else meter
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Messages that workers received."
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="How long handlers took.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._polls = meter.create_counter(
            "holdfast.queue.polls", unit="{poll}", description="Times that workers asked for messages."
        )
        self._ages = {
            name: meter.create_histogram(
                f"holdfast.queue.{name}", unit="s", description=what, explicit_bucket_boundaries_advisory=AGE_BOUNDARIES
            )
            for name, what in (
                ("age", "How old messages were when they were received."),
                ("first_attempt.age", "How old they were when they were received for the first time."),
                ("first_subscriber.age", "How old they were when the first subscriber of their topic received them."),
            )
        }
        self._moved = {
            name: meter.create_counter(f"holdfast.queue.{name}", unit="{message}", description=what)
            for name, what in (
                ("redelivered", "Messages whose leases had ended."),
                ("dropped", "Messages that were too old to be worth anything."),
                ("sidelined", "Messages that were moved to where the excess of their tenants waits."),
                ("abandoned", "Messages that were buried because none of their workers was heard of again."),
            )
        }
        self._troubles = meter.create_counter(
            "holdfast.queue.troubles", unit="{time}", description="Times that the store could not be reached."
        )
        self._messages = meter.create_gauge(
            "holdfast.queue.messages", unit="{message}", description="Messages in the queue, each in one state."
        )
        self._tenant_messages = meter.create_gauge(
            "holdfast.queue.tenant.messages", unit="{message}", description="Messages of the tenants with the most."
        )
        self._oldest = meter.create_gauge(
            "holdfast.queue.oldest.age", unit="s", description="How long the oldest message has been waiting."
        )
        self._lanes = meter.create_gauge("holdfast.queue.lanes", unit="{lane}", description="Lanes that are not empty.")
        self._left_out = meter.create_gauge(
            "holdfast.queue.left_out", unit="{queue}", description="Queues without gauges, because there are so many."
        )
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Have a lock that nobody holds, in the child of a fork."""
        self._lock = threading.Lock()
        self._names = Names(MOST_QUEUES)
        self._places: dict[str, tuple[Busiest, Places]] = {}
        self._told: dict[str, set[str]] = {}
        self._nameless = Nameless()

    def emit(self, event: Observed) -> None:
        match event:
            case Polled():
                self._polled(event)
            case Handled():
                self._handled(event)
            case Trouble():
                with self._lock:
                    name = self._names.dependency(event.queue)
                self._troubles.add(1, {QUEUE: name, "holdfast.doing": event.doing, "error.type": event.error})
            case Snapshot():
                with self._lock:
                    left_out = self._nameless.count(event.queue, self._names.dependency(event.queue))
                if left_out is None:
                    self._looked(event)
                else:
                    self._left_out.set(left_out)
            case _:
                pass  # alarms: whoever takes these metrics has some of its own

    def _polled(self, event: Polled) -> None:
        leased = event.leased
        counts = Counter([delivery.tenant for delivery in leased.deliveries])
        with self._lock:
            name, busiest, _ = self._of(event.queue)
            busiest.came(counts, event.at)
            tenants = {tenant: self._tenant(busiest, tenant) for tenant in counts}
        queue: Attributes = {QUEUE: name}
        self._polls.add(1, queue | {"holdfast.empty": event.is_empty})
        for tenant, count in counts.items():
            self._consumed.add(count, _named(name, "receive") | tenants[tenant])
        for delivery in leased.deliveries:
            age, attributes = age_of(delivery, event.at), queue | tenants[delivery.tenant]
            self._ages["age"].record(age, attributes)
            if is_first_attempt(delivery):
                self._ages["first_attempt.age"].record(age, attributes)
            if delivery.is_first_of_topic:
                self._ages["first_subscriber.age"].record(age, attributes)
        moved = {"redelivered": leased.redelivered, "dropped": leased.dropped, "sidelined": leased.sidelined}
        for what, count in (moved | {"abandoned": leased.buried}).items():
            if count:
                self._moved[what].add(count, queue)

    def _handled(self, event: Handled) -> None:
        if event.ending is Ending.RETURNED:  # it has not ended: nobody knows how long it takes
            return
        with self._lock:
            name, busiest, _ = self._of(event.delivery.queue)
            attributes = _named(name, "process") | self._tenant(busiest, event.delivery.tenant)
        attributes["holdfast.ending"] = str(event.ending)
        if event.ending in FAILED:
            attributes["error.type"] = event.error or str(event.ending)
        self._process.record(event.seconds, attributes)

    def _looked(self, event: Snapshot) -> None:
        depth = depth_of(event)
        with self._lock:
            name, _, places = self._of(event.queue)
            tenants = tenants_of(event, depth, places) if self._most else {}
            # A gauge keeps its last value for ever: who is not listed any more has to be told of as nothing.
            gone = self._told.get(name, set()) - tenants.keys()
            self._told[name] = set(tenants)
        queue: Attributes = {QUEUE: name}
        for state in STATES:
            self._messages.set(getattr(depth, state), queue | {"holdfast.state": state})
        self._oldest.set(depth.oldest or 0.0, queue)
        self._lanes.set(depth.lanes, queue)
        for tenant, states in (tenants | {tenant: dict.fromkeys(tenants["other"], 0) for tenant in gone}).items():
            for state, count in states.items():
                self._tenant_messages.set(count, queue | {TENANT: tenant, "holdfast.state": state})

    def _of(self, queue: str) -> tuple[str, Busiest, Places]:
        name = self._names.dependency(queue)
        busiest, places = self._places.setdefault(name, self._new_places())
        return name, busiest, places

    def _new_places(self) -> tuple[Busiest, Places]:
        in_all = IN_ALL * self._most
        return Busiest(self._most, in_all), Places(self._most, in_all)

    def _tenant(self, busiest: Busiest, tenant: str) -> Attributes:
        return {TENANT: busiest.name(tenant)} if self._most else {}


def _named(queue: str, operation: str) -> Attributes:
    return {"messaging.system": "holdfast", QUEUE: queue, "messaging.operation.name": operation}

"""What happened in queues, added up for each queue and for its busiest tenants. Pure.

What keeps durations is up to the sink: buckets, a sum, or percentiles. Nothing grows with the number of tenants.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from holdfast.calls.sinks.names import OTHER, Names
from holdfast.queue.alarms import QueueAlarm, Reading, What
from holdfast.queue.backend import Snapshot
from holdfast.queue.events import Ending, Handled, Polled, QueueEvent, Trouble
from holdfast.queue.metrics.ages import age_of, is_first_attempt
from holdfast.queue.metrics.busiest import Busiest, Places
from holdfast.queue.metrics.depth import Depth, depth_of, tenants_of

MOST_QUEUES = 200
"""Queues with series of their own; a process that works on more has their events counted as `other`."""
MOST_NAMELESS = 10_000
"""The others are counted up to so many: their names take room."""

Observed: TypeAlias = QueueEvent | Snapshot | Reading | QueueAlarm
"""What the sinks of this folder take: events of workers, looks at queues, what these say, and alarms."""


class Nameless:
    """Counts the queues that came too late for a name. What they do adds up, but no gauge can stand for several."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: set[str] = set()

    def __len__(self) -> int:
        return len(self._queues)

    def count(self, queue: str, name: str) -> int | None:
        """How many there are by now, if this queue is one of them; None: it has a name."""
        if name == queue:
            return None
        if len(self) < MOST_NAMELESS:
            self._queues.add(queue)
        return len(self)


class Durations(Protocol):
    """What keeps seconds."""

    def add(self, seconds: float) -> None:
        """One more."""


Kept = TypeVar("Kept", bound=Durations)
KeptOfTenant = TypeVar("KeptOfTenant", bound=Durations)


class Total:
    """How many there were, and their sum: the least that can be kept."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.sum += seconds


class Tally(Generic[Kept]):
    """What happened to the messages of a queue, or of one tenant of it."""

    __slots__ = ("age", "endings", "first_attempt_age", "first_subscriber_age", "received", "seconds")

    def __init__(self, seconds: Callable[[], Kept], ages: Callable[[], Kept]) -> None:
        self.received = 0
        self.endings: Counter[Ending] = Counter()
        self.seconds = seconds()
        """How long handlers took."""
        self.age = ages()
        """How old messages were when they were received."""
        self.first_attempt_age = ages()
        self.first_subscriber_age = ages()


class Polls:
    """What happened when workers asked for messages."""

    __slots__ = ("abandoned", "dropped", "empty", "filled", "redelivered", "sidelined")

    def __init__(self) -> None:
        self.empty = self.filled = 0
        self.redelivered = self.dropped = self.sidelined = self.abandoned = 0

    def add(self, event: Polled) -> None:
        """Count one poll."""
        leased = event.leased
        if event.is_empty:
            self.empty += 1
        else:
            self.filled += 1
        self.redelivered += leased.redelivered
        self.dropped += leased.dropped
        self.sidelined += leased.sidelined
        self.abandoned += leased.buried


class QueueTally(Generic[Kept, KeptOfTenant]):
    """One queue. Not thread-safe."""

    def __init__(
        self,
        busiest: Busiest,
        places: Places,
        of_queue: Callable[[], Tally[Kept]],
        of_tenant: Callable[[], Tally[KeptOfTenant]],
    ) -> None:
        self._busiest = busiest
        self._places = places
        self._of_tenant = of_tenant
        self.polls = Polls()
        self.total = of_queue()
        self.tenants: dict[str, Tally[KeptOfTenant]] = {}
        self.troubles: Counter[str] = Counter()
        self.looked: float | None = None
        """When the depth was looked at."""
        self.depth: Depth | None = None
        self.depth_of_tenants: Mapping[str, Mapping[str, int]] = {}
        self.first_attempt_age: float | None = None
        """How long new work waits, as the alarm on it sees it."""
        self.alarms: dict[What, bool] = {}

    def add(self, event: Observed) -> None:
        """Count one event."""
        match event:
            case Handled():
                tenant = self._tenant(event.delivery.tenant)
                for tally in (self.total, tenant):
                    tally.endings[event.ending] += 1
                    if event.ending is not Ending.RETURNED:  # it has not ended, so nobody knows how long it takes
                        tally.seconds.add(event.seconds)
            case Polled():
                self.polls.add(event)
                if event.leased.deliveries:
                    self._received(event)
            case Trouble():
                self.troubles[event.doing] += 1
            case Snapshot():
                self.looked, self.depth = event.at, depth_of(event)
                self.depth_of_tenants = tenants_of(event, self.depth, self._places)
            case Reading():
                self.first_attempt_age = event.values.get(What.FIRST_ATTEMPT_AGE)
                self.alarms = dict(event.alarms)
            case _:
                self.alarms[event.what] = event.is_open

    def _received(self, event: Polled) -> None:
        deliveries, now = event.leased.deliveries, event.at
        counts = Counter([delivery.tenant for delivery in deliveries])
        self._busiest.came(counts, now)
        self.total.received += len(deliveries)
        for name, count in counts.items():
            self._tenant(name).received += count
        for delivery in deliveries:
            age, is_first = age_of(delivery, now), is_first_attempt(delivery)
            for tally in (self.total, self._tenant(delivery.tenant)):
                tally.age.add(age)
                if is_first:
                    tally.first_attempt_age.add(age)
                if delivery.is_first_of_topic:
                    tally.first_subscriber_age.add(age)

    def _tenant(self, tenant: str) -> Tally[KeptOfTenant]:
        name = self._busiest.name(tenant)
        tally = self.tenants.get(name)
        if tally is None:
            # Those who have lost their place are forgotten: what they do from here on is counted as `other`.
            self.tenants = {
                known: kept for known, kept in self.tenants.items() if known in self._busiest.names | {OTHER}
            }
            tally = self.tenants[name] = self._of_tenant()
        return tally


class Tallies(Generic[Kept, KeptOfTenant]):
    """All queues that one sink hears of. Not thread-safe."""

    def __init__(
        self, of_queue: Callable[[], Tally[Kept]], of_tenant: Callable[[], Tally[KeptOfTenant]], most_tenants: int
    ) -> None:
        self._of_queue = of_queue
        self._of_tenant = of_tenant
        self._most = most_tenants
        self._names = Names(MOST_QUEUES)
        self.nameless = Nameless()
        """Queues whose gauges and alarms are left out."""
        self._places: dict[str, tuple[Busiest, Places]] = {}
        self.queues: dict[str, QueueTally[Kept, KeptOfTenant]] = {}

    def add(self, event: Observed) -> None:
        """Count one event."""
        queue = event.delivery.queue if isinstance(event, Handled) else event.queue
        is_gauge = isinstance(event, Snapshot | Reading | QueueAlarm)
        if not is_gauge or self.nameless.count(queue, self._names.dependency(queue)) is None:
            self.of(queue).add(event)

    def of(self, queue: str) -> QueueTally[Kept, KeptOfTenant]:
        """What is counted of a queue; begins at nothing."""
        name = self._names.dependency(queue)
        tally = self.queues.get(name)
        if tally is None:
            places = self._places.setdefault(name, (Busiest(self._most), Places(self._most)))
            tally = self.queues[name] = QueueTally(*places, self._of_queue, self._of_tenant)
        return tally

    def take(self) -> dict[str, QueueTally[Kept, KeptOfTenant]]:
        """All that was counted; counting begins anew, with the same names."""
        taken, self.queues = self.queues, {}
        return taken

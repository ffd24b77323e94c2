"""The state of one queue: its messages in every order that is needed, and the counters.

A message is in one `Place` at a time, and counters change only when it enters or leaves one. Times are whole
milliseconds since the epoch, as in a database, so that sums of seconds are exact.
"""

import secrets
from collections.abc import Iterable
from enum import Enum
from itertools import count

import msgspec

from holdfast.queue.backends.memory.keys import Keys
from holdfast.queue.backends.memory.ordered import Ordered
from holdfast.queue.message import PRIORITY_LEVELS, Bury
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.queue.rules.admission import FORGET_AFTER, TenantState
from holdfast.queue.rules.placement import get_rank, tenant_lanes

NEVER = 1 << 62
SECOND = 1000
"""Milliseconds by which the clock may be set back before planned times are moved."""


def milliseconds(seconds: float) -> int:
    """Convert seconds to the milliseconds in which times are stored."""
    return round(seconds * 1000)


class Place(Enum):
    """The state of a message."""

    NOWHERE = "nowhere"
    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    PARKED = "parked"
    """It waits for earlier messages of its group."""


class Tenant:
    """The counters, buckets and limits of a tenant."""

    __slots__ = ("buckets", "dead", "delayed", "id", "leased", "name", "own_limits", "ready", "spilled", "used")

    def __init__(self, id_: int, name: str) -> None:
        self.id = id_
        self.name = name
        self.own_limits: Limits | None = None
        self.ready = self.spilled = self.leased = self.delayed = self.dead = 0
        self.buckets = TenantState()
        """The tenant's buckets. The counts in it are out of date: use `state`."""
        self.used = 0
        """When a message of the tenant was last stored, moved or removed."""

    def state(self) -> TenantState:
        """Return the buckets with the current counts, for the rules."""
        return msgspec.structs.replace(
            self.buckets, ready=self.ready, spilled=self.spilled, leased=self.leased, delayed=self.delayed
        )


class Lane:
    """A lane with its waiting messages."""

    __slots__ = ("dead", "delayed", "leased", "number", "rank", "serial", "turn", "waiting")

    def __init__(self, number: int, serial: int) -> None:
        self.number = number
        self.rank = get_rank(number)
        self.serial = serial
        """The order of lanes with the same turn."""
        self.turn = 0
        """When the lane was last served or, if that is in the future, when it may be served next."""
        self.leased = self.delayed = self.dead = 0
        self.waiting: Ordered[Message] = Ordered()

    @property
    def is_spill(self) -> bool:
        """Whether this is the overflow lane of one tenant."""
        return self.number < 0


class Group:
    """Messages that are handled one at a time, in the order of their ids."""

    __slots__ = ("members", "name", "tenant")

    def __init__(self, tenant: Tenant, name: str) -> None:
        self.tenant = tenant
        self.name = name
        self.members: Ordered[Message] = Ordered()


class Publication:
    """One message of a topic. Every subscriber has a copy."""

    __slots__ = ("is_attempted",)

    def __init__(self) -> None:
        self.is_attempted = False


class Message:
    """A message. The keys by which it is ordered change only while it is in no place."""

    __slots__ = (
        *("at", "body", "book", "deadline", "expires", "group", "id", "lane", "place"),
        *("expired_leases", "publication", "returned", "sent", "tenant", "trace", "tries", "until"),
    )

    def __init__(self, id_: int, book: "Book", tenant: Tenant, lane: Lane, at: int, *, body: bytes) -> None:
        self.id = id_
        self.book = book
        self.tenant = tenant
        self.lane = lane
        self.at = at
        """Since when it could be handled."""
        self.body = body
        self.place = Place.NOWHERE
        self.until = 0
        """When it becomes ready, while it is leased or delayed."""
        self.tries = 0
        self.returned = 0
        """Deliveries that do not count as attempts."""
        self.expired_leases = 0
        """Leases that expired without settlement."""
        self.sent: int | None = None
        """When it was first ready, if it has been delayed since."""
        self.group: Group | None = None
        self.trace: bytes | None = None
        self.deadline: float | None = None
        self.expires: int | None = None
        """When its own ttl ends, or None if the queue's ttl applies."""
        self.publication: Publication | None = None

    @property
    def age_from(self) -> int:
        """When it was sent, or first became due."""
        return self.at if self.sent is None else self.sent


class Dead(msgspec.Struct, frozen=True):
    """A message that was buried."""

    message: Message
    buried: int
    why: Bury


class Book:
    """The state of a queue. Not thread-safe."""

    def __init__(self, name: str, policy: QueuePolicy, messages: dict[int, Message]) -> None:
        self.name = name
        self.policy = policy
        self.origin = secrets.randbits(62) | 1
        self.now = 0.0
        self.at = 0
        self.messages = messages
        """The messages of all queues that are not dead, by id."""
        self.topics: set[str] = set()
        self.tenants: dict[str, Tenant] = {}
        self.busy: dict[str, Tenant] = {}
        """Tenants with waiting messages."""
        self.lanes: dict[int, Lane] = {}
        self.ranks: list[Ordered[Lane]] = [Ordered() for _ in range(2 * PRIORITY_LEVELS)]
        """Lanes with waiting messages by rank, ordered by turn."""
        self.held: Ordered[Message] = Ordered()
        """Leased and delayed messages, ordered by `until`."""
        self.parked: Ordered[Message] = Ordered()
        """Messages that wait for earlier ones of their group, ordered by `at`."""
        self.resent: Ordered[Message] = Ordered()
        """Messages that were delayed after they were sent, ordered by when they were sent."""
        self.mortal: Ordered[Message] = Ordered()
        """Messages with their own ttl, ordered by when it ends."""
        self.groups: dict[tuple[int, str], Group] = {}
        self.dead: Ordered[Dead] = Ordered()
        self.keys = Keys()
        self._serial = 0
        self._tenant_ids = count(1)

    def at_time(self, now: float) -> "Book":
        """Set the time of the next operation, and return this book."""
        before, self.now, self.at = self.at, now, milliseconds(now)
        if self.at <= before - SECOND:
            self._move(self.at - before)
        return self

    def _move(self, shift: int) -> None:
        """Move planned times after the clock was set back, so that they are as far away as before."""
        for message in list(self.held.between(0, NEVER)):
            self.held.remove(message.until, message.id)
            message.until += shift
            if message.place is Place.DELAYED:
                message.at += shift
            self.held.add(message.until, message.id, message)
        for message in list(self.parked.between(0, NEVER)):
            self.parked.remove(message.at, message.id)
            message.at += shift
            self.parked.add(message.at, message.id, message)
        self.keys.end_by(self.at + milliseconds(self.policy.dedupe_for))
        for lane in self.lanes.values():
            if lane.turn > self.at:
                self.turn(lane, self.at)

    # Tenants, lanes and groups

    def tenant(self, name: str) -> Tenant:
        """Return a tenant. Create it if necessary."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = Tenant(next(self._tenant_ids), name)
        return found

    def forget_tenants(self, names: Iterable[str]) -> None:
        """Delete those of the tenants that nothing refers to, with their own lanes."""
        for name in names:
            tenant = self.tenants.get(name)
            if tenant is None or not self._is_unused(tenant):
                continue
            lanes = [lane for number in tenant_lanes(tenant.id) if (lane := self.lanes.get(number)) is not None]
            # A new lane is served before all that have been served: it must not overtake them that way.
            if not any(0 < (self.ranks[lane.rank].first(1) or 0) < lane.turn for lane in lanes):
                del self.tenants[name]
                for lane in lanes:
                    del self.lanes[lane.number]

    def _is_unused(self, tenant: Tenant) -> bool:
        return (
            not (tenant.ready or tenant.leased or tenant.delayed or tenant.dead or self.keys.has_any(tenant.id))
            and tenant.own_limits is None
            and tenant.used <= self.at - milliseconds(FORGET_AFTER)
            and tenant.buckets.has_full_buckets(self.now)
        )

    def limits(self, tenant: Tenant) -> Limits:
        """Return the limits that apply to a tenant."""
        return self.policy.limits if tenant.own_limits is None else tenant.own_limits

    def lane(self, number: int) -> Lane:
        """Return a lane. Create it if necessary."""
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(number, self._next_serial())
        return found

    def turn(self, lane: Lane, at: int) -> None:
        """Set when a lane was served, or before which time it must not be."""
        if lane.waiting:
            self.ranks[lane.rank].remove(lane.turn, lane.serial)
        lane.turn, lane.serial = at, self._next_serial()
        if lane.waiting:
            self.ranks[lane.rank].add(lane.turn, lane.serial, lane)

    def group(self, tenant: Tenant, name: str) -> Group:
        """Return a group of a tenant. Create it if necessary."""
        return self.groups.setdefault((tenant.id, name), Group(tenant, name))

    # Messages

    def expires_at(self, message: Message) -> int:
        """Return when the ttl of a message ends."""
        if message.expires is not None:
            return message.expires
        ttl = self.policy.ttl
        return NEVER if ttl is None else message.age_from + milliseconds(ttl)

    def keep(self, message: Message) -> None:
        """Store a new message as ready, as delayed, or as parked behind earlier ones of its group."""
        self.messages[message.id] = message
        if message.expires is not None:
            self.mortal.add(message.expires, message.id, message)
        if message.sent is not None:
            self.resent.add(message.sent, message.id, message)
        is_first = True
        if message.group is not None:
            is_first = not message.group.members
            message.group.members.add(message.id, 0, message)
        if is_first:
            self._begin(message)
        else:
            self.enter(message, Place.PARKED)

    def forget(self, message: Message) -> None:
        """Delete a message. The next of its group may be handled, unless the deleted one was parked."""
        had_turn = message.place is not Place.PARKED
        self.leave(message)
        del self.messages[message.id]
        if message.expires is not None:
            self.mortal.remove(message.expires, message.id)
        if message.sent is not None:
            self.resent.remove(message.sent, message.id)
        group = message.group
        if group is None:
            return
        group.members.remove(message.id, 0)
        following = next(group.members.between(0, NEVER), None)
        if following is None:
            del self.groups[group.tenant.id, group.name]
        elif had_turn:
            self.leave(following)
            self._begin(following)

    def bury(self, message: Message, why: Bury) -> None:
        """Move a message to the dead letters."""
        self.forget(message)
        message.lane.dead += 1
        message.tenant.dead += 1
        self.dead.add(message.id, 0, Dead(message, self.at, why))

    def delay(self, message: Message, until: int) -> None:
        """Make a leased message ready at a later time. It is fresh then, but its age counts from when it was sent."""
        self.leave(message)
        if message.sent is None:
            message.sent = message.at
            self.resent.add(message.sent, message.id, message)
        message.at = until
        self.enter(message, Place.DELAYED, until)

    def enter(self, message: Message, place: Place, until: int = 0) -> None:
        """Put a message that is in no place into one."""
        lane, tenant = message.lane, message.tenant
        message.place, message.until = place, until
        tenant.used = self.at
        match place:
            case Place.READY:
                if not lane.waiting:
                    self.ranks[lane.rank].add(lane.turn, lane.serial, lane)
                lane.waiting.add(message.at, message.id, message)
                tenant.ready += 1
                tenant.spilled += lane.is_spill
                self.busy[tenant.name] = tenant
            case Place.LEASED:
                self.held.add(until, message.id, message)
                lane.leased += 1
                tenant.leased += 1
            case Place.DELAYED:
                self.held.add(until, message.id, message)
                lane.delayed += 1
                tenant.delayed += 1
            case _:
                self.parked.add(message.at, message.id, message)
                lane.delayed += 1
                tenant.delayed += 1

    def leave(self, message: Message) -> None:
        """Take a message out of its place."""
        lane, tenant = message.lane, message.tenant
        tenant.used = self.at
        match message.place:
            case Place.READY:
                lane.waiting.remove(message.at, message.id)
                if not lane.waiting:
                    self.ranks[lane.rank].remove(lane.turn, lane.serial)
                tenant.ready -= 1
                tenant.spilled -= lane.is_spill
                if not tenant.ready:
                    del self.busy[tenant.name]
            case Place.LEASED:
                self.held.remove(message.until, message.id)
                lane.leased -= 1
                tenant.leased -= 1
            case Place.DELAYED:
                self.held.remove(message.until, message.id)
                lane.delayed -= 1
                tenant.delayed -= 1
            case _:
                self.parked.remove(message.at, message.id)
                lane.delayed -= 1
                tenant.delayed -= 1
        message.place = Place.NOWHERE

    def _begin(self, message: Message) -> None:
        if message.at > self.at:
            self.enter(message, Place.DELAYED, message.at)
        else:
            self.enter(message, Place.READY)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

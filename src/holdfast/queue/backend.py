"""The interface between queues and the stores of their messages: one Protocol and its values. Pure.

For authors of backends; `holdfast.queue.open` says how a backend is found by its address.

Every backend promises, and `holdfast.testing.queue` tests:
- A message for which `send` has returned survives every crash, and is delivered at least once.
- `lease` leases a message to one worker at a time. A receipt is valid until the message becomes ready again: because
  its worker released it, or because its lease expired and a later `lease` or `sweep` of any process noticed it, even if
  no other worker has leased it yet. Settling with an invalid receipt is refused, and changes nothing.
- Limits of tenants count for all processes together, and are applied in the transaction that uses them.
- OutcomeUnknown means that the operation may have been done; after any other error it was not.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, Self

import msgspec

from holdfast._errors import InvalidValue
from holdfast._names import check_queue_name, format_count
from holdfast.queue.message import (
    MAX_DURATION,
    Ack,
    Bury,
    DeadLetter,
    Delivery,
    Drop,
    ExtendLease,
    OutgoingMessage,
    Receipt,
    RefusedMessage,
    Release,
    RetryLater,
    SentMessage,
    Settlement,
    check_message,
    check_settlement,
    check_tenant,
    is_spill_lane,
)
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.queue.rules.leasing import TenantCounters

__all__ = [
    "FULL_CAPABILITIES",
    "Ack",
    "Backend",
    "Bury",
    "Capabilities",
    "DeadLetter",
    "DeadLetterQuery",
    "Drop",
    "ExtendLease",
    "LaneDepth",
    "LeaseRequest",
    "LeaseResult",
    "MessageInfo",
    "MessageState",
    "QueueChange",
    "QueueSnapshot",
    "Receipt",
    "Release",
    "RetryLater",
    "Settlement",
    "TenantCounters",
    "TenantDepth",
    "Totals",
    "check_change",
    "check_message",
    "check_query",
    "check_request",
    "check_settlement",
    "sum_lanes",
]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Optional abilities of a backend, beyond storing, leasing and deleting messages. Callers read them first."""

    groups: bool = True
    """Messages of one group are handled one after the other. Without it, sending a message with a group is refused."""
    deduplication: bool = True
    """Only the first of several messages with one key is stored. Without it, sending one with a key is refused."""
    topics: bool = True
    """Queues can subscribe to topics. Without it, `Topic` refuses to publish and to subscribe."""
    exact_counts: bool = True
    """Depths are exact. Without it, they are estimates that may be out of date, and commands mark them as such."""
    fleet_limits: bool = True
    """Limits of tenants apply across all processes. Without it, `holdfast queue limits` says that they do not."""
    max_delay: float | None = None
    """Maximum delay of a message in seconds, or None for a year. Sending a longer one is refused; workers retry no
    later than that."""
    max_lease: float | None = None
    """Maximum seconds of a lease, or None for the maximum of a policy. Workers shorten their leases to it."""


FULL_CAPABILITIES = Capabilities()
"""The capabilities of a backend without restrictions."""


def require_support(backend: "Backend", messages: Iterable[OutgoingMessage]) -> None:
    """Raise InvalidValue if a message has a group, a key or a delay that the backend does not support."""
    able = backend.capabilities
    if able is FULL_CAPABILITIES:
        return
    for message in messages:
        if message.group is not None and not able.groups:
            raise InvalidValue(f"group {message.group}: this backend does not support groups; send without one")
        if message.key is not None and not able.deduplication:
            raise InvalidValue(
                f"deduplication key {message.key}: this backend does not support deduplication; send without a key"
            )
        if able.max_delay is not None and message.delay > able.max_delay:
            raise InvalidValue(
                f"a delay of {message.delay:g} s: this backend delays messages by at most {able.max_delay:g} s"
            )


def require_topics(backend: "Backend") -> None:
    """Raise InvalidValue if the backend has no topics."""
    if not backend.capabilities.topics:
        raise InvalidValue("this backend does not support topics: send to each queue instead")


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of one worker for messages."""

    queue: str
    count: int
    """Maximum number of messages."""
    lease: float
    """Seconds after which the messages are delivered again, unless they are settled or the lease is extended."""
    leased_so_far: int = 0
    """Messages leased by this worker so far: its position in the cycle of backlog, low-priority and spill shares."""
    caps: Mapping[str, int] = {}
    """Maximum leased messages by tenant. Further messages of such a tenant in shared lanes are spilled."""


class LeaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one lease request."""

    deliveries: Sequence[Delivery] = ()
    tenants: Mapping[str, TenantCounters] = {}
    """Counters, after this lease, of the tenants whose messages were examined."""
    are_others_waiting: bool = False
    """Whether messages of tenants that are not in `tenants` are waiting."""
    next_due: float | None = None
    """Seconds until more messages may be ready, because a delay or a lease ends; None if that is not foreseeable."""
    spilled: int = 0
    """Messages moved to their tenants' overflow lanes while leasing."""
    dropped: int = 0
    """Messages dropped because they were older than their ttl."""
    buried: int = 0
    """Messages buried after `max_attempts` deliveries, the last of which expired without settlement."""
    redelivered: int = 0
    """Messages made ready again because their leases had expired."""


def check_request(request: LeaseRequest) -> LeaseRequest:
    """Return `request`, or raise InvalidValue if no backend can fulfil it."""
    if request.count < 1 or not 0 < request.lease <= MAX_DURATION:
        raise InvalidValue(
            f"a lease of {format_count(request.count, 'message')} for {request.lease} s: expected at least 1, for more "
            "than 0 s and at most a year"
        )
    return request


class LaneDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a queue."""

    lane: int
    ready: int
    """Messages of this lane that can be handled now."""
    leased: int
    delayed: int
    dead: int
    oldest_since: float | None
    """Since when the oldest waiting message has been waiting, or None if no message waits."""

    @property
    def is_spilled(self) -> bool:
        """Whether this is the overflow lane of one tenant."""
        return is_spill_lane(self.lane)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes of a queue together. Each message is in one state."""

    ready: int = 0
    """Messages that can be handled now, without spilled ones."""
    spilled: int = 0
    """Messages that wait in the overflow lanes of their tenants."""
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    lanes_in_use: int = 0
    """Number of lanes that are not empty."""
    oldest_since: float | None = None
    """Since when the oldest waiting message has been waiting, or None if no message waits."""
    oldest_ready_since: float | None = None
    """`oldest_since` without spilled messages."""

    @property
    def waiting(self) -> int:
        """Messages that can be handled now, spilled ones included."""
        return self.ready + self.spilled


def sum_lanes(lanes: Iterable[LaneDepth]) -> Totals:
    """Return the sums over all lanes, for a backend that has all of them in memory."""
    lanes = tuple(lanes)
    shared = [lane for lane in lanes if not lane.is_spilled]
    ready = sum(lane.ready for lane in shared)
    return Totals(
        ready=ready,
        spilled=sum(lane.ready for lane in lanes) - ready,
        leased=sum(lane.leased for lane in lanes),
        delayed=sum(lane.delayed for lane in lanes),
        dead=sum(lane.dead for lane in lanes),
        lanes_in_use=len(lanes),
        oldest_since=min((lane.oldest_since for lane in lanes if lane.oldest_since is not None), default=None),
        oldest_ready_since=min((lane.oldest_since for lane in shared if lane.oldest_since is not None), default=None),
    )


class TenantDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one tenant of a queue, by the states of `Totals`."""

    tenant: str
    ready: int
    spilled: int
    leased: int
    delayed: int
    """Messages that are not due yet, or wait for earlier messages of their group."""
    dead: int
    limits: Limits | None = None
    """The tenant's own limits, or None if those of the queue apply."""

    @property
    def waiting(self) -> int:
        """Messages of the tenant that can be handled now, spilled ones included."""
        return self.ready + self.spilled


class MessageState(StrEnum):
    """The state of a message that has not been handled yet."""

    READY = "ready"
    """The message can be handled now. It may be spilled."""
    DELAYED = "delayed"
    """The message may not be handled yet: its delay is not over, or earlier messages of its group come first."""
    LEASED = "leased"
    DEAD = "dead"


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One message that has not been handled yet, as `Backend.inspect` finds it."""

    tenant: str
    state: MessageState
    attempts: int
    """Deliveries so far, without those that were released unhandled."""
    sent_at: float
    """When the message was sent, or first became due if it was sent with a delay."""
    until: float | None = None
    """When its delay or its lease ends, or None."""


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue at one moment."""

    queue: str
    at: float
    policy: QueuePolicy
    lanes: Sequence[LaneDepth]
    """The lanes that are not empty; if there are very many, the deepest."""
    tenants: Sequence[TenantDepth]
    """The requested tenants, and those with the most waiting messages."""
    totals: Totals = Totals()
    """Sums over all lanes, listed or not; all 0 if lanes were not requested."""
    topics: Sequence[str] = ()
    """The topics that the queue subscribes to."""
    lanes_left_out: int = 0
    """Number of lanes that are neither empty nor listed, because there are too many."""
    messages: Mapping[int, MessageInfo] = {}
    """The requested messages by id, as far as they are in the queue."""


class DeadLetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of dead letters: all of a queue, or those that match every given condition."""

    queue: str
    tenant: str | None = None
    reason: str | None = None
    """Text that the reason must contain."""
    ids: tuple[int, ...] = ()
    buried_before: float | None = None
    after: int = 0
    """Only dead letters with a greater id: pass the last id of the previous page."""
    limit: int = 100


def check_query(query: DeadLetterQuery) -> DeadLetterQuery:
    """Return `query`, or raise InvalidValue if it can match nothing."""
    if query.limit < 1:
        raise InvalidValue(f"at most {query.limit} dead letters: expected 1 or more")
    return query


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a queue. None and empty fields change nothing."""

    policy: QueuePolicy | None = None
    limits: Mapping[str, Limits | None] = {}
    """New limits by tenant. None removes a tenant's own limits, so that those of the queue apply."""
    subscribe: Sequence[str] = ()
    """Topics to subscribe to: the queue gets messages that are published from now on."""
    unsubscribe: Sequence[str] = ()


def check_change(change: QueueChange) -> QueueChange:
    """Return `change`, or raise InvalidValue for an invalid name of a topic or tenant."""
    for topic in change.subscribe:
        check_queue_name(topic, "topic")
    for tenant in change.limits:
        check_tenant(tenant)
    return change


class Backend(Protocol):
    """A store of messages. Thread-safe; use as a context manager, or call `close`."""

    @property
    def capabilities(self) -> Capabilities:
        """The optional abilities of this backend."""

    def send(
        self, destination: str, messages: Sequence[OutgoingMessage], *, is_topic: bool = False
    ) -> Sequence[SentMessage | RefusedMessage]:
        """Store messages in the queue `destination` in one transaction, and return a result for each message.

        With `is_topic`, `destination` is a topic: every queue that subscribes to it gets each message, and the results
        are ordered by message, then queue. Without subscribers nothing is stored. Raise NotFound for an unknown queue.
        """

    def lease(self, request: LeaseRequest) -> LeaseResult:
        """Lease waiting messages to a worker."""

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Apply settlements. Return for each whether its receipt was still valid; invalid ones change nothing."""

    def wait(self, queue: str, timeout: float) -> bool:
        """Block until a message may have become ready, at most `timeout` seconds. Return whether one may have."""

    def sweep(self, queue: str, before: float | None = None) -> int:
        """Drop messages that are not leased and that were sent before a time, or are older than their ttl.

        Also make ready: delayed messages that are due, and messages whose leases have expired. May forget tenants
        without messages, dead letters, keys and limits of their own, once their allowances are full again. Return the
        number of dropped messages.
        """

    def inspect(
        self,
        queue: str,
        *,
        tenants: Sequence[str] = (),
        top: int = 20,
        messages: Sequence[int] = (),
        lanes: bool = True,
    ) -> QueueSnapshot:
        """Return the state of the queue. The cost grows with the number of lanes, not of messages.

        `messages` are ids of messages to look up, and `tenants` are listed in addition to the `top` tenants with the
        most waiting messages. Without `lanes`, no lane is listed or counted, and the call is cheaper.
        """

    def list_dead_letters(self, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Return the dead letters that match, in the order of their ids."""

    def redrive(self, query: DeadLetterQuery, *, discard: bool = False) -> int:
        """Put dead letters back into their queue, or delete them. Return their number, at most `query.limit`."""

    def change(self, queue: str, change: QueueChange, *, create: bool = False) -> QueuePolicy:
        """Change an existing queue, or with `create` create it with the given change. Return its policy.

        With `create`, a queue that exists already is not changed. Without it, raise NotFound for an unknown queue.
        """

    def list_queues(self) -> Sequence[str]:
        """Return the names of all queues, sorted."""

    def close(self) -> None:
        """Close the backend. May be repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

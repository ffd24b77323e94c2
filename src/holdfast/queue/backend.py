"""The seam between queues and what keeps their messages: one Protocol, and the values that go through it. Pure.

For authors of backends; `holdfast.queue.open` says how a backend is found by its address.

What every backend promises, and `holdfast.testing.queue` tests:
- A message for which `send` has returned is kept through a crash of anything, and delivered at least once.
- `lease` hands a message to one worker at a time. A receipt is good until the message was made ready again: because its
  worker said so, or because the lease had ended and anybody asked for messages or swept since. Nobody need have it yet.
  What is settled with an older receipt is refused, and changes nothing.
- What a tenant may do is counted for all processes together, in the same step that does it.
- OutcomeUnknown means that it may have been done; every other error that nothing was done.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, Self

import msgspec

from holdfast._errors import InvalidValue
from holdfast._names import check_queue_name
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
    """What a backend can do beyond keeping, leasing and forgetting messages. Callers read it before they ask."""

    groups: bool = True
    """Messages of one group are handled one after the other. Without it, sending one of a group is refused."""
    deduplication: bool = True
    """Of several messages with one key, the first alone is kept. Without it, sending one with a key is refused."""
    topics: bool = True
    """Queues can subscribe to topics. Without it, `Topic` refuses to publish and to subscribe."""
    exact_counts: bool = True
    """Depths are exact. Without it, they are estimates of a while ago, and commands mark them as such."""
    fleet_limits: bool = True
    """Limits of tenants hold across all processes. Without it, `holdfast queue limits` says that they do not."""
    max_delay: float | None = None
    """Seconds that a message can be delayed at most; None: a year. Sending a longer one is refused; workers retry no
    later than that."""
    max_lease: float | None = None
    """Seconds that a lease can last at most; None: as long as a policy may say. Workers lease for no longer."""


FULL_CAPABILITIES = Capabilities()
"""What a backend can do that can do everything."""


def require_support(backend: "Backend", messages: Iterable[OutgoingMessage]) -> None:
    """Raise InvalidValue if a message asks for what the backend cannot do: groups, deduplication, so long a delay."""
    able = backend.capabilities
    if able is FULL_CAPABILITIES:
        return
    for message in messages:
        if message.group is not None and not able.groups:
            raise InvalidValue(f"group {message.group}: these queues cannot keep the order of a group; send without it")
        if message.key is not None and not able.deduplication:
            raise InvalidValue(f"deduplication key {message.key}: these queues keep duplicates; send without it")
        if able.max_delay is not None and message.delay > able.max_delay:
            raise InvalidValue(
                f"a delay of {message.delay:g} s: these queues delay a message by at most {able.max_delay:g} s"
            )


def require_topics(backend: "Backend") -> None:
    """Raise InvalidValue if the backend has no topics."""
    if not backend.capabilities.topics:
        raise InvalidValue("these queues have no topics: send to each queue instead")


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for."""

    queue: str
    count: int
    """At most so many messages."""
    lease: float
    """Seconds after which they are delivered again, unless they are settled or the lease is made longer."""
    leased_before: int = 0
    """Messages that this worker was handed before, by which the shares of old and other messages are counted."""
    caps: Mapping[str, int] = {}
    """Tenants of which at most so many may be in the hands of workers; the rest of theirs is moved aside."""


class LeaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker was given."""

    deliveries: Sequence[Delivery] = ()
    tenants: Mapping[str, TenantCounters] = {}
    """The tenants whose messages were looked at, as they are now."""
    are_others_waiting: bool = False
    """Whether messages wait in lanes of other tenants than those."""
    next_due: float | None = None
    """Seconds until there may be something that there is not now: a delay, or the lease of somebody else, ends."""
    spilled: int = 0
    """Messages that were moved to where the excess of their tenants waits."""
    dropped: int = 0
    """Messages that were too old to be worth anything."""
    buried: int = 0
    """Messages that were delivered too often without a word from their workers."""
    redelivered: int = 0
    """Messages whose leases had ended."""


def check_request(request: LeaseRequest) -> LeaseRequest:
    """Return `request`, or raise InvalidValue if no backend can fulfil it."""
    if request.count < 1 or not 0 < request.lease <= MAX_DURATION:
        raise InvalidValue(
            f"{request.count} messages for {request.lease} s: expected at least 1, for more than 0 s and at most a year"
        )
    return request


class LaneDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a queue."""

    lane: int
    ready: int
    """Messages that wait in it; in a lane below 0 they are spilled."""
    leased: int
    delayed: int
    dead: int
    oldest_since: float | None
    """Since when the message has been waiting that waits the longest; None: none waits."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes of a queue together. Each message is in one state."""

    ready: int = 0
    """Waiting in lanes that tenants share, or in those that they have instead; without those that are spilled."""
    spilled: int = 0
    """Waiting apart, where the excess of tenants does."""
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    lanes_in_use: int = 0
    """Lanes that are not empty."""
    oldest_since: float | None = None
    """Since when the message has been waiting that waits the longest; None: none waits."""
    oldest_ready_since: float | None = None
    """The same, without those that are spilled."""

    @property
    def waiting(self) -> int:
        """All that could be handled now."""
        return self.ready + self.spilled


def sum_lanes(lanes: Iterable[LaneDepth]) -> Totals:
    """The sums over lanes, for a backend that has all of them at hand."""
    lanes = tuple(lanes)
    shared = [lane for lane in lanes if lane.lane >= 0]
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
    """One tenant of a queue, in the states of `Totals`."""

    tenant: str
    ready: int
    spilled: int
    leased: int
    delayed: int
    """Messages that are not due yet, or wait for others of their group."""
    dead: int
    limits: Limits | None = None
    """Its own limits; None: it has those of the queue."""

    @property
    def waiting(self) -> int:
        """All of its messages that could be handled now."""
        return self.ready + self.spilled


class MessageState(StrEnum):
    """Where a message is in its life."""

    WAITING = "waiting"
    DELAYED = "delayed"
    """It may not be handled yet: its delay is not over, or others of its group come first."""
    LEASED = "leased"
    DEAD = "dead"


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One message that has not been handled yet."""

    tenant: str
    state: MessageState
    attempts: int
    """Deliveries so far, without those that were handed back unhandled."""
    sent_at: float
    """When it was first sent, or fell due for the first time."""
    until: float | None = None
    """When its delay, or the lease of whoever holds it, ends."""


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment."""

    queue: str
    at: float
    policy: QueuePolicy
    lanes: Sequence[LaneDepth]
    """Those that are not empty; of very many, the deepest."""
    tenants: Sequence[TenantDepth]
    """Those that were asked for, and those with the most messages waiting."""
    totals: Totals = Totals()
    """All lanes together, also those that are not listed; nothing at all where no lanes were asked for."""
    topics: Sequence[str] = ()
    """The topics that it is subscribed to."""
    lanes_left_out: int = 0
    """Lanes of single tenants that are not empty and not listed, because there are so many."""
    messages: Mapping[int, MessageInfo] = {}
    """Those that were asked for, by id, as far as they are in the queue."""


class DeadLetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant: all of a queue, or those that fulfil every condition that is given."""

    queue: str
    tenant: str | None = None
    reason: str | None = None
    """Text that the reason contains."""
    ids: tuple[int, ...] = ()
    buried_before: float | None = None
    after: int = 0
    """Only those with a greater id: the last one of the page before."""
    limit: int = 100


def check_query(query: DeadLetterQuery) -> DeadLetterQuery:
    """Return `query`, or raise InvalidValue if it can match nothing."""
    if query.limit < 1:
        raise InvalidValue(f"at most {query.limit} dead letters: expected 1 or more")
    return query


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a queue; what is None stays as it is."""

    policy: QueuePolicy | None = None
    limits: Mapping[str, Limits | None] = {}
    """Limits of tenants by name; None: those of the queue from now on."""
    subscribe: Sequence[str] = ()
    """Topics whose messages it gets from now on."""
    unsubscribe: Sequence[str] = ()


def check_change(change: QueueChange) -> QueueChange:
    """Return `change`, or raise InvalidValue for a name that no topic or no tenant can have."""
    for topic in change.subscribe:
        check_queue_name(topic, "topic")
    for tenant in change.limits:
        check_tenant(tenant)
    return change


class Backend(Protocol):
    """What keeps messages. Thread-safe; use as a context manager, or call `close`."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def send(
        self, destination: str, messages: Sequence[OutgoingMessage], *, is_topic: bool = False
    ) -> Sequence[SentMessage | RefusedMessage]:
        """Keep messages in the queue `destination`, all of them in one step, and say what became of each.

        With `is_topic`, `destination` is a topic: every queue that subscribes to it gets each message, in the order of
        the messages. Raises NotFound for a queue that nobody has made. Of a topic without subscribers nothing is kept.
        """

    def lease(self, request: LeaseRequest) -> LeaseResult:
        """Lease messages that wait to a worker."""

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Say what became of messages; whether each was still held by its receipt. Those that were not stay as is."""

    def wait(self, queue: str, timeout: float) -> bool:
        """Block until something may have been sent to the queue, or for so long; true if it may have been."""

    def sweep(self, queue: str, before: float | None = None) -> int:
        """Drop messages that nobody holds and that were sent before a time, or are older than their ttl; how many.

        Also does what else is due: makes what was delayed ready, and what was leased for too long.
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
        """How deep the queue is. Takes as long as it has lanes, however many messages there are.

        `messages` are ids of those to look for. Without `lanes` none is listed or counted, and it takes no longer than
        what else is asked for.
        """

    def list_dead_letters(self, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """The dead letters, in the order of their ids."""

    def redrive(self, query: DeadLetterQuery, *, discard: bool = False) -> int:
        """Put dead letters back into their queue, or forget them; how many, at most `query.limit`."""

    def change(self, queue: str, change: QueueChange, *, create: bool = False) -> QueuePolicy:
        """Change a queue that exists, or with `create` make one with all that; returns its policy.

        With `create`, a queue that exists already keeps what it has, and nothing about it is changed.
        """

    def list_queues(self) -> Sequence[str]:
        """Return the names of all queues, sorted."""

    def close(self) -> None:
        """Let go of everything. May be repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

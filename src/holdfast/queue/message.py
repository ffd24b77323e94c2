"""What goes into a queue, what comes out of it, and what becomes of it: the values of the seam. Pure.

Times are seconds since the epoch. Structures of msgspec: several are made for every message.
"""

import hashlib
import re
from collections import Counter
from enum import StrEnum
from typing import TypeAlias

import msgspec

from holdfast._errors import InvalidValue
from holdfast._types import MAX_TENANT_BYTES

PRIORITY_LEVELS = 4
"""Priorities there are: 0 is the most urgent, 3 the least."""
DEFAULT_PRIORITY = 2
"""The priority of whoever names none: there is room on both sides."""
MAX_BODY_BYTES = 1 << 20
"""Longest body: what is larger belongs into a store of its own, with its address in the message."""
MAX_KEY_BYTES = 256
"""Longest deduplication key and longest name of a group, in UTF-8 bytes: they are indexed."""
MAX_DURATION = 366 * 86400.0
"""Longest delay and ttl, in seconds."""
MAX_DEADLINE = 1e11
"""Latest deadline, some 3000 years from now: whoever gives milliseconds by mistake is told so."""
_PRIORITIES = range(PRIORITY_LEVELS)
_NUMBER: tuple[type, ...] = (int, float)


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to be sent."""

    tenant: str
    body: bytes
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    """Seconds before it may be handled."""
    group: str | None = None
    """Messages of one group of a tenant are handled one after the other, in the order in which they were sent."""
    key: str | None = None
    """Of several messages with the same key within the queue's `dedupe_for` seconds, the first alone is kept."""
    ttl: float | None = None
    """Seconds after which it is worth nothing, and dropped; None: the queue's own."""
    deadline: float | None = None
    """When the caller stops waiting for it; handlers find it as their deadline."""
    trace: str | None = None
    """The W3C `traceparent`; None: one that follows from the message's id."""


def check_message(message: OutgoingMessage) -> OutgoingMessage:
    """Return `message`, or raise InvalidValue if no backend accepts it."""
    check_tenant(message.tenant)
    if not isinstance(message.body, bytes):
        raise InvalidValue(f"a body of type {type(message.body).__name__}: expected bytes")
    if len(message.body) > MAX_BODY_BYTES:
        raise InvalidValue(
            f"a body of {len(message.body)} bytes for tenant {message.tenant}: expected at most {MAX_BODY_BYTES}; "
            "store what is larger elsewhere, and send its address"
        )
    if type(message.priority) is not int or message.priority not in _PRIORITIES:
        raise InvalidValue(f"priority {message.priority!r}: expected 0, the most urgent, to {PRIORITY_LEVELS - 1}")
    if not isinstance(message.delay, _NUMBER) or not 0 <= message.delay <= MAX_DURATION:
        raise _wrong("a delay", message.delay, f"0 to {MAX_DURATION:.0f}, which is a year")
    if message.ttl is not None and (not isinstance(message.ttl, _NUMBER) or not 0 < message.ttl <= MAX_DURATION):
        raise _wrong("a ttl", message.ttl, f"more than 0, up to {MAX_DURATION:.0f}, which is a year")
    if message.deadline is not None and (
        not isinstance(message.deadline, _NUMBER) or not 0 <= message.deadline <= MAX_DEADLINE
    ):
        raise InvalidValue(f"a deadline at {message.deadline!r}: expected seconds since the epoch")
    if message.group is not None:
        _require_text("group", message.group, MAX_KEY_BYTES)
    if message.key is not None:
        _require_text("deduplication key", message.key, MAX_KEY_BYTES)
    if message.trace is not None and not isinstance(message.trace, str):
        raise InvalidValue(f"a trace of type {type(message.trace).__name__}: expected text, a W3C traceparent")
    return message


def _wrong(what: str, seconds: object, expected: str) -> InvalidValue:
    if isinstance(seconds, _NUMBER):
        return InvalidValue(f"{what} of {seconds} s: expected {expected}")
    return InvalidValue(f"{what} of type {type(seconds).__name__}: expected a number of seconds, {expected}")


def check_tenant(tenant: str) -> str:
    """Return `tenant`, or raise InvalidValue if no tenant of a queue can have this name."""
    _require_text("tenant", tenant, MAX_TENANT_BYTES)
    return tenant


def _require_text(what: str, text: str, max_bytes: int) -> None:
    if not isinstance(text, str):
        raise InvalidValue(f"{what} of type {type(text).__name__}: expected text")
    if text.isascii() and 1 <= len(text) <= max_bytes and "\0" not in text:
        return  # most are so, and need not be encoded to see it
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} {text[:32]!r} is not valid Unicode text") from error
    if not 1 <= size <= max_bytes or "\0" in text:
        raise InvalidValue(f"{what} {text[:32]!r} has {size} UTF-8 bytes: expected 1 to {max_bytes}, none of them 0")


class SentMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that is kept: from here on it will be handled at least once, dropped for its age, or buried."""

    id: int
    queue: str
    lane: int
    """Where it waits. Lanes below 0 are for the excess of one tenant."""
    trace: str
    pressure: float
    """How much of the backlog that its tenant may have there is: 0 nothing, 1 all of it."""
    is_duplicate: bool = False
    """Whether an earlier message had the same key: then this is that one's id."""

    @property
    def is_spilled(self) -> bool:
        """Whether it was more than its tenant may send at once, and waits until there is room."""
        return self.lane < 0


class RefusedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was not kept, because its tenant has sent too much."""

    queue: str
    tenant: str
    reason: "RefusalReason"
    retry_after: float
    """Seconds after which it would have been kept, if nothing else is sent."""
    pressure: float


class RefusalReason(StrEnum):
    """Why a message was not kept."""

    RATE = "rate"
    """More than the tenant's `max_rate`."""
    BACKLOG = "backlog"
    """The tenant has so much waiting that more would not be handled in time."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a worker holds a message by. A message that was delivered again since has another one."""

    id: int
    deliveries: int
    """Deliveries of the message so far, this one included."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message in the hands of a worker, until its lease ends."""

    receipt: Receipt
    queue: str
    lane: int
    tenant: str
    body: bytes
    attempt: int
    """The number of this attempt, counted from 1; without those that were handed back unhandled."""
    sent_at: float
    """When it was first sent, or fell due for the first time."""
    ready_since: float
    """Since when it could have been handled this time."""
    trace: str
    deadline: float | None = None
    group: str | None = None
    is_first_of_topic: bool = False
    """Whether nobody of those who subscribed to its topic had it before."""
    deaths: int = 0
    """How often it was in the hands of somebody who was not heard of again: perhaps because of it."""

    @property
    def id(self) -> int:
        return self.receipt.id


class Ack(msgspec.Struct, frozen=True, gc=False):
    """It is handled: forget it."""


class RetryLater(msgspec.Struct, frozen=True, gc=False):
    """Deliver it again after a delay."""

    delay: float
    is_attempt: bool = True
    """Whether this delivery was an attempt that failed; else it does not count as one."""


class Bury(msgspec.Struct, frozen=True, gc=False):
    """It will not be handled: keep it among the dead, where people look at it."""

    reason: str
    detail: str = ""
    """The traceback, if there is one."""


class Release(msgspec.Struct, frozen=True, gc=False):
    """It was not handled: let another worker have it at once. It does not count as an attempt."""


class ExtendLease(msgspec.Struct, frozen=True, gc=False):
    """It is still being handled: let the lease end so many seconds from now."""

    seconds: float


class Drop(msgspec.Struct, frozen=True, gc=False):
    """It is worth nothing any more: forget it, unhandled."""


Disposition: TypeAlias = Ack | RetryLater | Bury | Release | ExtendLease | Drop


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a message that a worker holds."""

    receipt: Receipt
    disposition: Disposition


def check_settlement(settlement: Settlement) -> Settlement:
    """Return `settlement`, or raise InvalidValue if no backend accepts it."""
    disposition = settlement.disposition
    if isinstance(disposition, RetryLater) and not 0 <= disposition.delay <= MAX_DURATION:
        raise InvalidValue(f"again after {disposition.delay} s: expected 0 to {MAX_DURATION:.0f}, which is a year")
    if isinstance(disposition, ExtendLease) and not 0 < disposition.seconds <= MAX_DURATION:
        raise InvalidValue(
            f"longer by {disposition.seconds} s: expected more than 0, up to {MAX_DURATION:.0f}, which is a year"
        )
    return settlement


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was buried."""

    id: int
    queue: str
    tenant: str
    body: bytes
    priority: int
    group: str | None
    attempts: int
    sent_at: float
    buried_at: float
    reason: str
    detail: str
    trace: str


_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def pack_trace(trace: str | None) -> bytes | None:
    """A W3C `traceparent` in 25 bytes instead of 55. What is none is not kept: it would help nobody."""
    match = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return None if match is None else bytes.fromhex("".join(match.groups()))


def unpack_trace(packed: bytes | None, origin: int, message: int) -> str:
    """The `traceparent`; without one, that of a message: the queue's own number `origin`, and the message's."""
    if packed is None:
        return f"00-{origin:016x}{message:016x}-{message:016x}-00"
    text = packed.hex()
    return f"00-{text[:32]}-{text[32:48]}-{text[48:]}"


_DIGEST_BYTES = 16
"""128 bits: two messages of one tenant do not have the same by chance."""


class BatchKeys:
    """The deduplication keys of a batch: each follows from the batch's key and from what the message says.

    Not from its index, which is another one when only what was refused is sent again. Equal messages are told apart by
    how many of them came before. Keeps some hundred bytes for each message.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._seen: Counter[bytes] = Counter()

    def next_key(self, message: OutgoingMessage) -> str:
        """Return the key of the next message: the same for the same body, priority, delay, group and ttl alone.

        Trace and deadline are those of a request, and do not count.
        """
        content = (self._key, message.priority, message.delay, message.group, message.ttl, message.body)
        digest = hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=_DIGEST_BYTES).digest()
        before = self._seen[digest]
        self._seen[digest] = before + 1
        return f"batch:{digest.hex()}:{before}"

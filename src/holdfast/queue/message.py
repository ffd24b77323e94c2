"""The values that a queue and its backends exchange: messages, deliveries, settlements and dead letters. Pure.

Times are seconds since the epoch. The classes are msgspec structs, because several are made for every message.
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
"""Number of priorities: 0 is the most urgent, 3 the least."""
DEFAULT_PRIORITY = 2
"""The priority of a message that names none: leaves room on both sides."""
MAX_BODY_BYTES = 1 << 20
"""Maximum size of a body. Store larger data elsewhere, and send its address."""
MAX_KEY_BYTES = 256
"""Maximum length of a deduplication key and of a group's name, in UTF-8 bytes: both are indexed."""
MAX_DURATION = 366 * 86400.0
"""Maximum delay and ttl, in seconds."""
MAX_DEADLINE = 1e11
"""Latest deadline, some 3000 years from now: rejects milliseconds given by mistake."""
_PRIORITIES = range(PRIORITY_LEVELS)
_NUMBER: tuple[type, ...] = (int, float)


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to be sent."""

    tenant: str
    body: bytes
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    """Seconds before the message may be handled."""
    group: str | None = None
    """Messages of one group of a tenant are handled one after the other, in the order in which they were sent."""
    key: str | None = None
    """Deduplication key. Of several messages with one key within `dedupe_for` seconds, only the first is stored."""
    ttl: float | None = None
    """Time to live in seconds: an older message is dropped unhandled. None means the ttl of the queue."""
    deadline: float | None = None
    """When the caller stops waiting for the result. It is the deadline of the handler."""
    trace: str | None = None
    """The W3C `traceparent`. None means one derived from the message's id."""


def check_message(message: OutgoingMessage) -> OutgoingMessage:
    """Return `message`, or raise InvalidValue if no backend accepts it."""
    check_tenant(message.tenant)
    if not isinstance(message.body, bytes):
        raise InvalidValue(f"a body of type {type(message.body).__name__}: expected bytes")
    if len(message.body) > MAX_BODY_BYTES:
        raise InvalidValue(
            f"a body of {len(message.body)} bytes for tenant {message.tenant}: expected at most {MAX_BODY_BYTES}; "
            "store larger data elsewhere, and send its address"
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
        return  # the usual case, decided without encoding
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} {text[:32]!r} is not valid Unicode text") from error
    if not 1 <= size <= max_bytes or "\0" in text:
        raise InvalidValue(f"{what} {text[:32]!r} has {size} UTF-8 bytes: expected 1 to {max_bytes}, none of them 0")


def is_spill_lane(lane: int) -> bool:
    """Return whether a lane is the overflow lane of one tenant: these lanes have negative numbers."""
    return lane < 0


class SentMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was stored. It will be handled at least once, dropped because of its ttl, or buried."""

    id: int
    queue: str
    lane: int
    """The lane in which the message waits. A negative number is its tenant's overflow lane: see `is_spilled`."""
    trace: str
    pressure: float
    """Share of the tenant's `max_waiting` in use, 0 to 1. At 1, further messages are refused."""
    is_duplicate: bool = False
    """Whether an earlier message had the same key. Then `id` is the id of the earlier message."""

    @property
    def is_spilled(self) -> bool:
        """Whether the message exceeded its tenant's share of the shared lanes, and waits in its overflow lane."""
        return is_spill_lane(self.lane)


class RefusedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was not stored, because its tenant exceeds a limit."""

    queue: str
    tenant: str
    reason: "RefusalReason"
    retry_after: float
    """Seconds after which the message would be accepted, if the tenant sends nothing else."""
    pressure: float
    """Share of the tenant's `max_waiting` in use, 0 to 1."""


class RefusalReason(StrEnum):
    """Why a message was refused."""

    MAX_RATE = "max_rate"
    """The tenant exceeds its `max_rate`."""
    MAX_WAITING = "max_waiting"
    """The tenant's waiting messages are at `max_waiting`, or so near to it that the tenant must send more slowly."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Proof of a lease. A message that is delivered again gets a new receipt, and the old one is invalid."""

    id: int
    deliveries: int
    """Deliveries of the message so far, including this one."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that is leased to a worker."""

    receipt: Receipt
    queue: str
    lane: int
    tenant: str
    body: bytes
    attempt: int
    """The number of this attempt, from 1. Deliveries that were released unhandled do not count."""
    sent_at: float
    """When the message was sent, or first became due if it was sent with a delay."""
    ready_since: float
    """When the message became ready for this delivery."""
    trace: str
    deadline: float | None = None
    group: str | None = None
    is_first_subscriber: bool = False
    """Whether the message was published to a topic, and no subscribed queue has delivered it before."""
    expired_leases: int = 0
    """Leases of the message that expired without settlement, perhaps because it crashed its workers."""

    @property
    def id(self) -> int:
        return self.receipt.id


class Ack(msgspec.Struct, frozen=True, gc=False):
    """The message was handled: delete it."""


class RetryLater(msgspec.Struct, frozen=True, gc=False):
    """Deliver the message again after a delay, in seconds."""

    delay: float
    is_attempt: bool = True
    """Whether this delivery counts as a failed attempt."""


class Bury(msgspec.Struct, frozen=True, gc=False):
    """Move the message to the dead letters."""

    reason: str
    detail: str = ""
    """The traceback, if there is one."""


class Release(msgspec.Struct, frozen=True, gc=False):
    """The message was not handled: let any worker lease it immediately. Does not count as an attempt."""


class ExtendLease(msgspec.Struct, frozen=True, gc=False):
    """The message is still being handled: let its lease end `seconds` from now."""

    seconds: float


class Drop(msgspec.Struct, frozen=True, gc=False):
    """The message is obsolete: delete it unhandled. Holdfast's own worker never settles a message in this way."""


Disposition: TypeAlias = Ack | RetryLater | Bury | Release | ExtendLease | Drop


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The disposition of one leased message."""

    receipt: Receipt
    disposition: Disposition


def check_settlement(settlement: Settlement) -> Settlement:
    """Return `settlement`, or raise InvalidValue if no backend accepts it."""
    disposition = settlement.disposition
    if isinstance(disposition, RetryLater) and not 0 <= disposition.delay <= MAX_DURATION:
        raise InvalidValue(
            f"RetryLater with a delay of {disposition.delay} s: expected 0 to {MAX_DURATION:.0f}, which is a year"
        )
    if isinstance(disposition, ExtendLease) and not 0 < disposition.seconds <= MAX_DURATION:
        raise InvalidValue(
            f"ExtendLease by {disposition.seconds} s: expected more than 0, up to {MAX_DURATION:.0f}, which is a year"
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
    """Encode a W3C `traceparent` in 25 bytes instead of 55. Return None for an invalid one."""
    match = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return None if match is None else bytes.fromhex("".join(match.groups()))


def unpack_trace(packed: bytes | None, origin: int, message: int) -> str:
    """Return the packed `traceparent`, or one derived from the queue's random number `origin` and the id."""
    if packed is None:
        return f"00-{origin:016x}{message:016x}-{message:016x}-00"
    text = packed.hex()
    return f"00-{text[:32]}-{text[32:48]}-{text[48:]}"


_DIGEST_BYTES = 16
"""128 bits: too many for two messages of a tenant to have the same digest."""


class BatchKeys:
    """The deduplication keys of a batch's messages, each derived from the batch's key and the message's content.

    The key does not depend on the index of the message, which changes if only refused messages are sent again. Equal
    messages are numbered. Uses some hundred bytes of memory for each message.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._seen: Counter[bytes] = Counter()

    def next_key(self, message: OutgoingMessage) -> str:
        """Return the key of the next message. It depends only on body, priority, delay, group and ttl.

        Trace and deadline belong to the request, and do not count.
        """
        content = (self._key, message.priority, message.delay, message.group, message.ttl, message.body)
        digest = hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=_DIGEST_BYTES).digest()
        before = self._seen[digest]
        self._seen[digest] = before + 1
        return f"batch:{digest.hex()}:{before}"

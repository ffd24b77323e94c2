"""The rules of telling people: which message follows for a verdict, and when a failed one is sent again. Pure.

An alert is told of the opening of a verdict, of its acknowledgement, of the end of a snooze if it is still open, and of
its end. If a verdict ends before the first message about it can have arrived, nobody is told of it: that message is
dropped. If the message may have arrived, because only its confirmation was lost, it is sent
again, and then the end.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from holdfast._backoff import Backoff, Chance
from holdfast._types import VerdictKind
from holdfast.alerts.message import AlertedVerdict, AlertEvent
from holdfast.calls.classify import Failure, FailureKind

UNKNOWN_SECONDS = 300.0
"""Time that a verdict of kind `unknown` is open before people are told: a restart or a gap of telemetry ends sooner."""
BACKOFF = Backoff(base=2.0, cap=300.0)
"""A second or two bridge a restart of the receiver. One attempt in five minutes does not harm one that is down."""
GIVE_UP_SECONDS = 86_400.0
"""A message that could not be sent for a day is no news. It stays in the record as failed."""
MAX_RETRY_AFTER = 3_600.0
"""Maximum seconds to wait for a receiver that sends Retry-After: a wrong one must not silence an alert for a day."""
RETRY_AFTER_SPREAD = 0.25
"""Part of Retry-After that is added at random, so that messages do not return at the same moment."""
_CERTAIN = frozenset({FailureKind.UNSENT, FailureKind.THROTTLED, FailureKind.PERMANENT})
"""Failures after which the receiver cannot have accepted the message."""


class DeliveryState(StrEnum):
    """The state of a message in the outbox."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"
    """It could not be sent for a day."""
    DROPPED = "dropped"
    """It was not needed any more: its verdict ended, or was snoozed, before anybody was told."""


class Delivery(Struct, frozen=True, kw_only=True):
    """One message in the outbox: to which alert, about what, and what became of it."""

    verdict: str
    alert: str
    number: int
    """Counts the messages of the alert about this verdict, from 1. They are sent in this order."""
    event: AlertEvent
    state: DeliveryState
    created_at: float
    due_at: float
    """When it is sent, or sent again."""
    attempts: int
    may_have_arrived: bool
    """Whether an attempt was made whose outcome is unknown."""
    delivered_at: float | None = None
    error: str | None = None
    """Why the last attempt failed."""


class QueueEvent(Struct, frozen=True):
    """The decision to tell people."""

    event: AlertEvent


class Drop(Struct, frozen=True):
    """The decision not to send a message that waits."""

    delivery: Delivery


Decision: TypeAlias = QueueEvent | Drop | None


def decide_next(verdict: AlertedVerdict, deliveries: Sequence[Delivery], after: float, now: float) -> Decision:
    """Return what follows for a verdict and one alert, given its messages so far in order; None means nothing now.

    `after` is how long a verdict must be open before the alert is told.
    """
    live = [each for each in deliveries if each.state is not DeliveryState.DROPPED]
    is_told = any(each.state is DeliveryState.DELIVERED or each.may_have_arrived for each in live)
    if verdict.closed_at is not None:
        return _decide_end(live, is_told=is_told)
    if verdict.acknowledged_at is not None:
        # Somebody takes care of it, so no alert is told for the first time, or reminded.
        is_new = is_told and all(each.event is not AlertEvent.ACKNOWLEDGED for each in live)
        return QueueEvent(AlertEvent.ACKNOWLEDGED) if is_new else _drop_unsent(live)
    snooze_end = verdict.snoozed_until or 0.0
    if now < snooze_end:
        return _drop_unsent(live)
    if not live:
        minimum = max(after, UNKNOWN_SECONDS if verdict.kind == VerdictKind.UNKNOWN else 0.0)
        return QueueEvent(AlertEvent.OPENED) if now - verdict.opened_at >= minimum else None
    return QueueEvent(AlertEvent.REMINDED) if live[-1].created_at < snooze_end else None


def _decide_end(live: Sequence[Delivery], *, is_told: bool) -> Decision:
    if not is_told:
        waiting = [each for each in live if each.state is DeliveryState.WAITING]
        return Drop(waiting[-1]) if waiting else None
    if live[-1].event is AlertEvent.RESOLVED:
        return None
    return _drop_unsent(live) or QueueEvent(AlertEvent.RESOLVED)


def _drop_unsent(live: Sequence[Delivery]) -> Drop | None:
    """Drop the last message if it is an alarm that cannot have arrived."""
    if not live or live[-1].event not in {AlertEvent.OPENED, AlertEvent.REMINDED}:
        return None
    is_unsent = live[-1].state is DeliveryState.WAITING and not live[-1].may_have_arrived
    return Drop(live[-1]) if is_unsent else None


class NextAttempt(Struct, frozen=True):
    """The state of a message after a failed attempt."""

    state: DeliveryState
    due_at: float
    may_have_arrived: bool


def plan_retry(
    delivery: Delivery, failure: Failure, now: float, chance: Chance, *, had_unknown_outcome: bool
) -> NextAttempt:
    """Return when the message is sent again. A permanent failure is repeated too: people correct addresses and tokens.

    `had_unknown_outcome` says whether an earlier attempt may have arrived.
    """
    pause = BACKOFF.delay(delivery.attempts, 0.0, chance)
    if failure.kind is FailureKind.PERMANENT:
        pause = BACKOFF.cap * (1 + chance()) / 2
    if failure.retry_after is not None:
        asked = min(failure.retry_after, MAX_RETRY_AFTER)
        pause = max(pause, asked * (1 + RETRY_AFTER_SPREAD * chance()))
    is_over = now + pause - delivery.created_at >= GIVE_UP_SECONDS
    state = DeliveryState.FAILED if is_over else DeliveryState.WAITING
    return NextAttempt(state, now + pause, had_unknown_outcome or failure.kind not in _CERTAIN)

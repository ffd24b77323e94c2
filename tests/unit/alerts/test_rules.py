"""Which message follows for a verdict, and when a failed one is sent again."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.alerts import AlertedVerdict, AlertEvent, Delivery, DeliveryState
from holdfast.alerts.rules import (
    BACKOFF,
    GIVE_UP_SECONDS,
    MAX_RETRY_AFTER,
    UNKNOWN_SECONDS,
    Decision,
    Drop,
    QueueEvent,
    decide_next,
    plan_retry,
)
from holdfast.calls import Failure, FailureKind
from tests.table import every_row
from tests.unit.alerts.world import START, verdict

OPENED, REMINDED, ACKNOWLEDGED, RESOLVED, _ = AlertEvent
NOW = START + 1000


def sent(
    event: AlertEvent = OPENED,
    state: DeliveryState = DeliveryState.DELIVERED,
    *,
    at: float = START + 30,
    unsure: bool = False,
    number: int = 1,
) -> Delivery:
    return Delivery(
        verdict="v",
        alert="on-call",
        number=number,
        event=event,
        state=state,
        created_at=at,
        due_at=at,
        attempts=1,
        may_have_arrived=unsure,
    )


WAITING = sent(state=DeliveryState.WAITING)
UNSURE = sent(state=DeliveryState.WAITING, unsure=True)
DROPPED = sent(state=DeliveryState.DROPPED)
FAILED = sent(state=DeliveryState.FAILED)
OPEN = verdict()
CLOSED = verdict(closed_at=NOW)
TAKEN = verdict(acknowledged_at=NOW, acknowledged_by="anna")
SNOOZED = verdict(snoozed_until=NOW + 60)
SNOOZE_OVER = verdict(snoozed_until=NOW - 60)
UNKNOWN = verdict(kind="unknown")


class Case(NamedTuple):
    name: str
    verdict: AlertedVerdict
    deliveries: Sequence[Delivery]
    expected: Decision
    now: float = NOW
    after: float = 0.0


CASES = [
    Case("a new verdict is told", OPEN, [], QueueEvent(OPENED)),
    Case("once", OPEN, [WAITING], None),
    Case("also after it was told", OPEN, [sent()], None),
    Case("not before its minimum", OPEN, [], None, START + 30 + 599, 600.0),
    Case("but from its minimum on", OPEN, [], QueueEvent(OPENED), START + 30 + 600, 600.0),
    Case("unknown must last", UNKNOWN, [], None, START + 30 + UNKNOWN_SECONDS - 1),
    Case("unknown that lasts is told", UNKNOWN, [], QueueEvent(OPENED), START + 30 + UNKNOWN_SECONDS),
    Case("what was dropped does not count", OPEN, [DROPPED], QueueEvent(OPENED)),
    Case("the end is told to those who were told", CLOSED, [sent()], QueueEvent(RESOLVED)),
    Case("once, too", CLOSED, [sent(), sent(RESOLVED, DeliveryState.WAITING)], None),
    Case("nobody was told, so nobody is", CLOSED, [], None),
    Case("a message that cannot have arrived is dropped at the end", CLOSED, [WAITING], Drop(WAITING)),
    Case("and then nothing follows", CLOSED, [DROPPED], None),
    Case("an opening that may have arrived has an end", CLOSED, [UNSURE], QueueEvent(RESOLVED)),
    Case("an opening that surely failed has none", CLOSED, [FAILED], None),
    Case(
        "an end is dropped before its opening, if that did not arrive after all",
        CLOSED,
        [WAITING, sent(RESOLVED, DeliveryState.WAITING)],
        Drop(sent(RESOLVED, DeliveryState.WAITING)),
    ),
    Case(
        "a reminder that waits at the end is dropped",
        CLOSED,
        [sent(), sent(REMINDED, DeliveryState.WAITING)],
        Drop(sent(REMINDED, DeliveryState.WAITING)),
    ),
    Case("an acknowledgement is told to those who were told", TAKEN, [sent()], QueueEvent(ACKNOWLEDGED)),
    Case("once, as well", TAKEN, [sent(), sent(ACKNOWLEDGED)], None),
    Case("nobody else is told when somebody takes care", TAKEN, [], None),
    Case("not even if the message waits", TAKEN, [WAITING], Drop(WAITING)),
    Case("snoozed: nothing", SNOOZED, [], None),
    Case("snoozed: not even if the message waits", SNOOZED, [WAITING], Drop(WAITING)),
    Case("snoozed: a message that may have arrived stays", SNOOZED, [UNSURE], None),
    Case("snoozed after it was told: nothing", SNOOZED, [sent()], None),
    Case("snoozed: the end is told", verdict(snoozed_until=NOW + 60, closed_at=NOW), [sent()], QueueEvent(RESOLVED)),
    Case("still open after the snooze: told again", SNOOZE_OVER, [sent()], QueueEvent(REMINDED)),
    Case("once after each snooze", SNOOZE_OVER, [sent(), sent(REMINDED, at=NOW - 59)], None),
    Case("still open after the snooze: told if it was not", SNOOZE_OVER, [DROPPED], QueueEvent(OPENED)),
    Case("a snooze before the verdict does not matter", verdict(snoozed_until=START), [sent()], None),
]


def test_the_next_message_follows_from_the_verdict_and_the_messages_so_far() -> None:
    def check(case: Case) -> None:
        assert decide_next(case.verdict, case.deliveries, case.after, case.now) == case.expected

    every_row(CASES, check, lambda case: case.name)


def test_nobody_hears_of_the_end_before_the_beginning_whatever_happens_in_between() -> None:
    """Every sequence of up to three happenings; each message is delivered, lost for sure, or perhaps."""
    happenings = ("acknowledge", "snooze", "wait", "close", "deliver", "fail", "lose")

    def play(names: tuple[str, ...]) -> None:
        current, rows, now = OPEN, list[Delivery](), NOW
        for name in ("wait", *names, "close", "wait"):
            now += 100
            match name:
                case "acknowledge":
                    current = msgspec.structs.replace(current, acknowledged_at=now)
                case "snooze":
                    current = msgspec.structs.replace(current, snoozed_until=now + 150)
                case "close":
                    current = msgspec.structs.replace(current, closed_at=current.closed_at or now)
            waiting = [index for index, row in enumerate(rows) if row.state is DeliveryState.WAITING]
            if waiting and name in ("deliver", "lose"):
                state = DeliveryState.DELIVERED if name == "deliver" else DeliveryState.WAITING
                first = rows[waiting[0]]
                rows[waiting[0]] = msgspec.structs.replace(first, state=state, may_have_arrived=True)
            for _ in range(5):
                decision = decide_next(current, rows, 0.0, now)
                if isinstance(decision, Drop):
                    index = rows.index(decision.delivery)
                    rows[index] = msgspec.structs.replace(rows[index], state=DeliveryState.DROPPED)
                elif decision is not None:
                    rows.append(sent(decision.event, DeliveryState.WAITING, at=now, number=len(rows) + 1))
            assert decide_next(current, rows, 0.0, now) is None, f"{names}: it never settles"
        live = [row for row in rows if row.state is not DeliveryState.DROPPED]
        told = any(row.may_have_arrived for row in live)
        events = [row.event for row in live]
        assert (RESOLVED in events) == told, names
        assert not told or (events[0], events[-1], events.count(RESOLVED)) == (OPENED, RESOLVED, 1), names

    def sequences(length: int) -> list[tuple[str, ...]]:
        return [()] if not length else [(name, *rest) for name in happenings for rest in sequences(length - 1)]

    every_row([each for length in range(4) for each in sequences(length)], play)


def test_retries_grow_with_jitter_follow_retry_after_and_end_after_a_day() -> None:
    def retry(kind: FailureKind, *, attempts: int = 1, retry_after: float | None = None, chance: float = 0.5) -> float:
        row = msgspec.structs.replace(WAITING, attempts=attempts)
        failure = Failure(kind, retry_after=retry_after)
        return plan_retry(row, failure, NOW, lambda: chance, had_unknown_outcome=False).due_at - NOW

    transient = FailureKind.TRANSIENT
    assert [retry(transient, attempts=number) for number in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert retry(transient, attempts=50) == BACKOFF.cap / 2
    assert retry(transient, chance=0.9) != retry(transient, chance=0.1)
    assert retry(FailureKind.PERMANENT) == BACKOFF.cap * 0.75
    assert retry(FailureKind.THROTTLED, retry_after=100.0, chance=0.0) == 100.0
    assert retry(FailureKind.THROTTLED, retry_after=1e9, chance=0.0) == MAX_RETRY_AFTER
    late = msgspec.structs.replace(WAITING, created_at=NOW - GIVE_UP_SECONDS)
    assert plan_retry(late, Failure(transient), NOW, lambda: 0.5, had_unknown_outcome=False).state == "failed"


def test_only_a_lost_reply_leaves_it_open_whether_a_message_arrived() -> None:
    rows = {
        FailureKind.UNSENT: False,
        FailureKind.THROTTLED: False,
        FailureKind.PERMANENT: False,
        FailureKind.TRANSIENT: True,
        FailureKind.TIMEOUT: True,
    }
    for kind, expected in rows.items():
        for before in (False, True):
            following = plan_retry(WAITING, Failure(kind), NOW, lambda: 0.5, had_unknown_outcome=before)
            assert following.may_have_arrived == (expected or before), kind

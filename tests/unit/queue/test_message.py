"""Messages that no backend takes are named before anything is sent."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.queue.message import (
    MAX_BODY_BYTES,
    MAX_DEADLINE,
    MAX_DURATION,
    MAX_KEY_BYTES,
    Ack,
    BatchKeys,
    Bury,
    Delivery,
    Drop,
    ExtendLease,
    OutgoingMessage,
    Receipt,
    Release,
    RetryLater,
    SentMessage,
    Settlement,
    check_message,
    check_settlement,
    check_tenant,
    pack_trace,
    unpack_trace,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
GOOD = OutgoingMessage(tenant="a", body=b"x")


def changed(**options: Any) -> OutgoingMessage:
    return msgspec.structs.replace(GOOD, **options)


@given(
    st.builds(
        OutgoingMessage,
        tenant=NAMES,
        body=st.binary(max_size=100),
        priority=st.integers(0, 3),
        delay=st.floats(0, MAX_DURATION),
        group=st.none() | NAMES,
        key=st.none() | NAMES,
        ttl=st.none() | st.floats(0, MAX_DURATION, exclude_min=True),
        deadline=st.none() | st.floats(0, MAX_DEADLINE),
        trace=st.none() | st.text(),
    )
)
def test_what_can_be_kept_is_left_as_it_is(message: OutgoingMessage) -> None:
    assert check_message(message) is message


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (changed(tenant=""), "tenant '' has 0 UTF-8 bytes: expected 1 to 256"),
        (changed(tenant="ä" * 129), "tenant 'ä+' has 258 UTF-8 bytes: expected 1 to 256"),
        (changed(tenant="a\0"), "none of them 0"),
        (changed(tenant="\ud800"), "is not valid Unicode"),
        (changed(tenant=b"a"), "tenant of type bytes: expected text"),
        (changed(group=""), "group '' has 0"),
        (changed(group="\0"), "group"),
        (changed(group=7), "group of type int: expected text"),
        (changed(key="k" * (MAX_KEY_BYTES + 1)), f"deduplication key 'k+' has {MAX_KEY_BYTES + 1} UTF-8 bytes"),
        (changed(body="text"), "a body of type str: expected bytes"),
        (
            changed(body=b"x" * (MAX_BODY_BYTES + 1)),
            f"a body of {MAX_BODY_BYTES + 1} bytes for tenant a: expected at most",
        ),
        (changed(priority=-1), "priority -1: expected 0, the most urgent, to 3"),
        (changed(priority=4), "priority 4"),
        (changed(priority=1.0), "priority 1.0"),
        (changed(priority=True), "priority True"),
        (changed(delay=-0.1), "a delay of -0.1 s: expected 0 to 31622400"),
        (changed(delay=math.nan), "a delay of nan s"),
        (changed(delay=MAX_DURATION + 1), "a delay of"),
        (changed(ttl=0.0), "a ttl of 0.0 s: expected more than 0"),
        (changed(ttl=math.inf), "a ttl of inf s"),
        (changed(ttl=math.nan), "a ttl of nan s"),
        (changed(deadline=math.nan), "a deadline at nan: expected seconds since the epoch"),
        (changed(deadline=math.inf), "a deadline at inf"),
        (changed(deadline=1_750_000_000_000.0), "a deadline at 1750000000000.0"),
        (changed(deadline=-1.0), "a deadline at -1.0"),
        (changed(delay=timedelta(seconds=5)), "a delay of type timedelta: expected a number of seconds, 0 to 31622400"),
        (changed(delay="5"), "a delay of type str: expected a number of seconds"),
        (changed(delay=None), "a delay of type NoneType: expected a number of seconds"),
        (changed(ttl=timedelta(days=1)), "a ttl of type timedelta: expected a number of seconds, more than 0"),
        (changed(deadline=datetime(2026, 1, 31, tzinfo=UTC)), "a deadline at datetime.*: expected seconds since the"),
        (changed(trace=b"00-"), "a trace of type bytes: expected text, a W3C traceparent"),
        (changed(priority="1"), "priority '1': expected 0"),
        (changed(key=17), "deduplication key of type int: expected text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_is_named(bad: OutgoingMessage, named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        check_message(bad)


def test_a_tenants_name_can_be_checked_alone() -> None:
    assert check_tenant("a") == "a"
    with pytest.raises(InvalidValue, match="tenant '' has 0 UTF-8 bytes"):
        check_tenant("")


def test_the_longest_are_not_too_long() -> None:
    check_message(
        changed(
            tenant="x" * 256, body=b"x" * MAX_BODY_BYTES, key="ä" * 128, group="x" * MAX_KEY_BYTES, delay=MAX_DURATION
        )
    )


@pytest.mark.parametrize(
    "disposition", [Ack(), RetryLater(0.0), RetryLater(MAX_DURATION), Bury("why"), Release(), ExtendLease(0.1), Drop()]
)
def test_outcomes_that_make_sense_are_left_as_they_are(disposition: Any) -> None:
    settlement = Settlement(Receipt(1, 1), disposition)
    assert check_settlement(settlement) is settlement


@pytest.mark.parametrize(
    ("disposition", "named"),
    [
        (RetryLater(-1.0), "RetryLater with a delay of -1.0 s: expected 0 to 31622400"),
        (RetryLater(math.nan), "RetryLater with a delay of nan s"),
        (RetryLater(math.inf), "RetryLater with a delay of inf s"),
        (ExtendLease(0.0), "ExtendLease by 0.0 s: expected more than 0"),
        (ExtendLease(math.nan), "ExtendLease by nan s"),
        (ExtendLease(MAX_DURATION + 1), "ExtendLease by"),
    ],
)
def test_outcomes_that_make_no_sense_are_named(disposition: Any, named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        check_settlement(Settlement(Receipt(1, 1), disposition))


def test_what_is_spilled_is_told_by_its_lane() -> None:
    sent = SentMessage(id=1, queue="work", lane=0, trace="", pressure=0.0)
    assert not sent.is_spilled
    assert msgspec.structs.replace(sent, lane=-1).is_spilled


def test_a_delivery_has_the_number_of_its_receipt() -> None:
    delivery = Delivery(
        receipt=Receipt(7, 2),
        queue="work",
        lane=0,
        tenant="a",
        body=b"",
        attempt=2,
        sent_at=1.0,
        ready_since=1.0,
        trace="",
    )
    assert delivery.id == 7


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEX = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@given(st.from_regex(HEX, fullmatch=True))
def test_a_traceparent_comes_back_as_it_was(trace: str) -> None:
    packed = pack_trace(trace)
    assert packed is not None
    assert len(packed) == 25
    assert unpack_trace(packed, 1, 2) == trace


@pytest.mark.parametrize("trace", [None, "", "nonsense", TRACE.upper(), TRACE + "-more", "01" + TRACE[2:], TRACE[:-1]])
def test_what_is_no_traceparent_is_not_kept(trace: str | None) -> None:
    assert pack_trace(trace) is None


@given(st.integers(1, (1 << 63) - 1), st.integers(1, (1 << 63) - 1))
def test_a_message_without_a_trace_has_one_of_its_own(origin: int, message: int) -> None:
    trace = unpack_trace(None, origin, message)
    assert HEX.fullmatch(trace)
    assert trace.endswith("-00"), "nobody has asked for it to be recorded"
    assert unpack_trace(pack_trace(trace), 5, 6) == trace
    assert unpack_trace(None, origin, message) == trace
    assert unpack_trace(None, origin, message + 1) != trace != unpack_trace(None, origin + 1, message)


MESSAGE = OutgoingMessage(tenant="a", body=b"x")


def keys_of(key: str, *messages: OutgoingMessage) -> list[str]:
    keys = BatchKeys(key)
    return [keys.next_key(message) for message in messages]


@given(st.lists(st.binary(max_size=2), max_size=20), st.randoms(use_true_random=False))
def test_messages_have_the_same_keys_in_whatever_order_they_are_sent(bodies: list[bytes], chance: object) -> None:
    messages = [OutgoingMessage(tenant="a", body=body) for body in bodies]
    first = keys_of("k", *messages)
    assert len(set(first)) == len(messages)
    chance.shuffle(messages)  # type: ignore[attr-defined]
    assert sorted(keys_of("k", *messages)) == sorted(first)


@given(st.sets(st.binary(max_size=4), min_size=1), st.data())
def test_any_part_of_messages_that_differ_has_the_keys_it_had(bodies: set[bytes], data: st.DataObject) -> None:
    messages = {body: OutgoingMessage(tenant="a", body=body) for body in bodies}
    first = dict(zip(messages, keys_of("k", *messages.values()), strict=True))
    part = data.draw(st.lists(st.sampled_from(sorted(bodies)), unique=True))
    assert keys_of("k", *(messages[body] for body in part)) == [first[body] for body in part]


def test_all_that_a_message_says_is_in_its_key() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"body": b"y"},
        {"priority": 0},
        {"delay": 1.0},
        {"group": "g"},
        {"group": "h"},
        {"ttl": 1.0},
    ]
    keys = {keys_of("k", msgspec.structs.replace(MESSAGE, **change))[0] for change in changes}
    assert len(keys) == len(changes)
    assert keys_of("l", MESSAGE)[0] not in keys


def test_what_comes_from_the_request_is_not_in_its_key() -> None:
    again = msgspec.structs.replace(MESSAGE, trace="00-" + "1" * 32 + "-" + "2" * 16 + "-01", deadline=9.0, key="k")
    assert keys_of("k", again) == keys_of("k", MESSAGE)


def test_a_key_is_short_enough_however_long_that_of_the_batch_is() -> None:
    [key] = keys_of("k" * MAX_KEY_BYTES, MESSAGE)
    check_message(msgspec.structs.replace(MESSAGE, key=key))

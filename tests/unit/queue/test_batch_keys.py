"""Keys of messages that are sent together: any part of a batch may be sent again, in any order."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue import Outgoing
from holdfast.queue.batch_keys import BatchKeys
from holdfast.queue.message import KEY_BYTES, checked

MESSAGE = Outgoing(tenant="a", body=b"x")


def keys_of(key: str, *messages: Outgoing) -> list[str]:
    keys = BatchKeys(key)
    return [keys.of(message) for message in messages]


@given(st.lists(st.binary(max_size=2), max_size=20), st.randoms(use_true_random=False))
def test_messages_have_the_same_keys_in_whatever_order_they_are_sent(bodies: list[bytes], chance: object) -> None:
    messages = [Outgoing(tenant="a", body=body) for body in bodies]
    first = keys_of("k", *messages)
    assert len(set(first)) == len(messages)
    chance.shuffle(messages)  # type: ignore[attr-defined]
    assert sorted(keys_of("k", *messages)) == sorted(first)


@given(st.sets(st.binary(max_size=4), min_size=1), st.data())
def test_any_part_of_messages_that_differ_has_the_keys_it_had(bodies: set[bytes], data: st.DataObject) -> None:
    messages = {body: Outgoing(tenant="a", body=body) for body in bodies}
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
    [key] = keys_of("k" * KEY_BYTES, MESSAGE)
    checked(msgspec.structs.replace(MESSAGE, key=key))

"""What a warm-up came to."""

import pytest

from holdfast import CallError, InvalidValue
from holdfast.calls.adapters.warm import check_connections, ready_among, stays_open


def test_those_that_are_ready_are_counted_whatever_happened_to_others() -> None:
    assert ready_among("http://a", [True, OSError("no"), True, False]) == 2


def test_if_none_is_ready_the_first_error_is_raised_with_a_note() -> None:
    with pytest.raises(OSError, match="first") as caught:
        ready_among("http://a", [False, OSError("first"), OSError("second")])
    assert caught.value.__notes__ == ["holdfast: warm-up of http://a: none of 3 connections is ready"]


def test_if_the_server_keeps_none_that_is_said() -> None:
    with pytest.raises(CallError, match="http://a: the server closes each connection"):
        ready_among("http://a", [False, False])


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        ("HTTP/1.1", {}, True),
        ("HTTP/2", {}, True),
        ("HTTP/1.1", {"connection": "close"}, False),
        ("HTTP/1.1", {"connection": "Upgrade, Close"}, False),
        ("HTTP/1.0", {}, False),
        ("HTTP/1.0", {"connection": "Keep-Alive"}, True),
    ],
)
def test_a_connection_stays_open_unless_version_or_header_say_otherwise(
    version: str, said: dict[str, str], expected: bool
) -> None:
    assert stays_open(version, said) is expected


def test_at_least_one_connection_must_be_meant() -> None:
    check_connections(1)
    with pytest.raises(InvalidValue, match="of 0 connections"):
        check_connections(0)

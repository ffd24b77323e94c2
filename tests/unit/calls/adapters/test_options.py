"""Whether a request may be repeated, and what it is called."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls.adapters.options import DEFAULTS, IDEMPOTENT_METHODS, RequestOptions, asked_by, manner_of

methods = st.sampled_from([*sorted(IDEMPOTENT_METHODS), "POST", "PATCH", "get", "post"])
options = st.builds(RequestOptions, idempotent=st.none() | st.booleans(), operation=st.none() | st.just("reserve"))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "put"])
def test_methods_that_are_idempotent_by_definition_may_be_repeated(method: str) -> None:
    assert manner_of(method, DEFAULTS, keyed=False, repeatable=True).idempotent


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LINK"])
def test_others_may_not_unless_a_key_is_sent(method: str) -> None:
    plain = manner_of(method, DEFAULTS, keyed=False, repeatable=True)
    keyed = manner_of(method, DEFAULTS, keyed=True, repeatable=True)
    assert (plain.idempotent, plain.key) == (False, False)
    assert (keyed.idempotent, keyed.key) == (True, True)


@given(methods, options, st.booleans())
def test_a_body_that_can_be_sent_once_is_never_repeated(method: str, asked: RequestOptions, keyed: bool) -> None:
    manner = manner_of(method, asked, keyed=keyed, repeatable=False)
    assert (manner.idempotent, manner.key) == (False, False)


@given(methods, st.booleans(), st.booleans())
def test_what_the_request_says_counts(method: str, idempotent: bool, keyed: bool) -> None:
    asked = RequestOptions(idempotent=idempotent)
    assert manner_of(method, asked, keyed=keyed, repeatable=True).idempotent is idempotent


@given(methods, options, st.booleans())
def test_a_key_is_sent_only_where_it_is_needed(method: str, asked: RequestOptions, keyed: bool) -> None:
    manner = manner_of(method, asked, keyed=keyed, repeatable=True)
    if manner.key:
        assert keyed
        assert manner.idempotent
        assert method.upper() not in IDEMPOTENT_METHODS


def test_a_call_is_named_by_its_method_or_as_the_request_says() -> None:
    assert manner_of("get", DEFAULTS, keyed=False, repeatable=True).operation == "GET"
    assert manner_of("GET", RequestOptions(operation="price"), keyed=False, repeatable=True).operation == "price"


def test_options_are_nothing_or_themselves_or_a_mapping() -> None:
    asked = RequestOptions(idempotent=True, operation="reserve", stream=False)
    assert asked_by(None) is DEFAULTS
    assert asked_by(asked) is asked
    assert asked_by({"idempotent": True, "operation": "reserve", "stream": False}) == asked
    assert asked_by({}) == DEFAULTS


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, "a mapping with any of idempotent, operation, stream"),
        ({"idempotant": True}, "a mapping with any of idempotent, operation, stream"),
        ({"idempotent": "yes"}, "idempotent is 'yes': expected True, False or None"),
        ({"stream": 1}, "stream is 1"),
        ({"operation": ""}, "operation is '': expected a name"),
        ({"operation": 7}, "operation is 7: expected a name"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: Any, expected: str) -> None:
    with pytest.raises(InvalidValue, match=expected):
        asked_by(given)

"""What follows from a request and from its end."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Zone
from holdfast._types import Carrier, Operation
from holdfast.middleware import MiddlewareOptions
from holdfast.middleware.rules import (
    CLIENT_GONE,
    MIN_FAIR_SECONDS,
    Bounds,
    MiddlewareResponse,
    build_bounds,
    choose_status,
    name_operation,
    parse_status,
    respond_late,
    respond_overrun,
    respond_refused,
    respond_unhealthy,
)
from tests.table import rows

HERE = Zone("use1-az1")
SHOP = MiddlewareOptions(workload="shop", zone=HERE)

seconds = st.floats(min_value=0.001, max_value=1e6)


def expires(remaining: float | None, **options: Any) -> float | None:
    found = build_bounds(MiddlewareOptions(workload="shop", **options), Carrier(remaining=remaining), 1000.0)
    return None if found is None else found.expires


# Bounds


def test_a_request_has_the_time_that_its_caller_has_left() -> None:
    assert expires(2.0) == 1002.0


def test_a_request_without_a_deadline_has_the_services_own() -> None:
    assert expires(None) == 1060.0
    assert expires(None, default_deadline=5.0) == 1005.0


def test_without_any_deadline_the_longest_holds_and_without_that_nothing_does() -> None:
    assert expires(None, default_deadline=None) == 1300.0
    assert expires(None, default_deadline=None, max_deadline=None) == math.inf


def test_no_caller_has_more_than_the_longest_unless_there_is_none() -> None:
    assert expires(1e6) == 1300.0
    assert expires(1e6, max_deadline=None) == 1000.0 + 1e6


def test_a_request_that_is_late_has_no_bounds() -> None:
    assert expires(0.0) is None


def test_what_strangers_say_of_time_and_owner_does_not_count_but_their_trace_does() -> None:
    edge = MiddlewareOptions(workload="shop", trust_callers=False)
    found = build_bounds(edge, Carrier(trace="00-a-b-01", remaining=0.0, retry_owner="me"), 1000.0)
    assert found is not None
    assert (found.expires, found.retry_owner, found.trace) == (1060.0, None, "00-a-b-01")


def test_owner_and_trace_come_in_and_nothing_around_the_server_does() -> None:
    found = build_bounds(SHOP, Carrier(trace="00-a-b-01", retry_owner="cart"), 1000.0)
    assert found is not None
    assert (found.retry_owner, found.trace, found.enclosing) == ("cart", "00-a-b-01", None)


@given(st.none() | seconds, st.none() | seconds, st.none() | seconds)
def test_bounds_never_exceed_the_longest_nor_what_the_caller_has(
    remaining: float | None, own: float | None, max_deadline: float | None
) -> None:
    if own is not None and max_deadline is not None:
        own = min(own, max_deadline)
    found = expires(remaining, default_deadline=own, max_deadline=max_deadline)
    assert found is not None
    assert found <= 1000.0 + min(remaining or math.inf, max_deadline or math.inf)


# Answers


@pytest.mark.parametrize(
    ("respond", "status", "slug"),
    [
        (lambda: respond_late(SHOP), 504, "deadline-exceeded"),
        (lambda: respond_late(MiddlewareOptions(workload="shop", late_status=503)), 503, "deadline-exceeded"),
        (lambda: respond_overrun(SHOP), 504, "deadline-exceeded"),
        (lambda: respond_unhealthy(SHOP), 503, "zone-out"),
        (lambda: respond_refused(SHOP, lambda: 0.0), 503, "zone-out"),
    ],
)
def test_refusals_are_problem_details(respond: Callable[[], MiddlewareResponse], status: int, slug: str) -> None:
    answer = respond()
    headers = dict(answer.headers)
    problem = json.loads(answer.body)
    assert headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(answer.body))
    assert (answer.status, problem["status"], problem["type"]) == (status, status, f"urn:holdfast:problem:{slug}")
    assert answer.status_line == f"{status} {problem['title']}"


def test_a_status_without_a_name_is_still_a_status() -> None:
    assert respond_late(MiddlewareOptions(workload="shop", late_status=599)).status_line == "599 Error"


@given(st.floats(min_value=0, max_value=1, exclude_max=True), st.floats(min_value=1, max_value=1e6))
def test_refused_callers_come_back_spread_over_as_long_again(chance: float, least: float) -> None:
    answer = respond_refused(MiddlewareOptions(workload="shop", zone=HERE, retry_after=least), lambda: chance)
    told = int(dict(answer.headers)["retry-after"])
    assert least <= told <= math.ceil(2 * least)


def test_refused_callers_do_not_all_come_back_at_once() -> None:
    told = {dict(respond_refused(SHOP, lambda share=share / 100: share).headers)["retry-after"] for share in range(100)}  # type: ignore[misc]
    assert told == {"5", "6", "7", "8", "9", "10"}


# What is counted


@rows(
    ("status", "failed", "is_client_gone", "expected"),
    [
        (200, False, False, 200),
        (200, True, False, 500),
        (404, True, False, 500),
        (503, True, False, 503),
        (None, False, False, 500),
        (None, True, False, 500),
        (None, True, True, CLIENT_GONE),
        (None, False, True, CLIENT_GONE),
        (200, True, True, 200),
        (500, False, True, 500),
    ],
)
def test_the_status_that_counts(status: int | None, failed: bool, is_client_gone: bool, expected: int) -> None:
    assert choose_status(status, failed=failed, is_client_gone=is_client_gone) == expected


def granted(remaining: float | None, **options: Any) -> Bounds:
    found = build_bounds(MiddlewareOptions(workload="shop", **options), Carrier(remaining=remaining), 1000.0)
    assert found is not None
    return found


def test_a_deadline_is_fair_if_it_is_our_own_or_the_caller_gave_time_enough() -> None:
    assert granted(MIN_FAIR_SECONDS).is_fair
    assert not granted(MIN_FAIR_SECONDS - 0.001).is_fair
    assert granted(None, default_deadline=0.1).is_fair
    assert granted(0.5, max_deadline=0.1, default_deadline=None).is_fair
    assert granted(0.1, trust_callers=False).is_fair


def test_only_what_the_caller_said_itself_tells_how_long_it_waits() -> None:
    assert granted(2.0).is_from_caller
    assert not granted(None).is_from_caller
    assert not granted(500.0).is_from_caller
    assert not granted(2.0, trust_callers=False).is_from_caller
    assert granted(None, default_deadline=None, max_deadline=None).counts_as_waited_from == math.inf


@rows("is_client_gone", [False, True])
@rows("failed", [False, True])
@rows("status", [None, 200, 404, 500])
def test_past_the_callers_deadline_it_only_matters_whether_that_was_fair(
    status: int | None, failed: bool, is_client_gone: bool
) -> None:
    assert choose_status(status, failed=failed, is_client_gone=is_client_gone, late=granted(2.0)) == 504
    assert choose_status(status, failed=failed, is_client_gone=is_client_gone, late=granted(0.05)) == CLIENT_GONE


def test_past_our_own_deadline_an_answer_is_an_answer_and_none_is_a_fault() -> None:
    assert choose_status(200, failed=False, is_client_gone=False, late=granted(None)) == 200
    assert choose_status(None, failed=False, is_client_gone=True, late=granted(None)) == 504


def test_an_operation_is_a_route_and_never_a_path_or_a_method_that_somebody_made_up() -> None:
    assert name_operation("shop", "GET", "/users/{id}") == Operation("shop", "GET /users/{id}")
    assert name_operation("shop", "GET", None) == Operation("shop", "GET unmatched")
    assert name_operation("shop", "BREW", "/") == Operation("shop", "other /")


@pytest.mark.parametrize(("line", "code"), [("200 OK", 200), ("503", 503), ("OK", None), ("", None), ("²00 x", None)])
def test_the_status_of_a_line(line: str, code: int | None) -> None:
    assert parse_status(line) == code


# What a service may say


@rows(
    ("options", "named"),
    [
        ({"workload": "my shop"}, "workload"),
        ({"zone": "us-east-1a"}, "us-east-1a"),
        ({"instance": ""}, "instance"),
        ({"instance": "a\n"}, "instance"),
        ({"default_deadline": 0.0}, "deadline"),
        ({"max_deadline": math.inf}, "max_deadline"),
        ({"default_deadline": 10.0, "max_deadline": 5.0}, "deadline"),
        ({"late_status": 200}, "late_status"),
        ({"health_path": "health"}, "health_path"),
        ({"retry_after": 0.5}, "retry_after"),
    ],
)
def test_a_service_that_cannot_be_right_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        MiddlewareOptions(**{"workload": "shop", **options})


def test_a_service_may_say_everything() -> None:
    MiddlewareOptions(workload="shop", zone=HERE, instance="i-1", default_deadline=None, max_deadline=None)

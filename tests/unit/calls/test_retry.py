"""The rule behind every driver: what follows from a failed attempt."""

import math
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls import (
    Backoff,
    Failure,
    FailureKind,
    Jitter,
    Retry,
    RetryAfter,
    RetryAfterScope,
    RetryBudget,
    RetryOwner,
)
from holdfast.calls.classify import parse_retry_after
from holdfast.calls.limits import TokenBucket
from holdfast.calls.retry import REASON_TEXT, GiveUp, GiveUpReason, NextAttempt, RetryAfterState, decide
from tests.table import rows

PLAIN = Retry(backoff=Backoff(base=1, jitter=Jitter.NONE), throttled_backoff=Backoff(base=3, jitter=Jitter.NONE))


def decided(kind: FailureKind = FailureKind.TRANSIENT, retry: Retry = PLAIN, **changes: Any) -> NextAttempt | GiveUp:
    after = changes.pop("after", None)
    given: dict[str, Any] = {
        "number": 1,
        "idempotent": True,
        "has_other_owner": False,
        "now": 100.0,
        "expires": 130.0,
        "previous": 0.0,
        "bucket": TokenBucket(RetryBudget()),
        "retry_after": RetryAfterState(RetryAfter(spread=0)),
        "chance": lambda: 0.5,
    }
    return decide(retry, Failure(kind, retry_after=after), **(given | changes))


@pytest.mark.parametrize(
    "kind", [FailureKind.UNSENT, FailureKind.TRANSIENT, FailureKind.TIMEOUT, FailureKind.NOT_VISIBLE_YET]
)
def test_what_may_pass_is_tried_again_for_fourteen_tokens(kind: FailureKind) -> None:
    bucket = TokenBucket(RetryBudget())
    assert decided(kind, bucket=bucket) == NextAttempt(1.0, 14.0)
    assert bucket.tokens == 486


def test_after_throttling_the_wait_is_longer_and_the_price_lower() -> None:
    assert decided(FailureKind.THROTTLED) == NextAttempt(3.0, 5.0)


def test_delays_grow_with_the_number_of_the_attempt() -> None:
    assert [decided(number=number) for number in (1, 2)] == [NextAttempt(1.0, 14.0), NextAttempt(2.0, 14.0)]


def test_what_would_fail_again_is_not_repeated() -> None:
    assert decided(FailureKind.PERMANENT) == GiveUp(GiveUpReason.PERMANENT)


@pytest.mark.parametrize(
    "kind", [FailureKind.TRANSIENT, FailureKind.TIMEOUT, FailureKind.THROTTLED, FailureKind.NOT_VISIBLE_YET]
)
def test_what_may_have_been_done_is_not_repeated_unless_it_is_idempotent(kind: FailureKind) -> None:
    assert decided(kind, idempotent=False) == GiveUp(GiveUpReason.NOT_IDEMPOTENT)


def test_what_was_not_sent_is_repeated_whatever_it_does() -> None:
    assert decided(FailureKind.UNSENT, idempotent=False) == NextAttempt(1.0, 14.0)


def test_a_layer_that_finds_an_owner_leaves_it_to_that_one() -> None:
    assert decided(has_other_owner=True) == GiveUp(GiveUpReason.NOT_OWNER)
    assert decided(has_other_owner=True, retry=Retry(max_attempts=1)) == GiveUp(GiveUpReason.MAX_ATTEMPTS)


def test_attempts_are_limited() -> None:
    assert decided(number=3) == GiveUp(GiveUpReason.MAX_ATTEMPTS)


def test_what_could_not_begin_before_the_deadline_is_not_waited_for() -> None:
    assert decided(expires=101.0) == GiveUp(GiveUpReason.DEADLINE)
    assert decided(expires=101.01) == NextAttempt(1.0, 14.0)


def test_an_empty_bucket_ends_it() -> None:
    assert decided(bucket=TokenBucket(RetryBudget(capacity=13, min_retry_rate=0))) == GiveUp(GiveUpReason.BUDGET)


def test_no_token_is_spent_on_what_is_not_sent() -> None:
    bucket = TokenBucket(RetryBudget())
    for reason in ({"expires": 100.5}, {"number": 3}, {"has_other_owner": True}, {"idempotent": False}):
        assert isinstance(decided(bucket=bucket, **reason), GiveUp)
    assert bucket.tokens == 500


def test_the_servers_hint_is_waited_for_and_binds_the_others() -> None:
    retry_after = RetryAfterState(RetryAfter(spread=0))
    assert decided(after=7.0, retry_after=retry_after) == NextAttempt(7.0, 14.0)
    assert decided(now=102.0, retry_after=retry_after) == NextAttempt(5.0, 14.0)
    assert decided(now=108.0, retry_after=retry_after) == NextAttempt(1.0, 14.0)


def test_a_hint_counts_for_others_even_if_this_call_is_over() -> None:
    retry_after = RetryAfterState(RetryAfter(spread=0))
    assert decided(FailureKind.THROTTLED, after=7.0, retry_after=retry_after, idempotent=False) == GiveUp(
        GiveUpReason.NOT_IDEMPOTENT
    )
    assert decided(retry_after=retry_after) == NextAttempt(7.0, 14.0)


def test_a_hint_that_is_longer_than_the_time_ends_it() -> None:
    assert decided(after=15.0, expires=110.0) == GiveUp(GiveUpReason.DEADLINE)


@given(
    st.sampled_from(FailureKind),
    st.integers(1, 10),
    st.integers(1, 10),
    st.booleans(),
    st.booleans(),
    st.floats(0, 100),
    st.one_of(st.none(), st.floats(0, 100)),
    st.floats(0, 600),
)
def test_whatever_happens_a_retry_begins_in_time_is_paid_for_and_is_safe(
    kind: FailureKind,
    attempts: int,
    number: int,
    idempotent: bool,
    has_other_owner: bool,
    left: float,
    after: float | None,
    tokens: float,
) -> None:
    bucket = TokenBucket(RetryBudget(capacity=tokens, min_retry_rate=0))
    step = decided(
        kind,
        Retry(max_attempts=attempts),
        number=number,
        idempotent=idempotent,
        has_other_owner=has_other_owner,
        expires=100 + left,
        after=after,
        bucket=bucket,
    )
    if isinstance(step, GiveUp):
        assert bucket.tokens == tokens
        return
    assert number < attempts
    assert not has_other_owner
    assert kind is not FailureKind.PERMANENT
    assert idempotent or kind is FailureKind.UNSENT
    assert 0 <= step.delay < left
    assert bucket.tokens == pytest.approx(tokens - step.cost)


def test_every_reason_has_words() -> None:
    assert set(REASON_TEXT) == set(GiveUpReason)


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "3"])
def test_attempts_that_make_no_sense_are_refused(attempts: Any) -> None:
    with pytest.raises(InvalidValue, match=f"retry max_attempts {attempts!r}: expected a whole number, at least 1"):
        Retry(max_attempts=attempts)


@pytest.mark.parametrize("eventually_consistent", [404, [404], {"404"}, frozenset({4.04})])
def test_what_may_turn_into_success_is_a_set_of_statuses_and_codes(eventually_consistent: Any) -> None:
    with pytest.raises(InvalidValue, match=r"eventually_consistent is .* expected a set of statuses"):
        Retry(eventually_consistent=eventually_consistent)
    assert Retry(eventually_consistent=frozenset({404, "ResourceNotFoundException"})).max_attempts == 3


def test_an_owner_may_be_named_by_text() -> None:
    assert Retry(owner="below").owner is RetryOwner.BELOW  # type: ignore[arg-type]


NOW = 1_750_000_000.0


@rows(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 999999999999999999999999999999"}, None),
        ({"x-amz-retry-after": "250"}, 0.25),
        ({"x-amz-retry-after": "250", "retry-after": "9"}, 0.25),
        ({"x-amz-retry-after": "later", "retry-after": "9"}, 9.0),
    ],
)
def test_headers_say_how_many_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, lambda: NOW) == seconds


def test_a_hint_holds_until_its_time_and_a_shorter_one_does_not_end_it() -> None:
    retry_after = RetryAfterState(RetryAfter(spread=0))
    assert retry_after.delay(100.0, lambda: 0.5) == 0
    retry_after.record(10, 100.0)
    retry_after.record(1, 101.0)
    assert retry_after.delay(102.0, lambda: 0.5) == 8
    assert retry_after.delay(110.0, lambda: 0.5) == 0


def test_a_hint_is_cut_at_the_cap() -> None:
    retry_after = RetryAfterState(RetryAfter(cap=20, spread=0))
    retry_after.record(3600, 0.0)
    assert retry_after.delay(0.0, lambda: 0.5) == 20


def test_those_who_wait_together_do_not_come_back_together() -> None:
    retry_after = RetryAfterState(RetryAfter(spread=0.25))
    retry_after.record(10, 0.0)
    shares = iter([0.0, 0.5, 1.0])
    assert [retry_after.delay(0.0, lambda: next(shares)) for _ in range(3)] == [10, 11.25, 12.5]


@pytest.mark.parametrize("wrong", [{"cap": -1}, {"cap": math.inf}, {"spread": -0.1}, {"spread": math.nan}])
def test_a_value_that_makes_no_sense_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="expected 0 or more"):
        RetryAfter(**wrong)  # type: ignore[arg-type]


def test_whom_it_holds_may_be_named_by_text() -> None:
    assert RetryAfter(scope="all").scope is RetryAfterScope.ALL  # type: ignore[arg-type]

"""How many calls may be under way at once."""

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls import Limit, RetryBudget
from holdfast.calls.limits import InFlightCounter, TokenBucket
from tests.table import rows


def test_littles_law_says_how_many() -> None:
    assert Limit.for_load(rate=200, seconds=0.05) == Limit(20)
    assert Limit.for_load(rate=3, seconds=0.01, headroom=1) == Limit(1)


def test_no_more_than_the_limit_are_let_in() -> None:
    running = InFlightCounter(Limit(2))
    assert [running.enter() for _ in range(3)] == [True, True, False]
    running.leave()
    assert running.enter()
    assert running.count == 2


def test_leaving_more_often_than_entering_makes_no_room() -> None:
    running = InFlightCounter(Limit(1))
    running.leave()
    assert [running.enter() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "load", [{"rate": 0, "seconds": 1}, {"rate": 1, "seconds": math.inf}, {"rate": 1, "seconds": 1, "headroom": 0.5}]
)
def test_a_load_that_makes_no_sense_is_named(load: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="expected more than 0"):
        Limit.for_load(**load)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="limit of 0 concurrent attempts: expected at least 1"):
        Limit(0)


def taken(bucket: TokenBucket, tries: int, now: float = 0.0) -> int:
    return sum(bucket.take(bucket.budget.cost, now) is not None for _ in range(tries))


def test_a_full_bucket_pays_for_35_retries_and_then_for_one_every_two_seconds() -> None:
    bucket = TokenBucket(RetryBudget())
    assert taken(bucket, 35) == 35
    assert bucket.tokens == 10
    assert not bucket.is_exhausted
    assert [taken(bucket, 100, now) for now in (0.0, 1.9, 2.0, 3.0, 4.5)] == [1, 0, 1, 0, 1]
    assert bucket.is_exhausted


def test_without_a_trickle_an_empty_bucket_pays_for_nothing() -> None:
    bucket = TokenBucket(RetryBudget(min_retry_rate=0, capacity=14))
    assert [taken(bucket, 10, now) for now in (0.0, 1e9)] == [1, 0]


def test_of_25_retries_that_are_not_paid_for_at_most_one_goes_out() -> None:
    bucket = TokenBucket(RetryBudget(capacity=0))
    assert [taken(bucket, 1, now * 60.0) for now in range(50)] == [*[0] * 24, 1] * 2


def test_what_is_not_paid_for_is_not_paid_back() -> None:
    bucket = TokenBucket(RetryBudget(capacity=0))
    assert [bucket.take(14.0, 0.0) for _ in range(25)] == [*[None] * 24, 0.0]
    assert TokenBucket(RetryBudget()).take(14.0, 0.0) == 14.0


def test_a_long_silence_does_not_save_up_the_trickle() -> None:
    bucket = TokenBucket(RetryBudget(capacity=0))
    taken(bucket, 25)
    assert taken(bucket, 100, 1e6) == 1


def test_successes_fill_it_and_never_beyond_its_size() -> None:
    bucket = TokenBucket(RetryBudget(capacity=20))
    assert taken(bucket, 1) == 1
    bucket.give(3)
    assert bucket.tokens == 9
    bucket.give(100)
    assert bucket.tokens == 20


def test_it_is_no_longer_exhausted_once_a_retry_is_paid_for() -> None:
    bucket = TokenBucket(RetryBudget(capacity=14, min_retry_rate=0))
    assert taken(bucket, 2) == 1
    assert bucket.is_exhausted
    bucket.give(14)
    assert taken(bucket, 1) == 1
    assert not bucket.is_exhausted


@given(st.lists(st.one_of(st.just("take"), st.floats(0, 50)), max_size=200))
def test_no_more_is_spent_than_there_was_and_came_in(steps: list[str | float]) -> None:
    bucket, spent, given_back = TokenBucket(RetryBudget(min_retry_rate=0)), 0.0, 0.0
    for step in steps:
        if isinstance(step, str):
            spent += bucket.take(14.0, 0.0) or 0.0
        else:
            bucket.give(step)
            given_back += step
        assert 0 <= bucket.tokens <= 500
    assert spent <= 500 + given_back + 1e-6


def test_threads_spend_each_token_once() -> None:
    bucket = TokenBucket(RetryBudget(capacity=1400, min_retry_rate=0))
    counts = []

    def spend() -> None:
        counts.append(taken(bucket, 100))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 100
    assert bucket.tokens == 0


@rows("name", ["capacity", "cost", "throttle_cost", "first_attempt_tokens", "min_retry_rate"])
@rows("value", [-1.0, math.nan, math.inf])
def test_a_size_that_makes_no_sense_is_named(name: str, value: float) -> None:
    with pytest.raises(InvalidValue, match=f"budget {name} {value}: expected 0 or more"):
        RetryBudget(**{name: value})

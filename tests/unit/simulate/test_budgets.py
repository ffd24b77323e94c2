"""The budgets of others do what their documents say, so that the comparison is fair."""

import pytest

from holdfast.calls import RetryBudget
from holdfast.simulate.budgets import FailureBucket, ObservingBucket, RequestBucket


def test_a_share_of_requests_pays_for_retries_whether_they_succeed_or_not() -> None:
    bucket = RequestBucket(0.2)
    taken = 0
    for number in range(100):
        bucket.on_call_begin(float(number))
        taken += bucket.take(1.0, float(number)) is not None
    assert taken == pytest.approx(20, abs=1)


def test_successes_pay_for_nothing() -> None:
    bucket = RequestBucket(0.0)
    bucket.give(100.0)
    assert bucket.take(1.0, 0.0) is None


def test_a_few_retries_per_second_go_out_besides_and_what_is_not_used_is_kept_for_seconds() -> None:
    bucket = RequestBucket(0.0, per_second=10.0, kept=10.0)
    bucket.on_call_begin(1000.0)
    assert sum(bucket.take(1.0, 1000.0) is not None for _ in range(200)) == 100
    bucket.on_call_begin(1001.0)
    assert sum(bucket.take(1.0, 1001.0) is not None for _ in range(200)) == 10


def test_what_a_share_brings_in_does_not_grow_for_ever() -> None:
    bucket = RequestBucket(0.1)
    for number in range(10_000):
        bucket.on_call_begin(float(number))
    assert sum(bucket.take(1.0, 10_000.0) is not None for _ in range(1000)) == 10


def test_failures_close_a_bucket_that_is_half_empty_and_successes_open_it_again() -> None:
    bucket = FailureBucket(10.0, 0.1)
    for _ in range(4):
        bucket.on_attempt_failed()
    assert bucket.take(0.0, 0.0) is not None
    bucket.on_attempt_failed()
    assert bucket.take(0.0, 0.0) is None
    assert bucket.is_exhausted
    for _ in range(2):
        bucket.give(14.0)  # whatever the engine would give: a success is worth the ratio
    assert bucket.tokens == pytest.approx(5.2)
    assert bucket.take(0.0, 0.0) is not None
    for _ in range(100):
        bucket.give(1.0)
    assert bucket.tokens == 10.0
    for _ in range(100):
        bucket.on_attempt_failed()
    assert bucket.tokens == 0.0


def test_a_bucket_that_is_told_more_need_not_listen() -> None:
    bucket = ObservingBucket(RetryBudget())
    bucket.on_call_begin(0.0)
    bucket.on_attempt_failed()
    assert bucket.tokens == 500.0

"""Whether a message that failed is tried again."""

import pytest

from holdfast._backoff import Backoff, Jitter
from holdfast.queue.message import Bury, Drop, RetryLater
from holdfast.queue.rules.disposition import (
    DEFAULT_BACKOFF,
    MAX_REDELIVERY_DELAY,
    compute_redelivery_delay,
    decide_after_failure,
    decide_before_attempt,
)


def test_a_failure_is_tried_again_later_and_later() -> None:
    delays = [decide_after_failure(attempt, 20, "why", "", chance=lambda: 0.5) for attempt in range(1, 15)]
    assert delays[:4] == [RetryLater(0.5), RetryLater(1.0), RetryLater(2.0), RetryLater(4.0)]
    assert delays[-1] == RetryLater(DEFAULT_BACKOFF.cap / 2)


def test_the_last_failure_is_buried_with_its_reason() -> None:
    assert decide_after_failure(5, 5, "ValueError: no", "Traceback", chance=lambda: 0.5) == Bury(
        "ValueError: no", "Traceback"
    )
    assert isinstance(decide_after_failure(4, 5, "why", "", chance=lambda: 0.5), RetryLater)
    assert isinstance(decide_after_failure(1, 1, "why", "", chance=lambda: 0.5), Bury)


def test_the_waits_may_be_others() -> None:
    fixed = Backoff(base=3.0, cap=3.0, jitter=Jitter.NONE)
    assert decide_after_failure(7, 9, "why", "", backoff=fixed, chance=lambda: 0.9) == RetryLater(3.0)


def test_a_worker_that_is_not_heard_of_is_an_attempt_and_the_last_buries_the_message() -> None:
    assert decide_before_attempt(4, 5, None, 100.0) is None
    end = decide_before_attempt(5, 5, None, 100.0)
    assert isinstance(end, Bury)
    assert "5 deliveries" in end.reason


@pytest.mark.parametrize(("expires", "is_dropped"), [(None, False), (100.1, False), (100.0, True), (50.0, True)])
def test_what_is_worth_nothing_any_more_is_dropped(expires: float | None, is_dropped: bool) -> None:
    assert (decide_before_attempt(1, 5, expires, 100.0) == Drop()) == is_dropped


def test_what_is_worth_nothing_is_not_buried() -> None:
    assert decide_before_attempt(5, 5, 50.0, 100.0) == Drop()


def test_messages_that_died_with_their_worker_once_come_back_at_once() -> None:
    assert [compute_redelivery_delay(number, 1, 30.0) for number in range(10)] == [0.0] * 10


def test_those_that_did_so_again_part_for_longer_and_longer_up_to_a_bound() -> None:
    for attempt, most in ((2, 30.0), (3, 60.0), (4, 120.0), (40, MAX_REDELIVERY_DELAY)):
        rests = [compute_redelivery_delay(number, attempt, 30.0) for number in range(1000)]
        assert max(rests) < most
        assert max(rests) > 0.9 * most
        # Spread evenly: no tenth of the time has twice its share.
        for tenth in range(10):
            assert 50 < sum(tenth * most / 10 <= one < (tenth + 1) * most / 10 for one in rests) < 200

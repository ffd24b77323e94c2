"""How many messages a worker asks for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.worker.appetite import MOST, PATIENCE, Pace, fetched, measured, target, wanted

CONCURRENCY = st.integers(1, 10_000)
SECONDS = st.floats(0, 1e6)
PACE = st.builds(Pace, st.floats(0, 1e9), SECONDS, SECONDS)
HELD = st.integers(0, 20_000)


@given(CONCURRENCY, PACE, HELD)
def test_a_worker_never_holds_more_than_its_target(concurrency: int, pace: Pace, held: int) -> None:
    count = wanted(concurrency, pace, held)
    assert count >= 0
    assert count == 0 or held + count == target(concurrency, pace)


@given(CONCURRENCY, PACE)
def test_the_target_is_bounded(concurrency: int, pace: Pace) -> None:
    assert concurrency <= target(concurrency, pace) <= concurrency + MOST


@given(CONCURRENCY, PACE, HELD)
def test_it_asks_whenever_a_handler_is_idle(concurrency: int, pace: Pace, held: int) -> None:
    if held < concurrency:
        assert wanted(concurrency, pace, held) >= 1


@given(CONCURRENCY, st.floats(1e-5, 1), st.floats(1e-4, 0.02))
def test_handlers_do_not_wait_for_messages(concurrency: int, seconds: float, fetch: float) -> None:
    """When all are at work, what is ahead at the latest moment at which it asks lasts until more are there."""
    pace = Pace(concurrency / seconds, seconds, fetch)
    ahead = target(concurrency, pace) - concurrency
    left = ahead // 2
    assert wanted(concurrency, pace, concurrency + left) >= (1 if ahead else 0)
    if fetch * concurrency / seconds >= 1 and ahead < MOST:
        assert (left + 1) * seconds / concurrency >= fetch * 0.99


@given(CONCURRENCY, PACE)
def test_it_does_not_ask_for_every_single_message(concurrency: int, pace: Pace) -> None:
    ahead = target(concurrency, pace) - concurrency
    if ahead:
        assert wanted(concurrency, pace, concurrency + ahead) == 0
    if ahead >= 3:
        assert wanted(concurrency, pace, concurrency + ahead - 1) == 0


@pytest.mark.parametrize("seconds", [0.5, 1.0, 3600.0])
def test_slow_jobs_are_not_fetched_ahead(seconds: float) -> None:
    """A message that waits here for a handler waits while another worker may be idle."""
    pace = Pace(8 / seconds, seconds, 0.005)
    assert target(8, pace) == 8
    assert wanted(8, pace, 8) == 0
    assert wanted(8, pace, 7) == 1


@given(CONCURRENCY, PACE)
def test_what_is_fetched_ahead_does_not_wait_for_long(concurrency: int, pace: Pace) -> None:
    ahead = target(concurrency, pace) - concurrency
    if ahead:
        assert ahead / pace.rate <= PATIENCE + 1e-9


def test_quick_handlers_that_are_at_work_on_something_long_get_nothing_ahead() -> None:
    """What they could do does not count, but what they did."""
    pace = Pace(10_000, 0.0001, 0.005)
    assert target(8, pace) == 8 + 200
    for _ in range(40):
        pace = measured(pace, 0, 0.0, 0.05)
    assert target(8, pace) == 8


@pytest.mark.parametrize(
    ("rate", "seconds", "fetch", "ahead"),
    [
        (0.0, 0.0, 0.0, 0),
        (0.0, 1e-5, 1.0, 0),
        (49.9, 0.05, 0.005, 0),
        (50.0, 0.05, 0.0, 0),
        (50.0, 0.05, 0.005, 1),
        (1600.0, 0.005, 0.002, 7),
        (1600.0, 0.005, 0.02, 64),
        (1600.0, 0.005, 2.0, 80),
        (20_000.0, 0.0001, 0.005, 400),
        (20_000.0, 0.0001, 0.010, 600),
        (1e6, 1e-6, 0.002, MOST),
        (1e6, 0.0, 0.0, MOST),
    ],
)
def test_the_target_by_example(rate: float, seconds: float, fetch: float, ahead: int) -> None:
    assert target(8, Pace(rate, seconds, fetch)) == 8 + ahead


@given(PACE, st.integers(1, 10**6), st.floats(0, 1e6), st.floats(0.001, 1e3))
def test_the_pace_moves_towards_what_was_measured(pace: Pace, handled: int, busy: float, elapsed: float) -> None:
    after = measured(pace, handled, busy, elapsed)
    for before, now, result in (
        (pace.rate, handled / elapsed, after.rate),
        (pace.seconds, busy / handled, after.seconds),
    ):
        low, high = sorted((before, now))
        assert low - 1e-6 <= result <= high * (1 + 1e-9) + 1e-6
    assert after.fetch == pace.fetch


def test_where_nothing_was_handled_nothing_is_known_of_what_it_takes() -> None:
    assert measured(Pace(10.0, 0.5, 0.1), 0, 0.0, 1.0) == Pace(7.0, 0.5, 0.1)


@pytest.mark.parametrize("elapsed", [0.0, -1.0])
def test_a_clock_that_stands_still_measures_nothing(elapsed: float) -> None:
    assert measured(Pace(7.0), 100, 1.0, elapsed) == Pace(7.0)


def test_the_pace_is_learned_within_a_few_measurements() -> None:
    pace = Pace()
    for _ in range(10):
        pace = fetched(measured(pace, 1000, 0.1, 0.05), 0.003)
    assert math.isclose(pace.rate, 20_000, rel_tol=0.05)
    assert math.isclose(pace.seconds, 0.0001, rel_tol=0.05)
    assert math.isclose(pace.fetch, 0.003, rel_tol=0.05)

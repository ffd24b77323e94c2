"""Times in which the process did not run are noticed, and tell how much of a period was watched."""

import logging

import pytest

from holdfast.testing import FakeClock
from holdfast.watch.pauses import BEAT_SECONDS, MIN_PAUSE, Pause, PauseMeter, is_mostly_paused

START = 1_700_000_400.0


def test_a_long_gap_between_two_beats_is_a_pause_which_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(wall=START)
    meter = PauseMeter(clock)
    for seconds in (BEAT_SECONDS, MIN_PAUSE, 45.0, BEAT_SECONDS):
        clock.advance(seconds)
        meter.beat()
    assert meter.list_pauses() == [Pause(START + 6.0, START + 51.0)]
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        "this process did not run for 45 s: silence in that time is no missing data",
    )


def test_beats_of_the_background_thread_show_that_a_long_step_of_another_thread_is_no_pause() -> None:
    clock = FakeClock(wall=START)
    meter = PauseMeter(clock)
    for _ in range(30):
        clock.advance(BEAT_SECONDS)
        assert meter._loop.run_step() == BEAT_SECONDS
    meter.beat()
    assert meter.list_pauses() == []


def test_a_clock_that_is_set_back_is_no_pause() -> None:
    clock = FakeClock(wall=START)
    meter = PauseMeter(clock)
    clock.jump_wall(-3600)
    meter.beat()
    clock.advance(1)
    meter.beat()
    assert meter.list_pauses() == []


@pytest.mark.parametrize(
    ("pauses", "is_paused"),
    [
        ([], False),
        ([(0, 60)], True),
        ([(-100, 200)], True),
        ([(-100, 30)], False),
        ([(-100, 31)], True),
        ([(50, 90)], False),
        ([(0, 20), (40, 51)], True),
        ([(-50, 0), (60, 90)], False),
    ],
)
def test_a_period_of_a_minute_is_paused_if_the_process_ran_for_less_than_half_of_it(
    pauses: list[tuple[float, float]], is_paused: bool
) -> None:
    assert is_mostly_paused(0.0, 60.0, [Pause(*each) for each in pauses]) is is_paused

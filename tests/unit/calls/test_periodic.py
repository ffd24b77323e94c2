"""Each host has its own moment, and always the same one."""

import asyncio
import math
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls.periodic import (
    DAY,
    HOUR,
    PeriodicSchedule,
    Ticker,
    _Weekday,
    add_jitter,
    daily,
    host_jitter,
    host_name,
    hourly,
    weekly,
)
from holdfast.testing import FakeClock

MONDAY = 1_749_427_200.0
"""Monday, 9 June 2025, 00:00 UTC."""

periods = st.floats(min_value=0.001, max_value=1e7)
moments = st.floats(min_value=-1e9, max_value=1e10)
names = st.text(max_size=8)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall=MONDAY)


def minutely(clock: FakeClock) -> Ticker:
    """Every full minute, but for the host's own share of a millisecond."""
    return Ticker(PeriodicSchedule(60.0, "job", host="a", spread=0.001), clock)


def after_monday(moment: float) -> float:
    return round(moment - MONDAY, 1)


# The moment of a host


@given(periods, names, names)
def test_a_jitter_is_somewhere_in_the_period_and_stays_there(period: float, key: str, host: str) -> None:
    assert 0 <= host_jitter(period, key, host) < period
    assert host_jitter(period, key, host) == host_jitter(period, key, host)


def test_a_jitter_is_the_same_for_ever() -> None:
    assert host_jitter(3600.0, "clean up", "shop-1") == 51.411881867155174  # a change would move everybody's work


def test_another_process_finds_the_same_jitter_whatever_its_hash_seed() -> None:
    code = "from holdfast.calls.periodic import host_jitter; print(repr(host_jitter(60.0, 'job', 'a')))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {repr(host_jitter(60.0, "job", "a"))}


def test_hosts_are_spread_evenly() -> None:
    # Ten thousand hosts in a hundred parts: a hundred in each, give or take five standard deviations.
    counts = [0] * 100
    for number in range(10_000):
        counts[int(host_jitter(100.0, "job", f"host-{number}"))] += 1
    assert 50 <= min(counts) <= max(counts) <= 150
    # Pearson's statistic, with 99 degrees of freedom: 150 is passed by chance once in a thousand times.
    assert sum((count - 100) ** 2 / 100 for count in counts) < 150


def test_a_host_has_another_moment_for_each_job_and_names_do_not_run_together() -> None:
    assert len({host_jitter(60.0, f"job-{number}", "a") for number in range(100)}) == 100
    assert host_jitter(60.0, "bc", "a") != host_jitter(60.0, "c", "ab")


@pytest.mark.parametrize("period", [0.0, -1.0, 0.0009, math.inf, math.nan])
def test_a_period_that_is_none_is_refused(period: float) -> None:
    with pytest.raises(InvalidValue, match=r"period is .*: expected seconds, 0\.001 or more"):
        host_jitter(period, "job", "a")
    with pytest.raises(InvalidValue, match="period is"):
        PeriodicSchedule(period, "job", host="a")


def test_the_host_is_the_one_that_the_environment_names_else_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_HOST", raising=False)
    assert host_name() == socket.gethostname()
    monkeypatch.setenv("HOLDFAST_HOST", "")
    assert host_name() == socket.gethostname()
    monkeypatch.setenv("HOLDFAST_HOST", "shop-7")
    assert host_name() == "shop-7"
    assert host_jitter(60.0, "job") == host_jitter(60.0, "job", "shop-7")
    assert PeriodicSchedule(60.0, "job") == PeriodicSchedule(60.0, "job", host="shop-7")
    assert hourly("job").host == daily("job").host == weekly("job").host == "shop-7"


# The rule


@given(periods, names, st.floats(0, 1, exclude_max=True), st.floats(0, 1), moments)
def test_there_is_one_moment_in_each_period(period: float, key: str, at: float, width: float, after: float) -> None:
    rule = PeriodicSchedule(period, key, host="a", start=at * period, spread=max(0.001, width * period))
    moment = rule.next(after)
    rounding = 1e-5  # a float has no more at the far end of these times
    assert after < moment <= after + period + rounding
    assert (moment - rule.offset) / period == pytest.approx(
        round((moment - rule.offset) / period), abs=rounding / 0.001
    )
    assert rule.next(moment) == pytest.approx(moment + period, abs=rounding)


@given(periods, names, moments)
def test_no_moment_is_lost_to_rounding(period: float, key: str, after: float) -> None:
    rule = PeriodicSchedule(period, key, host="a")
    moment = rule.next(after)
    assert rule.next(math.nextafter(moment, -math.inf)) == moment


@given(periods, names, st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_a_moment_is_within_the_spread_after_the_earliest(period: float, key: str, at: float, width: float) -> None:
    rule = PeriodicSchedule(period, key, host="a", start=at * period, spread=max(0.001, width * period))
    assert 0 <= rule.offset < period
    later = (rule.offset - rule.start) % period
    assert rule.spread is not None
    # A whole period later is the same moment, seen through rounding.
    assert later <= rule.spread + 1e-6 or later == pytest.approx(period, abs=1e-6)


def test_without_a_spread_the_hosts_have_the_whole_period() -> None:
    offsets = [PeriodicSchedule(60.0, "job", host=f"host-{number}").offset for number in range(100)]
    assert min(offsets) < 6
    assert max(offsets) > 54


def test_the_same_rule_is_equal_and_cannot_be_changed() -> None:
    rule = PeriodicSchedule(60.0, "job", host="a")
    assert rule == PeriodicSchedule(60.0, "job", host="a")
    assert hash(rule) == hash(PeriodicSchedule(60.0, "job", host="a"))
    with pytest.raises(AttributeError):
        rule.offset = 0.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spread": 61.0}, r"spread is 61\.0: expected 0\.001 to 60\.0"),
        ({"spread": 0.0}, r"spread is 0\.0"),
        ({"start": 60.0}, r"start is 60\.0: expected seconds from 0 up to 60\.0"),
        ({"start": -1.0}, r"start is -1\.0"),
    ],
)
def test_what_does_not_fit_into_the_period_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PeriodicSchedule(60.0, "job", host="a", **options)


# Calendars


@pytest.mark.parametrize(
    ("make", "earliest", "latest"),
    [
        (lambda host: hourly("job", minute=30, spread=60.0, host=host), 1_800.0, 1_860.0),
        (lambda host: daily("job", at="03:30", spread=600.0, host=host), 12_600.0, 13_200.0),
        (lambda host: daily("job", host=host), 0.0, HOUR),
        (lambda host: weekly("job", host=host), 0.0, DAY),
        (lambda host: weekly("job", day="sunday", at="23:00", spread=HOUR, host=host), 7 * DAY - HOUR, 7 * DAY),
        (lambda host: weekly("job", day="thursday", at="00:00", spread=1.0, host=host), 3 * DAY, 3 * DAY + 1),
    ],
)
def test_each_host_has_its_moment_after_the_time_of_the_calendar(
    make: Callable[[str], PeriodicSchedule], earliest: float, latest: float
) -> None:
    found = [make(f"host-{number}").next(MONDAY - 0.001) - MONDAY for number in range(200)]
    assert earliest <= min(found) <= max(found) <= latest
    assert max(found) - min(found) > 0.9 * (latest - earliest)


def test_a_spread_past_midnight_goes_on_in_the_next_day() -> None:
    found = {int(daily("job", at="23:30", spread=HOUR, host=f"host-{number}").offset // HOUR) for number in range(100)}
    assert found == {23, 0}


@pytest.mark.parametrize("at", ["24:00", "3:30", "03:60", "03:30:00", "", "٠٣:٣٠"])
def test_a_time_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(InvalidValue, match="expected a time of day in UTC"):
        daily("job", at=at)


def test_a_minute_or_day_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValue, match="minute is 60: expected 0 to 59"):
        hourly("job", minute=60)
    wrong: _Weekday = "someday"  # type: ignore[assignment]
    with pytest.raises(InvalidValue, match="day is 'someday': expected one of thursday"):
        weekly("job", day=wrong)


# Waiting


def test_a_ticker_waits_for_one_moment_after_the_other(clock: FakeClock) -> None:
    assert [after_monday(moment) for moment in islice(minutely(clock), 3)] == [0.0, 60.0, 120.0]


def test_the_time_is_that_of_the_moment_when_the_wait_ends(clock: FakeClock) -> None:
    ticker = Ticker(PeriodicSchedule(HOUR, "job", host="a"), clock)
    moment = ticker.wait()
    assert 0 <= clock.wall() - moment < 1e-6
    assert moment == ticker.schedule.next(MONDAY)


def test_tasks_wait_in_the_same_way(clock: FakeClock) -> None:
    async def scene() -> list[float]:
        found = []
        async for moment in minutely(clock):
            found.append(after_monday(moment))
            if len(found) == 3:
                break
        return [*found, after_monday(await minutely(clock).wait_async())]

    assert asyncio.run(scene()) == [0.0, 60.0, 120.0, 180.0]


def test_no_sleep_is_so_long_that_a_clock_that_was_set_goes_unnoticed(clock: FakeClock) -> None:
    Ticker(PeriodicSchedule(DAY, "job", host="a"), clock).wait()
    assert max(clock.sleeps) <= 10.0


def test_moments_that_pass_while_the_work_is_done_are_left_out(clock: FakeClock) -> None:
    ticker = minutely(clock)
    assert after_monday(ticker.wait()) == 0.0
    clock.advance(200.0)  # the work
    assert [after_monday(ticker.wait()) for _ in range(2)] == [240.0, 300.0]


class Set(FakeClock):
    """A clock that is set at the first sleep, as if the machine slept or an operator set it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(wall=MONDAY)
        self._seconds = seconds

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.jump_wall(self._seconds)
        self._seconds = 0.0


@pytest.mark.parametrize(
    ("asleep", "moment"),
    [
        (79.0, 60.0),  # awake at 89.5, almost half a minute late: it counts
        (80.0, 120.0),  # awake at 90.5: too late for 60, and 120 is soon
        (3_600.0, 3_660.0),  # sixty were missed, none is made up for
    ],
)
def test_a_moment_counts_if_it_is_noticed_half_a_period_late_and_not_later(asleep: float, moment: float) -> None:
    clock = Set(asleep)
    clock.advance(0.5)
    ticker = minutely(clock)
    assert after_monday(ticker.wait()) == moment
    assert after_monday(ticker.wait()) == (120.0 if moment == 60.0 else moment + 60.0)


def test_hosts_that_wake_together_after_a_night_do_not_work_together() -> None:
    found = []
    for number in range(50):
        clock = Set(10 * HOUR)
        Ticker(hourly("job", minute=30, spread=600.0, host=f"host-{number}"), clock).wait()
        found.append(clock.wall() - MONDAY)
    assert min(found) >= 10.5 * HOUR
    assert len({round(moment) for moment in found}) > 45


@given(st.floats(min_value=0.001, max_value=59.9))
def test_a_clock_that_is_set_back_a_little_does_not_bring_the_same_moment_twice(back: float) -> None:
    clock = FakeClock(wall=MONDAY)
    ticker = minutely(clock)
    first = ticker.wait()
    clock.jump_wall(-back)
    assert ticker.wait() == pytest.approx(first + 60.0)


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=8), st.floats(0.01, 3_600.0))
def test_whatever_is_done_to_the_clock_the_next_moment_comes_within_two_periods_and_is_another(
    jumps: list[float], period: float
) -> None:
    clock = FakeClock(wall=MONDAY)
    ticker = Ticker(PeriodicSchedule(period, "job", host="a"), clock)
    last = ticker.wait()
    for jump in jumps:
        before = clock.monotonic()
        clock.jump_wall(jump)
        moment = ticker.wait()
        assert moment != last
        assert clock.monotonic() - before <= 2 * period + 1e-5
        last = moment


@given(st.floats(min_value=-1e6, max_value=-1.0), st.floats(20.0, 3_600.0))
def test_a_clock_that_is_set_back_during_the_wait_is_noticed(jump: float, period: float) -> None:
    clock = Set(jump)
    before = clock.monotonic()
    ticker = Ticker(PeriodicSchedule(period, "job", host="a"), clock)
    ticker.wait()
    assert clock.monotonic() - before <= 2 * period + 10.0


# Chance


@given(st.floats(min_value=0, max_value=1e6), st.floats(0, 1), st.integers())
def test_a_delay_is_spread_by_its_share_either_way(seconds: float, share: float, seed: int) -> None:
    found = add_jitter(seconds, share, random.Random(seed))
    assert seconds * (1 - share) - 1e-6 <= found <= seconds * (1 + share) + 1e-6
    assert found == add_jitter(seconds, share, random.Random(seed))


def test_delays_differ_from_each_other_and_cover_their_share() -> None:
    found = [add_jitter(10.0) for _ in range(1_000)]
    assert 8.0 <= min(found) < 8.5
    assert 11.5 < max(found) <= 12.0


@pytest.mark.parametrize(("seconds", "share"), [(-1.0, 0.2), (math.inf, 0.2), (1.0, 1.1), (1.0, -0.1), (1.0, math.nan)])
def test_a_delay_that_cannot_be_is_refused(seconds: float, share: float) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        add_jitter(seconds, share)

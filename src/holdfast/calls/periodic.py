"""Timers whose hosts do not fire at the same time: each host has its own fixed offset in the period.

With aligned clocks, all hosts would work in the same second. Random jitter would differ each time. A fixed offset per
host makes the load repeat, so that patterns are visible. `PeriodicSchedule` computes the times; `Ticker` waits.
"""

import hashlib
import json
import math
import os
import random
import re
import socket
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue

_HOST_VARIABLE = "HOLDFAST_HOST"
_MIN_PERIOD = 0.001
"""Seconds. Sleeping is too imprecise for periods below a millisecond."""
MAX_SLEEP = 10.0
"""Seconds between two readings of the clock, to notice that it was set, or that the machine was suspended."""
_MAX_LATENESS = 60.0
"""Seconds by which a time may be missed and still count: for a busy machine or a short pause of a virtual one."""
HOUR, DAY, WEEK = 3_600.0, 86_400.0, 604_800.0
_Weekday: TypeAlias = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# The epoch began on a Thursday.
_WEEKDAYS = ("thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


def host_name() -> str:
    """Return HOLDFAST_HOST, or the host name. Set it, for example to the node's name, if containers get new names."""
    return os.environ.get(_HOST_VARIABLE) or socket.gethostname()


def host_jitter(period: float, key: str, host: str | None = None) -> float:
    """Return this host's constant offset for `key`, in seconds from 0 up to `period`. Each key has another one."""
    _expect_period(period)
    # JSON, so that no two pairs of host and key give the same text.
    text = json.dumps([host_name() if host is None else host, key])
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"holdfast jitter").digest()
    # The 53 bits of a float: with more, the share could be rounded up to 1.
    return (int.from_bytes(digest, "big") >> 11) / 2**53 * period


def add_jitter(seconds: float, share: float = 0.2, randomness: random.Random | None = None) -> float:
    """Return `seconds`, randomly longer or shorter by up to `share` of it, so that callers do not retry together."""
    if not 0 <= seconds < math.inf:
        raise InvalidValue(f"a delay of {seconds} seconds: expected 0 or more")
    if not 0 <= share <= 1:
        raise InvalidValue(f"share is {share}: expected a fraction of the delay, 0 to 1")
    uniform = random.uniform if randomness is None else randomness.uniform
    return seconds * uniform(1 - share, 1 + share)


@dataclass(frozen=True, slots=True)
class PeriodicSchedule:
    """The times of one host: `offset` seconds after the start of each period, counted from the epoch, in UTC."""

    period: float
    """Seconds."""
    key: str
    """Name of the job. A host has another offset for each."""
    host: str = field(default_factory=host_name, kw_only=True)
    start: float = field(default=0.0, kw_only=True)
    """Smallest offset of any host, in seconds."""
    spread: float | None = field(default=None, kw_only=True)
    """Seconds after `start` over which hosts are spread; None means the whole period."""
    offset: float = field(init=False)

    def __post_init__(self) -> None:
        _expect_period(self.period)
        if self.spread is not None and not _MIN_PERIOD <= self.spread <= self.period:
            raise InvalidValue(f"spread is {self.spread}: expected {_MIN_PERIOD} to {self.period}, the period")
        if not 0 <= self.start < self.period:
            raise InvalidValue(f"start is {self.start}: expected seconds from 0 up to {self.period}, the period")
        jitter = host_jitter(self.period if self.spread is None else self.spread, self.key, self.host)
        object.__setattr__(self, "offset", (self.start + jitter) % self.period)

    def next(self, after: float) -> float:
        """Return the first time later than `after`, both in seconds since the epoch."""
        number = math.floor((after - self.offset) / self.period) - 1  # minus 1: the division may have rounded up
        while (moment := number * self.period + self.offset) <= after:
            number += 1
        return moment


def hourly(key: str, *, minute: int = 0, spread: float = HOUR, host: str | None = None) -> PeriodicSchedule:
    """Return a schedule for once an hour, at this host's offset within `spread` seconds after `minute`."""
    if not 0 <= minute < 60:
        raise InvalidValue(f"minute is {minute}: expected 0 to 59")
    return PeriodicSchedule(HOUR, key, host=host_name() if host is None else host, start=minute * 60.0, spread=spread)


def daily(key: str, *, at: str = "00:00", spread: float = HOUR, host: str | None = None) -> PeriodicSchedule:
    """Return a schedule for once a day, at this host's offset within `spread` seconds after `at` (UTC)."""
    return PeriodicSchedule(DAY, key, host=host_name() if host is None else host, start=_seconds(at), spread=spread)


def weekly(
    key: str, *, day: _Weekday = "monday", at: str = "00:00", spread: float = DAY, host: str | None = None
) -> PeriodicSchedule:
    """Return a schedule for once a week, at this host's offset within `spread` seconds after `day` and `at` (UTC)."""
    if day not in _WEEKDAYS:
        raise InvalidValue(f"day is {day!r}: expected one of {', '.join(_WEEKDAYS)}")
    start = _WEEKDAYS.index(day) * DAY + _seconds(at)
    return PeriodicSchedule(WEEK, key, host=host_name() if host is None else host, start=start, spread=spread)


class Ticker:
    """An iterator that waits for the times of a schedule: `for moment in Ticker(daily("clean up"))`. Not thread-safe.

    A time that is noticed late still counts, up to half a period and at most a minute. After that it is skipped, so
    that hosts which wake up together do not all run the job. When the clock is set back by less than a period, the
    last time is not repeated, and the next one is at most two periods away. Set back by more, earlier times come again.
    """

    def __init__(self, schedule: PeriodicSchedule, clock: Clock | None = None) -> None:
        self.schedule = schedule
        self._clock = clock or SystemClock()
        self._max_lateness = min(schedule.period / 2, _MAX_LATENESS)
        self._last: float | None = None

    def wait(self) -> float:
        """Block until the next time of the schedule, and return it in seconds since the epoch."""
        pauses = self._pauses()
        while True:
            try:
                self._clock.sleep(next(pauses))
            except StopIteration as reached:
                return float(reached.value)

    async def wait_async(self) -> float:
        """Suspend the calling task until the next time of the schedule, and return it in seconds since the epoch."""
        pauses = self._pauses()
        while True:
            try:
                pause = next(pauses)
            except StopIteration as reached:
                return float(reached.value)
            await self._clock.sleep_async(pause)

    def __iter__(self) -> Iterator[float]:
        while True:
            yield self.wait()

    async def __aiter__(self) -> AsyncIterator[float]:
        while True:
            yield await self.wait_async()

    def _pauses(self) -> Generator[float, None, float]:
        """Yield the seconds to sleep before each reading of the clock; return the time that was reached."""
        moment = self._upcoming(self._clock.wall())
        while True:
            now = self._clock.wall()
            if moment <= now <= moment + self._max_lateness:
                self._last = moment
                return moment
            moment = self._upcoming(now)  # changes if the time was missed, or the clock was set back
            yield min(moment - now, MAX_SLEEP)

    def _upcoming(self, now: float) -> float:
        upcoming = self.schedule.next(now)
        return self.schedule.next(upcoming) if upcoming == self._last else upcoming


def _expect_period(period: float) -> None:
    if not _MIN_PERIOD <= period < math.inf:
        raise InvalidValue(f"period is {period}: expected seconds, {_MIN_PERIOD} or more")


def _seconds(at: str) -> float:
    found = _TIME.fullmatch(at)
    if found is None:
        raise InvalidValue(f"at is {at!r}: expected a time of day in UTC, such as 03:30")
    return int(found[1]) * HOUR + int(found[2]) * 60.0

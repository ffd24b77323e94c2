"""Timers that do not all fire at once: each host has its own moment in the period, and always the same one.

Aligned clocks send every host's work into the same second. Chance would spread it differently each time; a moment that
belongs to the host makes load repeat itself, so that patterns show. `PeriodicSchedule` only decides; `Ticker` waits
for it.
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
"""Seconds. Below a millisecond sleeping is too coarse for a timer."""
MAX_SLEEP = 10.0
"""Seconds between two looks at the clock, so that one that was set, or stood still with the machine, is noticed."""
_MAX_LATENESS = 60.0
"""Seconds by which a moment may be late and still count: a busy machine, a short pause of a virtual one."""
HOUR, DAY, WEEK = 3_600.0, 86_400.0, 604_800.0
_Weekday: TypeAlias = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# The epoch began on a Thursday.
_WEEKDAYS = ("thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


def host_name() -> str:
    """Return HOLDFAST_HOST, else the system's name. Where containers get new names, set it to the node's, say."""
    return os.environ.get(_HOST_VARIABLE) or socket.gethostname()


def host_jitter(period: float, key: str, host: str | None = None) -> float:
    """Return this host's seconds for this `key`, from 0 up to `period`: always the same, and others for other keys."""
    _expect_period(period)
    # JSON keeps the two apart, whatever is in them.
    text = json.dumps([host_name() if host is None else host, key])
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"holdfast jitter").digest()
    # As many bits as a float has: with more, the share could be rounded up to 1.
    return (int.from_bytes(digest, "big") >> 11) / 2**53 * period


def add_jitter(seconds: float, share: float = 0.2, randomness: random.Random | None = None) -> float:
    """Return a delay that is longer or shorter by up to `share` of it, so that callers do not come back together."""
    if not 0 <= seconds < math.inf:
        raise InvalidValue(f"a delay of {seconds} seconds: expected 0 or more")
    if not 0 <= share <= 1:
        raise InvalidValue(f"share is {share}: expected a part of the delay, 0 to 1")
    uniform = random.uniform if randomness is None else randomness.uniform
    return seconds * uniform(1 - share, 1 + share)


@dataclass(frozen=True, slots=True)
class PeriodicSchedule:
    """The moments of one host: `offset` seconds after the start of each period, counted from the epoch, in UTC."""

    period: float
    """Seconds."""
    key: str
    """Names the job. A host has another moment for each."""
    host: str = field(default_factory=host_name, kw_only=True)
    start: float = field(default=0.0, kw_only=True)
    """Seconds from the beginning of each period to the earliest moment of any host."""
    spread: float | None = field(default=None, kw_only=True)
    """Seconds over which the hosts are spread from there on; None stands for the whole period."""
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
        """The first moment later than `after`, both in seconds since the epoch."""
        number = math.floor((after - self.offset) / self.period) - 1  # one less: the division may have rounded up
        while (moment := number * self.period + self.offset) <= after:
            number += 1
        return moment


def hourly(key: str, *, minute: int = 0, spread: float = HOUR, host: str | None = None) -> PeriodicSchedule:
    """Once in each hour, from `minute` on, at this host's own moment of the `spread` seconds after it."""
    if not 0 <= minute < 60:
        raise InvalidValue(f"minute is {minute}: expected 0 to 59")
    return PeriodicSchedule(HOUR, key, host=host_name() if host is None else host, start=minute * 60.0, spread=spread)


def daily(key: str, *, at: str = "00:00", spread: float = HOUR, host: str | None = None) -> PeriodicSchedule:
    """Once in each day, from `at` (UTC) on, at this host's own moment of the `spread` seconds after it."""
    return PeriodicSchedule(DAY, key, host=host_name() if host is None else host, start=_seconds(at), spread=spread)


def weekly(
    key: str, *, day: _Weekday = "monday", at: str = "00:00", spread: float = DAY, host: str | None = None
) -> PeriodicSchedule:
    """Once in each week, from `day` and `at` (UTC) on, at this host's own moment of the `spread` seconds after it."""
    if day not in _WEEKDAYS:
        raise InvalidValue(f"day is {day!r}: expected one of {', '.join(_WEEKDAYS)}")
    start = _WEEKDAYS.index(day) * DAY + _seconds(at)
    return PeriodicSchedule(WEEK, key, host=host_name() if host is None else host, start=start, spread=spread)


class Ticker:
    """Waits for the moments of a PeriodicSchedule: `for moment in Ticker(daily("clean up"))`. For one thread or task.

    A moment that is noticed late still counts, up to half a period and at most a minute. Later ones are left out: hosts
    that wake together do not work together. When the clock is set back, the last moment does not come twice in a row,
    and the next one is no more than two periods away; a clock that is set back by more lets earlier moments come again.
    """

    def __init__(self, schedule: PeriodicSchedule, clock: Clock | None = None) -> None:
        self.schedule = schedule
        self._clock = clock or SystemClock()
        self._max_lateness = min(schedule.period / 2, _MAX_LATENESS)
        self._last: float | None = None

    def wait(self) -> float:
        """Block until the next moment, and return it in seconds since the epoch."""
        pauses = self._pauses()
        while True:
            try:
                self._clock.sleep(next(pauses))
            except StopIteration as reached:
                return float(reached.value)

    async def wait_async(self) -> float:
        """Suspend the calling task until the next moment, and return it in seconds since the epoch."""
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
        """How long to sleep before each further look at the clock; returns the moment that was reached."""
        moment = self._upcoming(self._clock.wall())
        while True:
            now = self._clock.wall()
            if moment <= now <= moment + self._max_lateness:
                self._last = moment
                return moment
            moment = self._upcoming(now)  # another one if it was missed, or if the clock was set back
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
        raise InvalidValue(f"at is {at!r}: expected a time of the day in UTC, such as 03:30")
    return int(found[1]) * HOUR + int(found[2]) * 60.0

"""When the server says to come back: Retry-After and its kin, read, capped and shared. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast._errors import InvalidValue


class HintsHold(StrEnum):
    """Whom a server's hint holds back, of those that call the same dependency."""

    RETRIES = "retries"
    """Every caller's retries. One overloaded host behind a balancer does not stop the calls to the others."""
    ALL = "all"
    """First attempts as well: for services that limit the client as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """How far a server is believed that says when to come back."""

    cap: float = 20.0
    """Seconds; a longer hint is cut: a wrong one must not stop the service for an hour."""
    hold: HintsHold = HintsHold.RETRIES
    spread: float = 0.25
    """Share of a hint that is added by chance, so that those who waited together do not come back together."""

    def __post_init__(self) -> None:
        if not 0 <= self.cap < math.inf or not 0 <= self.spread < math.inf:
            raise InvalidValue(f"hints cap {self.cap} and spread {self.spread}: expected 0 or more")
        object.__setattr__(self, "hold", HintsHold(self.hold))


def retry_after(headers: Mapping[str, str], wall: Callable[[], float]) -> float | None:
    """Seconds that the response's headers ask to wait; None if they say nothing that can be understood.

    `Retry-After` in seconds or as a date (RFC 9110, 10.2.3), and `x-amz-retry-after` in milliseconds, which wins: it is
    finer. The mapping must not mind upper and lower case, or have names in lower case.
    """
    exact = headers.get("x-amz-retry-after")
    if exact is not None:
        milliseconds = _number(exact)
        if milliseconds is not None:
            return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime  # 15 ms, for servers that answer with a date

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - wall())
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


class Hold:
    """Until when a dependency wants to be left alone. Threads may race on it: the later hint stays, or nearly so."""

    __slots__ = ("hints", "seconds", "until")

    def __init__(self, hints: Hints) -> None:
        self.hints = hints
        self.until = -math.inf
        self.seconds = 0.0

    def note(self, seconds: float, now: float) -> None:
        """Take a hint; one that ends before another that holds changes nothing."""
        seconds = min(seconds, self.hints.cap)
        if now + seconds > self.until:
            self.until = now + seconds
            self.seconds = seconds

    def wait(self, now: float, chance: Callable[[], float]) -> float:
        """Seconds to wait before an attempt at `now`; 0 when nothing holds."""
        if self.until <= now:
            return 0.0
        return self.until - now + chance() * self.hints.spread * self.seconds

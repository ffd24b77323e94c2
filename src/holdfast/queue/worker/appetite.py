"""How many messages a worker asks for. Pure.

Few, so that nobody waits in a worker's hands while another worker is idle, and that what comes later and is more urgent
is not too late; but never so few that handlers wait for the next ones.
"""

import math
from typing import NamedTuple

PATIENCE = 0.05
"""Seconds that a message may wait here for a handler. Where it would be more, none is fetched ahead."""
QUICK = 0.02
"""The same where it takes less than a third of that to fetch more: what comes later need not wait so long."""
MOST = 1000
"""Messages that are held at most beyond those being handled: more would not make anything quicker."""
SMOOTHING = 0.3
"""How much the last measurement counts."""


class Pace(NamedTuple):
    """How fast a worker has been of late."""

    rate: float = 0.0
    """Messages that were handled per second."""
    seconds: float = 0.0
    """What each of them took a handler."""
    fetch: float = 0.0
    """Seconds that it takes to fetch more."""


def target(concurrency: int, pace: Pace) -> int:
    """Messages to hold, when so many can be handled at once.

    Ahead are twice those that can be handled while more are fetched: it asks when half of them are left. Those that are
    not handled within `PATIENCE` are too many, whatever handlers could do: they may be at work on something longer.
    """
    needed = 2 * concurrency * pace.fetch / pace.seconds if pace.seconds > 0 else math.inf
    patience = min(PATIENCE, max(QUICK, 3 * pace.fetch))
    return concurrency + math.floor(min(MOST, pace.rate * patience, math.ceil(min(MOST, needed))))


def wanted(concurrency: int, pace: Pace, held: int) -> int:
    """How many to ask for, when so many are held; 0: wait, until it is worth asking.

    It is, when handlers are idle, or when half of what was fetched ahead is used up.
    """
    most = target(concurrency, pace)
    is_worth_it = held < concurrency or held <= (concurrency + most) // 2
    return max(0, most - held) if is_worth_it else 0


def measured(pace: Pace, handled: int, busy: float, elapsed: float) -> Pace:
    """The pace, after so many were handled in so many seconds more, for which handlers were busy so many seconds."""
    if elapsed <= 0:
        return pace
    seconds = _smoothed(pace.seconds, busy / handled) if handled else pace.seconds
    return pace._replace(rate=_smoothed(pace.rate, handled / elapsed), seconds=seconds)


def fetched(pace: Pace, seconds: float) -> Pace:
    """The pace, after fetching took so many seconds."""
    return pace._replace(fetch=_smoothed(pace.fetch, seconds))


def _smoothed(before: float, now: float) -> float:
    return before + SMOOTHING * (now - before) if before else now  # nothing is known yet: it counts alone

"""How much more a tenant may send, the more it has waiting. Pure.

Below a tenth of its `max_backlog` nothing is held back. From there on the tenant may send `drain_rate` messages per
second, falling in proportion to what is left, to nothing at all at `max_backlog`. Only the tenant's own backlog counts:
whoever happens to share a lane with it is not held back.
"""

STARTS_AT = 0.1
"""The part of the backlog that is no reason to worry."""
BURST_SECONDS = 1.0
"""Seconds of the rate that may be sent at once: short, as the rate falls with each message that is kept."""
LONGEST_WAIT = 60.0
"""Seconds after which it is worth another try, however far away the limit is."""
FULL_WAIT = 5.0
"""The same where there is no room at all: nobody knows when some of what waits will be done."""


def pressure(waiting: int, most: int | None) -> float:
    """The part of its backlog that a tenant has used: 0 to 1."""
    return 0.0 if most is None else min(1.0, waiting / most)


def allowed_rate(waiting: int, most: int | None, drain_rate: float) -> tuple[float, float] | None:
    """The rate and burst at which it may send more; None: as it likes."""
    if most is None or waiting < most * STARTS_AT:
        return None
    left = max(0.0, (most - waiting) / (most * (1 - STARTS_AT)))
    rate = drain_rate * min(1.0, left)
    return rate, max(1.0, rate * BURST_SECONDS)

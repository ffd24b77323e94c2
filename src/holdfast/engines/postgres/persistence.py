"""How long to keep trying. Pure. The time and the chance are handed in."""

from holdfast.engines.postgres.faults import Remedy

RUNS = 10
"""Most runs of a transaction that deadlocks or cannot be serialized. PostgreSQL takes a second to see a deadlock, so
ten in a row are some ten seconds: by then the works do not collide by chance, they lock in a different order."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0  # a server that is back is noticed within two seconds, even after a long outage


def next_pause(remedy: Remedy, count: int, elapsed: float, patience: float, chance: float) -> float | None:
    """Seconds to wait before the next run, or None to give up.

    `count` is how often this remedy was needed, from 1; `elapsed` the seconds since it was first needed; `chance` a
    random number from 0 up to 1. Full jitter, so that the clients of a server that went away do not come back in
    step: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if remedy is Remedy.NONE:
        return None
    if remedy is Remedy.RERUN:
        return None if count >= RUNS else _FIRST_PAUSE * count * chance
    if count == 1:
        return 0.0  # mostly one idle connection that ended unnoticed: the server is there
    remaining = patience - elapsed
    if remaining <= 0:
        return None
    # The exponent is bounded only so that the power stays a small number: the pause reached its cap long before.
    return min(_FIRST_PAUSE * 2.0 ** min(count - 2, 10), _LONGEST_PAUSE, remaining) * chance

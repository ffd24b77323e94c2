"""What becomes of a message whose handler failed: another attempt, later, or the dead letters. Pure."""

from holdfast._backoff import Backoff, Chance
from holdfast.queue.message import Bury, Drop, RetryLater

DEFAULT_BACKOFF = Backoff(base=1.0, cap=900.0)
"""Waits between attempts: up to a second, doubling, at most 15 minutes. A queue has more time than a caller."""

MAX_REDELIVERY_DELAY = 900.0


def decide_after_failure(
    attempt: int, max_attempts: int, reason: str, detail: str, *, backoff: Backoff = DEFAULT_BACKOFF, chance: Chance
) -> RetryLater | Bury:
    """What follows from the failure of attempt number `attempt`, of so many that there may be."""
    if attempt >= max_attempts:
        return Bury(reason, detail)
    return RetryLater(backoff.delay(attempt, 0.0, chance))


def compute_redelivery_delay(message: int, attempt: int, lease: float) -> float:
    """Seconds by which a message is put off whose worker was not heard of again, at attempt number `attempt`.

    Nothing at first. But if it died in a worker's hands before, one of those that it died with may be what kills them,
    and the others must get away from it, or they are buried with it. So they part: each waits for a time that follows
    from its number, of up to a lease, twice as much each time.
    """
    if attempt < 2:
        return 0.0
    spread = (message * 0x9E3779B97F4A7C15 + attempt * 0xBF58476D1CE4E5B9) % (1 << 64) / (1 << 64)
    return min(MAX_REDELIVERY_DELAY, lease * float(1 << min(attempt - 2, 30))) * spread


def decide_before_attempt(attempt: int, max_attempts: int, expires: float | None, now: float) -> Bury | Drop | None:
    """Why a message is not to be delivered again; None: it is."""
    if expires is not None and expires <= now:
        return Drop()
    if attempt >= max_attempts:
        return Bury(f"given up after {attempt} deliveries: the worker was not heard of again", "")
    return None

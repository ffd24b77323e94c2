"""Decide what happens to a message that failed, or whose worker crashed: retry it, or bury it. Pure."""

from holdfast._backoff import Backoff, Chance
from holdfast._names import format_count
from holdfast.queue.message import Bury, Drop, RetryLater

DEFAULT_BACKOFF = Backoff(base=1.0, cap=900.0)
"""Waits between attempts: up to a second, doubling, at most 15 minutes. A queue has more time than a caller."""

MAX_REDELIVERY_DELAY = 900.0


def decide_after_failure(
    attempt: int, max_attempts: int, reason: str, detail: str, *, backoff: Backoff = DEFAULT_BACKOFF, chance: Chance
) -> RetryLater | Bury:
    """Decide what happens to a message whose attempt number `attempt` failed: retry it, or bury it after the last."""
    if attempt >= max_attempts:
        return Bury(reason, detail)
    return RetryLater(backoff.delay(attempt, 0.0, chance))


def compute_redelivery_delay(message: int, attempt: int, lease: float) -> float:
    """Return the seconds by which to delay a message whose lease expired, at attempt number `attempt`.

    The first time there is no delay. After that, one of the messages that the worker had may be the one that crashes
    workers, and the others must be separated from it, or they are buried with it. So each is delayed by a pseudorandom
    time that depends on its id, up to the length of a lease, doubling each time.
    """
    if attempt < 2:
        return 0.0
    spread = (message * 0x9E3779B97F4A7C15 + attempt * 0xBF58476D1CE4E5B9) % (1 << 64) / (1 << 64)
    return min(MAX_REDELIVERY_DELAY, lease * float(1 << min(attempt - 2, 30))) * spread


def decide_before_attempt(attempt: int, max_attempts: int, expires: float | None, now: float) -> Bury | Drop | None:
    """Return why a message must not be delivered again, or None if it may."""
    if expires is not None and expires <= now:
        return Drop()
    if attempt >= max_attempts:
        deliveries = format_count(attempt, "delivery", "deliveries")
        return Bury(f"gave up after {deliveries}: the lease expired without settlement", "")
    return None

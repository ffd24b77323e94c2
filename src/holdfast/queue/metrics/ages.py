"""How old a message is when it is received, and whether that says something about the whole system. Pure."""

from holdfast.queue.message import Delivery


def age_of(delivery: Delivery, now: float) -> float:
    """Seconds since it was sent, or fell due for the first time: with every retry it is older.

    The clock of the worker may be behind that of the store: what was just sent is not from the future.
    """
    return max(0.0, now - delivery.sent)


def is_first_attempt(delivery: Delivery) -> bool:
    """Whether nobody has been at work on it before, so that its age tells how long the queue lets work wait.

    A message that was postponed, or put back after it was buried, counts its attempts anew, but it could be handled
    before: it waits for the second time. One that was handed back unhandled waits for the first time still.
    """
    return delivery.attempt == 1 and delivery.at <= delivery.sent

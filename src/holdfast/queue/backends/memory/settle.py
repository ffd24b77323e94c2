"""Settle leased messages."""

from holdfast.queue.backends.memory.book import Book, Message, Place, milliseconds
from holdfast.queue.message import PRIORITY_LEVELS, Bury, Disposition, ExtendLease, Release, RetryLater
from holdfast.queue.rules.placement import spill_lane


def settle(book: Book, message: Message, disposition: Disposition) -> None:
    """Apply the disposition of a leased message."""
    match disposition:
        case ExtendLease(seconds):
            book.leave(message)
            book.enter(message, Place.LEASED, book.at + milliseconds(seconds))
            return
        case RetryLater(delay, counts):
            message.returned += not counts
            book.delay(message, book.at + max(1, milliseconds(delay)))
        case Release():
            book.leave(message)
            message.returned += 1
            book.enter(message, Place.READY)
        case Bury():
            book.bury(message, disposition)
        case _:
            book.forget(message)
    if book.limits(message.tenant).concurrency is not None:
        _wake(book, message.tenant.id)


def _wake(book: Book, tenant: int) -> None:
    """Serve the overflow lanes of a tenant again that had been at its concurrency limit."""
    for priority in range(PRIORITY_LEVELS):
        lane = book.lanes.get(spill_lane(tenant, priority))
        if lane is not None and lane.turn > book.at:
            book.turn(lane, book.at)

"""Process what is due: end delays and leases, and drop messages that are too old."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from holdfast.queue.backends.memory.book import Book, Message, Place, milliseconds
from holdfast.queue.message import Bury
from holdfast.queue.rules.disposition import compute_redelivery_delay, decide_before_attempt

AT_ONCE = 1000
"""Messages that are processed under one lock, so that others do not wait for a million."""


class Due(NamedTuple):
    """The processed messages, and how many of them had which result."""

    messages: Sequence[Message]
    redelivered: int
    buried: int
    dropped: int


def make_due_ready(book: Book) -> Due:
    """Make messages ready whose delay is over or whose lease has expired, unless they are buried or dropped."""
    redelivered = buried = dropped = 0
    messages = list(islice(book.held.between(0, book.at), AT_ONCE))
    for message in messages:
        if message.place is Place.LEASED:
            attempts, expires = message.tries - message.returned, book.expires_at(message) / 1000
            end = decide_before_attempt(attempts, book.policy.max_attempts, expires, book.now)
            if isinstance(end, Bury):
                book.bury(message, end)
                buried += 1
                continue
            if end is not None:
                book.forget(message)
                dropped += 1
                continue
            redelivered += 1
            message.expired_leases += 1
            pause = milliseconds(compute_redelivery_delay(message.id, attempts, book.policy.lease))
            if pause:
                book.leave(message)
                book.enter(message, Place.DELAYED, book.at + pause)
                continue
        book.leave(message)
        book.enter(message, Place.READY)
    return Due(messages, redelivered, buried, dropped)


def drop_old(book: Book, before: float | None) -> int:
    """Drop messages that are not leased and that were sent before a time or have expired. Return their number."""
    edge = -1 if before is None else milliseconds(before)
    found = {message.id: message for message in islice(_old(book, edge), AT_ONCE)}
    for message in found.values():
        book.forget(message)
    return len(found)


def _old(book: Book, edge: int) -> Iterator[Message]:
    """Yield the messages to drop, some perhaps twice."""
    ttl = book.policy.ttl
    limit = edge - 1 if ttl is None else max(edge - 1, book.at - milliseconds(ttl))
    sources = [book.mortal.between(0, book.at)]
    if limit >= 0:
        sources += [book.resent.between(0, limit), book.parked.between(0, limit)]
        sources += [lane.waiting.between(0, limit) for lane in book.lanes.values() if lane.waiting]
    for message in chain.from_iterable(sources):
        is_old = message.age_from < edge or book.expires_at(message) <= book.at
        if is_old and message.place is not Place.LEASED:
            yield message

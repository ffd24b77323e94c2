"""Read and redrive dead letters."""

from collections.abc import Iterator
from itertools import islice

from holdfast.queue.backend import DeadLetterQuery
from holdfast.queue.backends.memory.book import NEVER, Book, Dead, Message, milliseconds
from holdfast.queue.message import DeadLetter, unpack_trace
from holdfast.queue.rules.placement import get_priority


def dead(book: Book, query: DeadLetterQuery) -> list[DeadLetter]:
    """Return the dead letters that match a query."""
    return [_letter(book, found) for found in _find(book, query)]


def redrive(book: Book, query: DeadLetterQuery, *, discard: bool) -> int:
    """Redrive dead letters that match a query, as if they had just been sent, or delete them. Return their number."""
    found = list(_find(book, query))
    for one in found:
        message = one.message
        book.dead.remove(message.id, 0)
        message.lane.dead -= 1
        message.tenant.dead -= 1
        if not discard:
            _begin_anew(book, message)
    return len(found)


def _begin_anew(book: Book, message: Message) -> None:
    """Store a message as if it were new: fresh, with the queue's ttl, and with no attempts counted."""
    message.sent, message.at = message.age_from, book.at
    message.returned = message.tries
    message.expired_leases = 0
    message.expires = None if book.policy.ttl is None else book.at + milliseconds(book.policy.ttl)
    message.publication = None
    if message.group is not None:
        message.group = book.group(message.group.tenant, message.group.name)
    book.keep(message)


def _find(book: Book, query: DeadLetterQuery) -> Iterator[Dead]:
    return islice((one for one in book.dead.between(query.after + 1, NEVER) if _is_meant(one, query)), query.limit)


def _is_meant(one: Dead, query: DeadLetterQuery) -> bool:
    return (
        (query.tenant is None or one.message.tenant.name == query.tenant)
        and (query.reason is None or query.reason in one.why.reason)
        and (not query.ids or one.message.id in query.ids)
        and (query.buried_before is None or one.buried < milliseconds(query.buried_before))
    )


def _letter(book: Book, one: Dead) -> DeadLetter:
    message = one.message
    return DeadLetter(
        id=message.id,
        queue=book.name,
        tenant=message.tenant.name,
        body=message.body,
        priority=get_priority(message.lane.number),
        group=None if message.group is None else message.group.name,
        attempts=message.tries - message.returned,
        sent_at=message.age_from / 1000,
        buried_at=one.buried / 1000,
        reason=one.why.reason,
        detail=one.why.detail,
        trace=unpack_trace(message.trace, book.origin, message.id),
    )

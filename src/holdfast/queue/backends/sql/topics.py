"""Publish messages: every queue that subscribes to a topic gets a copy, and one of them is delivered first."""

from collections.abc import Sequence

from holdfast.engines import Transaction
from holdfast.queue.backends.sql.dialect import Dialect
from holdfast.queue.backends.sql.send import Send
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.message import OutgoingMessage, RefusedMessage, SentMessage

_SUBSCRIBERS = (
    "select q.name from holdfast_queue_subscription s join holdfast_queue q on q.id = s.queue "
    "where s.topic = $1 order by q.id"
)
_PUBLISH = "insert into holdfast_queue_publication (id, last) values ($1, $2)"
_CLAIM = (
    "delete from holdfast_queue_publication where id in "
    "(select p.id from holdfast_queue_publication p where p.id {ids} order by p.id{skip}) returning id"
)
# The copies of a publication have ids between its own and `last`, perhaps with copies of others in between.
_UNSEEN = (
    "select p.id, exists (select 1 from holdfast_queue_message m where m.id > p.id and m.id <= p.last) "
    "from holdfast_queue_publication p where p.id > $1 order by p.id limit $2"
)
_FORGET = (
    "delete from holdfast_queue_publication where id in "
    "(select p.id from holdfast_queue_publication p where p.id {ids} order by p.id{skip})"
)
AT_ONCE = 1000
"""Publications that are examined in one transaction."""


def publish(
    transaction: Transaction, dialect: Dialect, topic: str, messages: Sequence[OutgoingMessage], wall: float | None
) -> tuple[list[SentMessage | RefusedMessage], list[str]]:
    """Store each message for every subscriber. Return the results, by message and then queue, and the subscribers."""
    queues = [name for (name,) in transaction.execute(_SUBSCRIBERS, (topic,))]
    if not queues:
        return [], []
    publications = list(dialect.next_ids(transaction, len(messages)))
    by_queue = [Send(Step(transaction, dialect, queue, wall), messages, publications).run() for queue in queues]
    together = list(zip(*by_queue, strict=True))
    kept = [
        (number, [one.id for one in some if isinstance(one, SentMessage) and not one.is_duplicate])
        for number, some in zip(publications, together, strict=True)
    ]
    transaction.execute_many(_PUBLISH, [(number, max(ids)) for number, ids in kept if ids])
    return [one for some in together for one in some], queues


def claim(step: Step, publications: Sequence[int]) -> set[int]:
    """Return the publications of which no copy was leased before, and mark them as leased.

    Does not wait for locks: this transaction holds messages, and perhaps tenants, that others wait for.
    """
    if not publications:
        return set()
    statement = _CLAIM.format(ids=step.dialect.among("$1"), skip=step.dialect.skip("p"))
    return {number for (number,) in step.transaction.execute(statement, (step.dialect.numbers(publications),))}


def forget(transaction: Transaction, dialect: Dialect, after: int) -> tuple[int, bool]:
    """Delete publications whose copies are all gone without being leased, among the next after an id.

    Return the id after which to continue, 0 at the end, and whether any was deleted.
    """
    rows = transaction.execute(_UNSEEN, (after, AT_ONCE))
    gone = [number for number, has_messages in rows if not has_messages]
    if gone:
        statement = _FORGET.format(ids=dialect.among("$1"), skip=dialect.skip("p"))
        transaction.execute(statement, (dialect.numbers(gone),))
    return rows[-1][0] if len(rows) >= AT_ONCE else 0, bool(gone)

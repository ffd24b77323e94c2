"""Delete or bury messages, and let the next of their groups be handled."""

from collections import Counter
from collections.abc import Sequence

from holdfast.queue.backends.sql.groups import follow
from holdfast.queue.backends.sql.message import Message
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.message import Bury

_DELETE = "delete from holdfast_queue_message where id {ids}"
# The body is copied within the database.
_BURY = (
    "insert into holdfast_queue_dead "
    "(id, queue, lane, tenant, tries, sent, buried, party, extra, reason, detail, body) "
    "select m.id, m.queue, m.lane, m.tenant, m.tries, coalesce(m.sent, m.at), $1, m.party, m.extra, $2, $3, m.body "
    "from holdfast_queue_message m where m.id = $4"
)


def remove(step: Step, messages: Sequence[Message]) -> None:
    """Delete messages, and count them out. The step must know their tenants and lanes.

    Tenants with messages in groups must be locked.
    """
    if not messages:
        return
    with_ids(step, _DELETE, [message.id for message in messages])
    count_out(step, messages)


def count_out(step: Step, messages: Sequence[Message]) -> None:
    """Subtract deleted messages from the counters. The conditions of `remove` apply."""
    counts = Counter((one.lane, one.tenant, one.until is None, one.leased) for one in messages)
    for (lane, tenant, is_ready, is_leased), count in counts.items():
        if is_ready:
            step.count(lane, tenant, ready=-count)
        elif is_leased:
            step.count(lane, tenant, leased=-count)
        else:
            step.count(lane, tenant, delayed=-count)
    follow(step, messages)


def bury(step: Step, messages: Sequence[tuple[Message, Bury]]) -> None:
    """Move messages to the dead letters."""
    if not messages:
        return
    rows = [(step.at, _text(why.reason), _text(why.detail), message.id) for message, why in messages]
    step.transaction.execute_many(_BURY, rows)
    for message, _ in messages:
        step.count(message.lane, message.tenant, dead=1)
    remove(step, [message for message, _ in messages])


def _text(text: str) -> str:
    """Replace characters that databases reject: the text of an exception must not prevent the burial."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()

"""The end of a message's life: it is forgotten, or buried; and whoever waited behind it in its group is next."""

from collections import Counter
from collections.abc import Sequence

from holdfast.queue.backends.sql.groups import follow
from holdfast.queue.backends.sql.message import Message
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.message import Bury

_DELETE = "delete from holdfast_queue_message where id {ids}"
# The body goes from table to table without a detour through here.
_BURY = (
    "insert into holdfast_queue_dead "
    "(id, queue, lane, tenant, tries, sent, buried, party, extra, reason, detail, body) "
    "select m.id, m.queue, m.lane, m.tenant, m.tries, coalesce(m.sent, m.at), $1, m.party, m.extra, $2, $3, m.body "
    "from holdfast_queue_message m where m.id = $4"
)


def remove(step: Step, messages: Sequence[Message]) -> None:
    """Delete messages, and count them no more. Their tenants and lanes must be known to the step.

    Tenants with messages in groups must be locked.
    """
    if not messages:
        return
    with_ids(step, _DELETE, [message.id for message in messages])
    count_out(step, messages)


def count_out(step: Step, messages: Sequence[Message]) -> None:
    """Count messages no more that were deleted; the same holds for their tenants and lanes."""
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
    """What every database takes: an exception may say anything, and must not keep its message from being buried."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()

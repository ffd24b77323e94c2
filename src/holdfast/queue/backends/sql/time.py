"""Handle a clock that is set back: planned times must not wait until the clock has caught up.

Without a server whose clock all processes use, the latest time is stored with the queue. If the clock is a second or
more behind it, all planned times are moved by the difference, so that they are as far away as before. The clock of a
server is hardly ever set back, but another server may replace it: a sweep ensures that no lane waits for that.
"""

import logging
from typing import TYPE_CHECKING

from holdfast.queue.backends.sql.message import SECOND, milliseconds
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.rules.leasing import RECHECK_SECONDS

if TYPE_CHECKING:
    from holdfast.queue.backends.sql.step import Step

_SEEN = "update holdfast_queue set seen = $1 where id = $2"
_HELD = (
    "update holdfast_queue_message set until = until + $1, at = case when leased = 0 then at + $1 else at end "
    "where queue = $2 and until is not null and until < $3"
)
# For parked messages, `at` is the end of their own delay.
_WAITING = f"update holdfast_queue_message set at = at + $1 where queue = $2 and until = {PARKED}"  # noqa: S608 - constants
_TURNS = "update holdfast_queue_lane set turn = $1 where queue = $2 and turn > $1"
_LATER = (
    "update holdfast_queue_lane set turn = $1 where id in (select l.id from holdfast_queue_lane l "
    "where l.queue = $2 and l.turn > $3 order by l.id{lock})"
)
_KEYS = (
    "update holdfast_queue_key set expires = $1 where expires > $1 "
    "and tenant in (select t.id from holdfast_queue_tenant t where t.queue = $2)"
)

log = logging.getLogger(__name__)

FAR = milliseconds(RECHECK_SECONDS + 4)
"""Later than any turn is ever planned."""


def keep_time(step: "Step") -> None:
    """Store the time and, if it is earlier than the stored one, move planned times."""
    if abs(step.at - step.seen) < SECOND:
        return
    if step.seen and step.at < step.seen:
        shift = step.at - step.seen
        log.warning("queue %s: the clock was set back by %.1f s; moving planned times", step.name, -shift / 1000)
        step.transaction.execute(_HELD, (shift, step.queue, PARKED))
        step.transaction.execute(_WAITING, (shift, step.queue))
        step.transaction.execute(_TURNS, (step.at, step.queue))
        step.transaction.execute(_KEYS, (step.at + milliseconds(step.policy.dedupe_for), step.queue))
        if step.next_due is not None:
            step.next_due += shift
    step.transaction.execute(_SEEN, (step.at, step.queue))


def mend_turns(step: "Step") -> None:
    """Let lanes be served whose turn was set while the clock was ahead."""
    statement = _LATER.format(lock=step.dialect.lock("l"))
    step.transaction.execute(statement, (step.at, step.queue, step.at + FAR))

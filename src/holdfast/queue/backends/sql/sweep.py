"""Drop old messages."""

from holdfast.engines import Value
from holdfast.queue.backends.sql.message import Message, columns, milliseconds
from holdfast.queue.backends.sql.remove import remove
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids

AT_ONCE = 1000
"""Messages that are dropped in one transaction, so that others do not wait long."""
_FROM = "select m.id, m.tenant from holdfast_queue_message m where "
_EXPIRED = f"{_FROM}m.queue = $1 and m.expires <= $2 and m.leased = 0 order by m.expires limit $3"
_RESENT = f"{_FROM}m.queue = $1 and m.sent < $2 and m.leased = 0{{own}} order by m.sent limit $3"
_PARKED = f"{_FROM}m.queue = $1 and m.until = {PARKED} and m.at < $2 and m.sent is null{{own}} order by m.at limit $3"
_READY = f"{_FROM}m.lane = $1 and m.until is null and m.at < $2 and m.sent is null{{own}} order by m.at limit $3"
_LANES = (
    "select l.id from holdfast_queue_lane l where l.queue = $1 and l.ready > 0 and exists ("
    "select 1 from holdfast_queue_message m where m.lane = l.id and m.until is null and m.at < $2)"
)
_TAKE = (
    f"select {columns()}, l.number from holdfast_queue_message m "  # noqa: S608 - constants
    "join holdfast_queue_lane l on l.id = m.lane where m.leased = 0 and m.id {ids}"
)


class Sweep:
    """One transaction of a sweep: drop messages that were sent before a time, or have expired.

    Messages are found without locks. Their tenants are locked first, because some messages may be parked; concurrent
    sweeps wait there. Then the messages are locked that still exist and that no other transaction has locked.
    """

    def __init__(self, step: Step, before: float | None) -> None:
        self.step = step
        self._before = None if before is None else milliseconds(before)
        self._found: dict[int, int] = {}
        """The tenants of found messages, by message."""

    def run(self) -> tuple[int, bool]:
        """Drop the messages. Return their number, and whether there may be more."""
        step = self.step
        self._find(_EXPIRED, step.queue, step.at)
        if step.policy.ttl is not None:
            # Messages with their own ttl were found by it.
            self._find_older(step.at - milliseconds(step.policy.ttl) + 1, " and m.expires is null")
        if self._before is not None:
            self._find_older(self._before, "")
        if not self._found:
            return 0, False
        step.know(self._found.values())
        step.lock()
        old = [message for message in self._take() if self._is_old(message)]
        remove(step, old)
        step.save()
        return len(old), self._room < 1

    def _find_older(self, limit: int, own: str) -> None:
        """Find messages that were sent before a time."""
        step = self.step
        self._find(_RESENT.format(own=own), step.queue, limit)
        self._find(_PARKED.format(own=own), step.queue, limit)
        for (lane,) in step.transaction.execute(_LANES, (step.queue, limit)):
            if self._room < 1:
                break
            self._find(_READY.format(own=own), lane, limit)

    @property
    def _room(self) -> int:
        return AT_ONCE - len(self._found)

    def _find(self, statement: str, *parameters: Value) -> None:
        if self._room > 0:
            self._found.update(self.step.transaction.execute(statement, (*parameters, self._room)))

    def _take(self) -> list[Message]:
        step = self.step
        rows = with_ids(step, _TAKE + step.dialect.skip("m"), list(self._found))
        step.numbers.update((row[1], row[-1]) for row in rows)
        return [Message(*row[:-1]) for row in rows]

    def _is_old(self, message: Message) -> bool:
        """Return whether a message is still old: it may have changed since it was found."""
        is_before = self._before is not None and message.age_from < self._before
        return is_before or message.expires_at(self.step.policy) <= self.step.at

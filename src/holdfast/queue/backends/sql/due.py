"""Process what is due: end delays and leases."""

from holdfast.queue.backends.sql.extra import encode
from holdfast.queue.backends.sql.message import Message, columns, milliseconds
from holdfast.queue.backends.sql.remove import bury, remove
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.message import Bury
from holdfast.queue.rules.disposition import compute_redelivery_delay, decide_before_attempt

AT_ONCE = 1000
"""Messages that are processed in one transaction, so that others do not wait for a million."""

_DUE = (
    f"select {columns()}, l.number from holdfast_queue_message m join holdfast_queue_lane l on l.id = m.lane "  # noqa: S608 - constants
    "where m.queue = $1 and m.until <= $2 order by m.until limit $3"
)
_DIED = "update holdfast_queue_message set until = $1, leased = 0, extra = $2 where id = $3"
_READY = "update holdfast_queue_message set until = null, leased = 0 where id {ids}"


class Due:
    """The due messages of a queue, as many as fit into one transaction."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.ready: list[Message] = []
        """Messages that are ready again."""
        self.resting: list[tuple[Message, int]] = []
        """Messages that are ready again later, and when."""
        self._dead: list[tuple[Message, Bury]] = []
        self._dropped: list[Message] = []
        if step.next_due is not None and step.next_due <= step.at:
            self._find()

    @property
    def is_full(self) -> bool:
        """Whether there may be more."""
        return len(self.ready) + len(self.resting) + self.buried + self.dropped >= AT_ONCE

    @property
    def redelivered(self) -> int:
        """Number of messages whose leases had expired."""
        return sum(message.leased for message in self.ready) + len(self.resting)

    @property
    def buried(self) -> int:
        """Number of messages buried because their leases expired too often without settlement."""
        return len(self._dead)

    @property
    def dropped(self) -> int:
        """Number of leased messages that were older than their ttl."""
        return len(self._dropped)

    @property
    def needs_lock(self) -> bool:
        """Whether tenants must be locked before `end`, because messages of groups end."""
        gone = [*self._dropped, *(message for message, _ in self._dead)]
        return any(message.party is not None for message in gone)

    def run(self) -> tuple[int, bool]:
        """Process all of them. Return how many were dropped, and whether there may be more."""
        self.make_ready()
        if self.needs_lock:
            self.step.lock()
        self.end()
        if self.step.save():
            self.step.dialect.wake(self.step.transaction, self.step.name)
        return self.dropped, self.is_full

    def make_ready(self) -> None:
        """Make messages ready, or delay those that must be separated from others: see `compute_redelivery_delay`."""
        step = self.step
        died = [*self.resting, *((message, None) for message in self.ready if message.leased)]
        if died:
            rows = [(until, encode(message.extra.died()), message.id) for message, until in died]
            step.transaction.execute_many(_DIED, rows)
        for message, _ in self.resting:
            step.count(message.lane, message.tenant, leased=-1, delayed=1)
        delayed = [message.id for message in self.ready if not message.leased]
        if delayed:
            with_ids(step, _READY, delayed)
        for message in self.ready:
            step.count(message.lane, message.tenant, ready=1, leased=-message.leased, delayed=message.leased - 1)
            tally = step.lane(message.lane)
            tally.newest = max(tally.newest, message.at)

    def end(self) -> None:
        """Bury messages that were delivered too often, and drop messages that are too old."""
        bury(self.step, self._dead)
        remove(self.step, self._dropped)

    def _find(self) -> None:
        step = self.step
        rows = step.transaction.execute(_DUE + step.dialect.skip("m"), (step.queue, step.at, AT_ONCE))
        for row in rows:
            message = Message(*row[:-1])
            step.numbers[message.lane] = row[-1]
            end = self._end_of(message)
            if end is None:
                pause = milliseconds(self._rest_of(message))
                if pause:
                    self.resting.append((message, step.at + pause))
                else:
                    self.ready.append(message)
            elif isinstance(end, Bury):
                self._dead.append((message, end))
            else:
                self._dropped.append(message)
        step.know(row[2] for row in rows)

    def _rest_of(self, message: Message) -> float:
        attempts = message.tries - message.extra.returned
        return compute_redelivery_delay(message.id, attempts, self.step.policy.lease) if message.leased else 0.0

    def _end_of(self, message: Message) -> object:
        if not message.leased:
            return None
        step = self.step
        attempts = message.tries - message.extra.returned
        return decide_before_attempt(
            attempts, step.policy.max_attempts, message.expires_at(step.policy) / 1000, step.now
        )

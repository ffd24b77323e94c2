"""The short way for one plain message, which is how most are sent: of a tenant without limits and far from any bound.

It does what `send.py` does with such a message, in fewer words to the database: in one, where each takes its time.
Where anything is out of the ordinary, nothing is done, and the message takes the long way.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast._clock import Clock
from holdfast.engines import Database
from holdfast.queue.backends.sql.dialect import Dialect, Plain
from holdfast.queue.backends.sql.extra import Extra, encode
from holdfast.queue.backends.sql.message import milliseconds
from holdfast.queue.backends.sql.step import policy_of
from holdfast.queue.message import Outgoing, Sent
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.admission import is_free, room
from holdfast.queue.rules.placement import lanes_of
from holdfast.queue.rules.pressure import pressure
from holdfast.queue.trace import pack, unpack

AGAIN = 10.0
"""Seconds for which a tenant takes the long way, after the short one was none for it."""
REMEMBERED = 10_000
"""Such tenants that are remembered."""
_QUEUE = "select origin, policy from holdfast_queue where name = $1"


class _Known(NamedTuple):
    """A queue, as it was: the short way is none for one that has changed."""

    origin: int
    kept: bytes
    policy: QueuePolicy


class Single:
    """Sends one message to a queue. Thread-safe."""

    def __init__(self, database: Database, dialect: Dialect, clock: Clock | None) -> None:
        self._database = database
        self._dialect = dialect
        self._clock = clock
        self._queues: dict[str, _Known] = {}
        self._others: dict[tuple[str, str], float] = {}
        """Tenants that take the long way, by queue, and until when."""

    def send(self, queue: str, messages: Sequence[Outgoing]) -> Sent | None:
        """Keep a message; None: it must take the long way."""
        if len(messages) != 1:
            return None
        message = messages[0]
        if message.key is not None or message.group is not None or message.delay:
            return None
        others = self._others
        if others and others.get((queue, message.tenant), 0.0) > time.monotonic():
            return None
        known = self._queues.get(queue) or self._learn(queue)
        sent = None if known is None else self._send(queue, message, known)
        if sent is None:
            self._queues.pop(queue, None)  # it may have changed
            if len(others) >= REMEMBERED:
                others.clear()
            others[queue, message.tenant] = time.monotonic() + AGAIN
        return sent

    def _learn(self, queue: str) -> _Known | None:
        for origin, policy in self._database.read(lambda transaction: transaction.execute(_QUEUE, (queue,))):
            kept = bytes(policy)
            known = self._queues[queue] = _Known(origin, kept, policy_of(kept))
            return known
        return None

    def _send(self, queue: str, message: Outgoing, known: _Known) -> Sent | None:
        policy = known.policy
        if not policy.hand or not is_free(policy.limits):
            return None
        trace = None if message.trace is None else pack(message.trace)
        deadline = None if message.deadline is None else milliseconds(message.deadline)
        plain = Plain(
            queue=queue,
            policy=known.kept,
            tenant=message.tenant,
            room=room(policy),
            lanes=lanes_of(message.tenant, message.priority, policy.lanes, policy.hand),
            at=None if self._clock is None else milliseconds(self._clock.wall()),
            ttl=None if message.ttl is None else milliseconds(message.ttl),
            extra=None if trace is None and deadline is None else encode(Extra(trace=trace, deadline=deadline)),
            body=message.body,
        )
        kept = self._dialect.keep(self._database, plain)
        if kept is None:
            return None
        return Sent(
            id=kept.id,
            queue=queue,
            lane=kept.lane,
            trace=unpack(trace, known.origin, kept.id),
            pressure=pressure(kept.ready, policy.backlog_of(policy.limits)),
        )

"""The short path for one plain message of a tenant far below its limits, which is how most messages are sent.

It does what `send.py` does with such a message, with fewer statements: one where round trips are slow, or two if the
tenant has limits. In any other case it does nothing, and the message takes the long path.
"""

import math
import time
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from holdfast._clock import Clock
from holdfast.engines import Database, Row
from holdfast.queue.backends.sql.dialect import Decided, Dialect, Plain, Spent
from holdfast.queue.backends.sql.extra import Extra, encode
from holdfast.queue.backends.sql.message import milliseconds
from holdfast.queue.backends.sql.step import policy_of
from holdfast.queue.backends.sql.tenant import TenantRow, limits_of
from holdfast.queue.message import OutgoingMessage, SentMessage, pack_trace, unpack_trace
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.admission import admit, compute_pressure, get_max_waiting, get_room, is_unlimited
from holdfast.queue.rules.placement import get_hand_lanes

SENDING = 3
"""Number of buckets that sending uses: the first ones."""
AGAIN = 10.0
"""Seconds for which a tenant takes a longer path, after the short one failed."""
REMEMBERED = 10_000
"""Maximum tenants that are remembered for that."""
_QUEUE = "select origin, policy from holdfast_queue where name = $1"


class _Known(NamedTuple):
    """A queue as it was read. If it has changed, the short path fails."""

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
        self._tenants: dict[tuple[str, str], tuple[_Way, float]] = {}
        """Tenants of a queue that do not take the shortest path, and until when."""

    def send(self, queue: str, messages: Sequence[OutgoingMessage]) -> SentMessage | None:
        """Store a message. Return None if it must take the long path."""
        if len(messages) != 1:
            return None
        message = messages[0]
        if message.key is not None or message.group is not None or message.delay:
            return None
        way = self._way(queue, message.tenant)
        if way is _Way.LONG:
            return None
        known = self._queues.get(queue) or self._learn(queue)
        if known is None or not known.policy.lanes_per_tenant or not is_unlimited(known.policy.limits):
            return None
        sent = self._send(queue, message, known, is_counted=way is _Way.COUNTED)
        if sent is None:
            self._queues.pop(queue, None)  # it may have changed
            self._remember(queue, message.tenant, _Way.COUNTED if way is _Way.FREE else _Way.LONG)
        return sent

    def _way(self, queue: str, tenant: str) -> "_Way":
        way, until = self._tenants.get((queue, tenant), _FREE) if self._tenants else _FREE
        return way if until > time.monotonic() else _Way.FREE

    def _remember(self, queue: str, tenant: str, way: "_Way") -> None:
        if len(self._tenants) >= REMEMBERED:
            self._tenants.clear()
        self._tenants[queue, tenant] = (way, time.monotonic() + AGAIN)

    def _learn(self, queue: str) -> _Known | None:
        for origin, policy in self._database.read(lambda transaction: transaction.execute(_QUEUE, (queue,))):
            kept = bytes(policy)
            known = self._queues[queue] = _Known(origin, kept, policy_of(kept))
            return known
        return None

    def _send(self, queue: str, message: OutgoingMessage, known: _Known, *, is_counted: bool) -> SentMessage | None:
        policy = known.policy
        trace = None if message.trace is None else pack_trace(message.trace)
        deadline = None if message.deadline is None else milliseconds(message.deadline)
        plain = Plain(
            queue=queue,
            policy=known.kept,
            tenant=message.tenant,
            room=get_room(policy, policy.limits),
            is_counted=is_counted,
            decide=partial(_decide, policy),
            lanes=get_hand_lanes(message.tenant, message.priority, policy.lanes, policy.lanes_per_tenant),
            now=None if self._clock is None else self._clock.wall(),
            ttl=None if message.ttl is None else milliseconds(message.ttl),
            extra=None if trace is None and deadline is None else encode(Extra(trace=trace, deadline=deadline)),
            body=message.body,
        )
        kept = self._dialect.keep(self._database, plain)
        if kept is None:
            return None
        most = get_max_waiting(policy, policy.limits if kept.limits is None else limits_of(bytes(kept.limits)))
        return SentMessage(
            id=kept.id,
            queue=queue,
            lane=kept.lane,
            trace=unpack_trace(trace, known.origin, kept.id),
            pressure=compute_pressure(kept.waiting, most),
        )


class _Way(Enum):
    """The path of a tenant's messages."""

    FREE = "free"
    """One statement: nothing needs to be counted."""
    COUNTED = "counted"
    """Two statements, because the tenant has limits."""
    LONG = "long"


_FREE = (_Way.FREE, math.inf)


def _decide(policy: QueuePolicy, row: Row, now: float) -> Decided | None:
    """Decide from the row of a tenant with limits how to store its message; None if it is not plain."""
    tenant = TenantRow(row, policy)
    if not tenant.is_limited:
        return Decided(get_room(policy, tenant.limits), Spent(tenant.buckets[:SENDING], tenant.buckets[:SENDING]))
    admission = admit(policy, tenant.limits, tenant.found, 1, now)
    if not admission.live:
        return None
    before = tenant.buckets[:SENDING]
    tenant.spend(admission.state)
    return Decided(get_room(policy, tenant.limits), Spent(before, tenant.buckets[:SENDING]))

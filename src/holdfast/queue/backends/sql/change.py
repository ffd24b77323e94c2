"""Create queues, and change their policies, limits and subscriptions."""

import secrets

import msgspec

from holdfast.engines import Transaction
from holdfast.queue.backend import QueueChange
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.backends.sql.wake import wake_spilled
from holdfast.queue.policy import QueuePolicy

_MAKE = "insert into holdfast_queue (name, origin, policy) values ($1, $2, $3) on conflict do nothing returning id"
_POLICY = "update holdfast_queue set policy = $1 where id = $2"
_LIMITS = "update holdfast_queue_tenant set limits = $1 where id = $2"
_SUBSCRIBE = "insert into holdfast_queue_subscription (topic, queue) values ($1, $2) on conflict do nothing"
_UNSUBSCRIBE = "delete from holdfast_queue_subscription where topic = $1 and queue = $2"


def make(transaction: Transaction, queue: str, policy: QueuePolicy) -> bool:
    """Create a queue if it does not exist. Return whether it was created."""
    return bool(transaction.execute(_MAKE, (queue, secrets.randbits(62) | 1, msgspec.json.encode(policy))))


def change(step: Step, wanted: QueueChange) -> QueuePolicy:
    """Apply a change, and return the policy from now on."""
    execute = step.transaction.execute
    if wanted.policy is not None:
        execute(_POLICY, (msgspec.json.encode(wanted.policy), step.queue))
    if wanted.limits:
        _limit(step, wanted)
    for topic in wanted.subscribe:
        execute(_SUBSCRIBE, (topic, step.queue))
    for topic in wanted.unsubscribe:
        execute(_UNSUBSCRIBE, (topic, step.queue))
    return wanted.policy or step.policy


def _limit(step: Step, wanted: QueueChange) -> None:
    tenants = step.meet(wanted.limits)
    step.lock()
    rows = [
        (None if limits is None else msgspec.json.encode(limits), tenants[name].id)
        for name, limits in wanted.limits.items()
    ]
    step.transaction.execute_many(_LIMITS, rows)
    wake_spilled(step, step.tenants)  # their limits may allow more now
    step.save()

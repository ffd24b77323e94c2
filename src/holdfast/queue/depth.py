"""The depth of a queue and the age of its messages, as a few numbers. Pure."""

from holdfast.metrics.cardinality import OTHER, TopNames
from holdfast.queue.backend import QueueSnapshot, TenantDepth, Totals
from holdfast.queue.message import Delivery

STATES = ("ready", "spilled", "leased", "delayed", "dead")
"""The states of messages. Every message of a queue is in one of them."""


def count_by_state(counted: Totals | TenantDepth) -> dict[str, int]:
    """Return the number of messages of a queue, or of a tenant, in each state."""
    return {state: getattr(counted, state) for state in STATES}


def compute_age(snapshot: QueueSnapshot, since: float | None) -> float | None:
    """Return the seconds from `since` to the snapshot, or None if `since` is None."""
    return None if since is None else max(0.0, snapshot.at - since)


def count_tenants_by_state(snapshot: QueueSnapshot, names: TopNames) -> dict[str, dict[str, int]]:
    """Return the messages of each named tenant by state. `other` is the sum over all other tenants."""
    listed = {tenant.tenant: tenant for tenant in snapshot.tenants}
    if names.is_due(snapshot.at):
        names.review({name: tenant.waiting for name, tenant in listed.items()}, snapshot.totals.waiting, snapshot.at)
    rest = count_by_state(snapshot.totals)
    found: dict[str, dict[str, int]] = {}
    for name, tenant in sorted(listed.items(), key=lambda item: (-item[1].waiting, item[0])):
        if names.name(name) == name != OTHER:
            found[name] = count_by_state(tenant)
            for state, count in found[name].items():
                rest[state] -= count
    # Lanes and tenants may be counted at different moments, so the difference may be negative.
    return found | {OTHER: {state: max(0, count) for state, count in rest.items()}}


def compute_delivery_age(delivery: Delivery, now: float) -> float:
    """Return the seconds since a message was sent or first became due. Never negative, although clocks may differ."""
    return max(0.0, now - delivery.sent_at)


def is_first_attempt(delivery: Delivery) -> bool:
    """Return whether no worker handled the message before, so that its age is the time that the queue lets work wait.

    A message that was postponed, or redriven, counts its attempts from 1 again, but could be handled before: this is
    not its first wait. A message that was released unhandled is still in its first wait.
    """
    return delivery.attempt == 1 and delivery.ready_since <= delivery.sent_at

"""How many of a tenant's messages may be handed out now. Pure."""

import math
from collections.abc import Mapping

import msgspec

from holdfast.queue.policy import Limits
from holdfast.queue.rules import bucket
from holdfast.queue.rules.admission import TenantState

NOISY_LEAST = 30
"""Messages in the hands of workers below which no tenant is noisy. This and the share are those of SQS fair queues."""
NOISY_SHARE = 0.1
"""The share of all messages in the hands of workers above which a tenant is noisy, as long as others wait."""

RECHECK = 1.0
"""Seconds after which a tenant that has as many messages in work as it may is looked at again, whatever happens."""


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """What may be handed out of one tenant, from lanes that it shares with others and in all."""

    shared: int
    """From lanes that it shares; what is found there beyond this is moved to where the tenant's excess waits."""
    total: int
    again_at: float
    """When to look again, if nothing more may be handed out now; infinity: when one of its messages is settled."""


def allowance(limits: Limits, state: TenantState, cap: int | None, now: float) -> Allowance:
    """What the tenant's limits, and a `cap` on messages in the hands of workers, leave room for."""
    total, again_at = 1 << 62, now
    if limits.concurrency is not None:
        total = max(0, limits.concurrency - state.leased)
        again_at = now if total else math.inf
    run = limits.bucket("run_rate")
    if run is not None:
        tokens = bucket.available(state.run_full_at, now, *run)
        if tokens < total:
            total, again_at = tokens, now + bucket.wait(state.run_full_at, now, *run)
    shared = total if cap is None else min(total, max(0, cap - state.leased))
    soft = limits.bucket("rate")
    if soft is not None:
        shared = min(shared, bucket.available(state.lease_full_at, now, *soft))
    return Allowance(shared, total, again_at)


def handed_out(limits: Limits, state: TenantState, count: int, spilled: int, now: float) -> TenantState:
    """What is known of a tenant after so many were handed out, some of them of those that waited apart."""
    run, soft = limits.bucket("run_rate"), limits.bucket("rate")
    shared = count - spilled
    return msgspec.structs.replace(
        state,
        ready=state.ready - count,
        spilled=state.spilled - spilled,
        leased=state.leased + count,
        run_full_at=state.run_full_at if run is None else bucket.spend(state.run_full_at, now, count, *run),
        lease_full_at=state.lease_full_at if soft is None else bucket.spend(state.lease_full_at, now, shared, *soft),
    )


class Counters(msgspec.Struct, frozen=True, gc=False):
    """How much of a tenant there is."""

    ready: int
    leased: int


def next_caps(tenants: Mapping[str, Counters], in_flight: int, *, others_wait: bool) -> dict[str, int]:
    """Caps for tenants that hold more than their share of the workers while others wait; a lone tenant has none."""
    if not others_wait:
        return {}
    share = max(NOISY_LEAST, math.ceil(in_flight * NOISY_SHARE))
    return {tenant: share for tenant, seen in tenants.items() if seen.leased > share}

"""Remote calls: their timeouts, retries, endpoints and events.

May import the base and the engines. Start reading at `dependency.py`, then `engine.py` and the rule in `retry.py`;
`drive.py` and `drive_async.py` make the calls. Import `adapters` (HTTP clients and botocore), `resolvers` (of
endpoints), `events`, `metrics` and `outcomes` (sinks for events) and `periodic` (timers) by their own names.
"""

from holdfast._backoff import Backoff, Jitter
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Failure, FailureKind, classify
from holdfast.calls.context import current_attempt, deadline, detached, propagate_context, remaining
from holdfast.calls.dependency import Dependency
from holdfast.calls.endpoints import Endpoint, Endpoints, NoEndpoint, ShardEndpoints
from holdfast.calls.limits import Limit
from holdfast.calls.retry import Retry, RetryAfter, RetryAfterScope, RetryBudget, RetryOwner
from holdfast.calls.timeout import Percentile, Timeouts

__all__ = [
    "Attempt",
    "Backoff",
    "Dependency",
    "Endpoint",
    "Endpoints",
    "Failure",
    "FailureKind",
    "Jitter",
    "Limit",
    "NoEndpoint",
    "Percentile",
    "Retry",
    "RetryAfter",
    "RetryAfterScope",
    "RetryBudget",
    "RetryOwner",
    "ShardEndpoints",
    "Timeouts",
    "classify",
    "current_attempt",
    "deadline",
    "detached",
    "propagate_context",
    "remaining",
]

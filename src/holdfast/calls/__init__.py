"""One remote call: how long it may take, when it is repeated, where it goes, what it tells.

May import the base and the engines. Start reading at `dependency.py`, then `engine.py` and the rule in `retry.py`;
`drive.py` and `drive_async.py` are what performs. Adapters to HTTP clients and botocore are in `adapters`, resolvers of
endpoints in `resolvers`, sinks for events in `sinks`: each is imported by its own name, because it needs more.
"""

from holdfast._backoff import Backoff, Jitter
from holdfast.calls.attempt import Attempt
from holdfast.calls.attempts import Attempts
from holdfast.calls.classify import Failure, Kind, classify
from holdfast.calls.context import carried, current_attempt, deadline, detached, remaining
from holdfast.calls.dependency import Dependency
from holdfast.calls.endpoints import AllIn, Choose, Endpoint, Endpoints, NoEndpoint, ShardEndpoints
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.hints import Hints, HintsHold
from holdfast.calls.limits import Limit
from holdfast.calls.periodic import Periodic, Ticker, daily, host_jitter, host_name, hourly, spread, weekly
from holdfast.calls.retry import Budget, Owner, Reason, Retry
from holdfast.calls.timeout import Percentile, Timeouts

__all__ = [
    "AllIn",
    "Attempt",
    "Attempted",
    "Attempts",
    "Backoff",
    "Budget",
    "CallEvent",
    "Choose",
    "Dependency",
    "Endpoint",
    "Endpoints",
    "Exhausted",
    "Failure",
    "GaveUp",
    "Hints",
    "HintsHold",
    "Jitter",
    "Kind",
    "Limit",
    "NoEndpoint",
    "Owner",
    "Percentile",
    "Periodic",
    "Reason",
    "Retry",
    "Retrying",
    "ShardEndpoints",
    "Ticker",
    "TimeoutChanged",
    "Timeouts",
    "carried",
    "classify",
    "current_attempt",
    "daily",
    "deadline",
    "detached",
    "host_jitter",
    "host_name",
    "hourly",
    "remaining",
    "spread",
    "weekly",
]

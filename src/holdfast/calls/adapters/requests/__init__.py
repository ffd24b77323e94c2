"""An adapter for requests sessions: `session.mount("https://pricing", HoldfastAdapter(pricing))`.

Every request becomes one call of the dependency, as with httpx. Start reading at `adapter.py`.
"""

from holdfast._errors import MissingExtra

try:
    import requests as _requests  # noqa: F401
except ImportError as error:
    raise MissingExtra("the requests adapter", "requests") from error

from holdfast.calls.adapters.requests.adapter import HoldfastAdapter, call_options
from holdfast.calls.adapters.requests.body import (
    RequestsAttemptTimedOut,
    RequestsDeadlineExceeded,
    RequestsLimitReached,
    RequestsNoEndpoint,
    RequestsRetryAfterTooLong,
)

__all__ = [
    "HoldfastAdapter",
    "RequestsAttemptTimedOut",
    "RequestsDeadlineExceeded",
    "RequestsLimitReached",
    "RequestsNoEndpoint",
    "RequestsRetryAfterTooLong",
    "call_options",
]

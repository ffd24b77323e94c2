"""httpx clients that call as a Dependency says: `httpx.Client(transport=HoldfastTransport(pricing))`.

Every request becomes one call of the dependency: attempts with backoff, the retry budget, Retry-After, the deadline
around it, the endpoints. Start reading at `exchange.py`; `pool.py` is the only one that knows httpcore's insides.
"""

from holdfast._errors import MissingExtra

try:
    import httpx as _httpx  # noqa: F401
except ImportError as error:
    raise MissingExtra("the httpx adapter", "httpx") from error

from holdfast.calls.adapters.httpx.exchange import call_options
from holdfast.calls.adapters.httpx.progress import (
    HttpxAttemptTimedOut,
    HttpxConnectTimedOut,
    HttpxDeadlineExceeded,
    HttpxLimitReached,
    HttpxNoEndpoint,
    HttpxPoolTimedOut,
    HttpxRetryAfterTooLong,
)
from holdfast.calls.adapters.httpx.transport import AsyncHoldfastTransport, HoldfastTransport

__all__ = [
    "AsyncHoldfastTransport",
    "HoldfastTransport",
    "HttpxAttemptTimedOut",
    "HttpxConnectTimedOut",
    "HttpxDeadlineExceeded",
    "HttpxLimitReached",
    "HttpxNoEndpoint",
    "HttpxPoolTimedOut",
    "HttpxRetryAfterTooLong",
    "call_options",
]

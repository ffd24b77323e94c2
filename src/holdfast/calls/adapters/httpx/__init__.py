"""Transports for httpx clients: `httpx.Client(transport=HoldfastTransport(pricing))`.

Every request becomes one call of the dependency, with its backoff, retry budget, Retry-After, deadline and endpoints.
Start reading at `exchange.py`. Only `pool.py` depends on httpcore's internals.
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

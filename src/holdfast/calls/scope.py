"""The bounds around a call (deadline, retry owner), and the HTTP headers that carry them to other processes. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from holdfast._types import Carrier

NO_THREAD = -1
"""Never equal to `threading.get_ident()`."""


class Scope(msgspec.Struct, eq=False):
    """The bounds of the code inside it. A msgspec structure, because one is made for every attempt, in 60 ns."""

    thread: ClassVar[int] = NO_THREAD
    """Lets one comparison, `found.thread == get_ident()`, work for a Scope and a ThreadScopes alike."""
    expires: float
    """Monotonic time of the deadline; infinity means none."""
    retry_owner: str | None = None
    """Name of the outer layer that retries already."""
    enclosing: Any = None
    """The scope around this one."""


class OverrideScope(Scope, eq=False):
    """The bounds around a block in which the calls of one dependency have other options."""

    dependency: Any = None
    """The DependencyState of that dependency."""
    options: Any = None
    """Its OverriddenOptions."""


def find_options(dependency: Any, scope: Scope | None) -> Any:
    """Return the OverriddenOptions of a DependencyState inside `scope`; without any, the state, which has the same."""
    if dependency.was_overridden:
        while scope is not None:
            if isinstance(scope, OverrideScope) and scope.dependency is dependency:
                return scope.options
            scope = scope.enclosing
    return dependency


class IncomingScope(Scope, eq=False):
    """The bounds that another process sent with its request."""

    trace: str | None = None
    """The W3C `traceparent`."""
    is_cache_refresh: bool = False
    """Whether the request has to refresh a local cache. Set by the request's own code, for its telemetry."""


def find_incoming_scope(scope: Scope | None) -> IncomingScope | None:
    """Return the bounds of the incoming request around `scope`, or None."""
    while scope is not None and not isinstance(scope, IncomingScope):
        scope = scope.enclosing
    return scope


def find_trace(scope: Scope | None) -> str | None:
    """Return the W3C `traceparent` of the incoming request, to be sent with outgoing ones, or None."""
    incoming = find_incoming_scope(scope)
    return None if incoming is None else incoming.trace


REMAINING_HEADER = "holdfast-remaining"
"""Seconds until the caller's deadline, as a decimal number. Not a time: clocks of two machines may differ."""
RETRY_OWNER_HEADER = "holdfast-retry-owner"
"""Name of the layer that retries already."""
TRACEPARENT_HEADER = "traceparent"
XRAY_HEADER = "x-amzn-trace-id"
"""Set by load balancers of AWS: https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html"""
TRACEPARENT_PATTERN = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)
"""https://www.w3.org/TR/trace-context/#traceparent-header: version, trace id, parent id, flags. Version ff and ids of
zeros are invalid; only versions after 00 may have further fields."""
_XRAY_ROOT = re.compile(r"(?:^|;)\s*Root=(1-[0-9a-f]{8}-[0-9a-f]{24})(?=;|\s*$)", re.IGNORECASE)
IDEMPOTENCY_KEY_HEADER = "idempotency-key"
"""https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/"""

MAX_OWNER_LENGTH = 128
"""Characters. The name comes from outside and is passed on, so its length must be bounded."""


def build_headers(carrier: Carrier) -> dict[str, str]:
    """Return the HTTP headers for `carrier`, without those it has no value for."""
    found = {}
    if carrier.remaining is not None:
        found[REMAINING_HEADER] = f"{carrier.remaining:.6f}"
    if carrier.retry_owner is not None:
        # Headers are ASCII. Replace other characters: a request must not fail because of a name.
        found[RETRY_OWNER_HEADER] = carrier.retry_owner.encode("ascii", "replace").decode()[:MAX_OWNER_LENGTH]
    if carrier.trace is not None:
        found[TRACEPARENT_HEADER] = carrier.trace
    return found


def parse_carrier(headers: Mapping[str, str]) -> Carrier:
    """Parse the headers of a request, with names in lower case. Ignore invalid values: they are the caller's fault."""
    owner = headers.get(RETRY_OWNER_HEADER)
    if owner is not None and (not owner.isprintable() or not 1 <= len(owner) <= MAX_OWNER_LENGTH):
        owner = None
    trace = headers.get(TRACEPARENT_HEADER)
    if trace is not None and not TRACEPARENT_PATTERN.fullmatch(trace):
        trace = None
    return Carrier(trace=trace, remaining=_seconds(headers.get(REMAINING_HEADER)), retry_owner=owner)


def get_trace_id(trace: str | None, xray: str | None = None) -> str:
    """Return the trace id of a valid W3C `traceparent`, otherwise of an `x-amzn-trace-id` header, otherwise ""."""
    if trace is not None:
        return trace[3:35]
    found = None if xray is None else _XRAY_ROOT.search(xray)
    return "" if found is None else found[1]


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return None if math.isnan(seconds) or seconds == math.inf else max(0.0, seconds)

"""The bounds around a call, until when and who retries, also as HTTP headers for other processes. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from holdfast._types import Carrier


class Scope(msgspec.Struct, eq=False):
    """The innermost bounds that hold here. A structure of msgspec: one is made for every attempt, in 60 ns."""

    thread: ClassVar[int] = -1
    """No thread's; so that it can be told from a place by the same look as a place of another thread."""
    expires: float
    """Monotonic time at which the work must be over; infinity: never."""
    retry_owner: str | None = None
    """The layer above that retries already."""
    enclosing: Any = None
    """The scope that this one was opened in."""


class IncomingScope(Scope, eq=False):
    """The bounds that came in from another process with its request."""

    trace: str | None = None
    """The W3C `traceparent`."""


def find_trace(scope: Scope | None) -> str | None:
    """The W3C `traceparent` that came in, for what goes out."""
    while scope is not None:
        if isinstance(scope, IncomingScope):
            return scope.trace
        scope = scope.enclosing
    return None


REMAINING_HEADER = "holdfast-remaining"
"""Seconds until the caller's deadline, as a decimal number: clocks of two machines need not agree."""
RETRY_OWNER_HEADER = "holdfast-retry-owner"
"""Who retries already, by name."""
TRACEPARENT_HEADER = "traceparent"
TRACEPARENT_PATTERN = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)
"""https://www.w3.org/TR/trace-context/#traceparent-header: version, trace id, parent id, flags. Version ff and ids of
zeros are not valid; only a version after 00 may go on behind the flags."""
IDEMPOTENCY_KEY_HEADER = "idempotency-key"
"""https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/"""

MAX_OWNER_LENGTH = 128
"""Characters; a name that came from outside is kept and sent on."""


def build_headers(carrier: Carrier) -> dict[str, str]:
    """The headers to send."""
    found = {}
    if carrier.remaining is not None:
        found[REMAINING_HEADER] = f"{carrier.remaining:.6f}"
    if carrier.retry_owner is not None:
        # A header is ASCII; a name is not the place where a request should fail.
        found[RETRY_OWNER_HEADER] = carrier.retry_owner.encode("ascii", "replace").decode()[:MAX_OWNER_LENGTH]
    if carrier.trace is not None:
        found[TRACEPARENT_HEADER] = carrier.trace
    return found


def parse_carrier(headers: Mapping[str, str]) -> Carrier:
    """What came in; names in lower case. A value that makes no sense is ignored: it is the caller's, not ours."""
    owner = headers.get(RETRY_OWNER_HEADER)
    if owner is not None and (not owner.isprintable() or not 1 <= len(owner) <= MAX_OWNER_LENGTH):
        owner = None
    trace = headers.get(TRACEPARENT_HEADER)
    if trace is not None and not TRACEPARENT_PATTERN.fullmatch(trace):
        trace = None
    return Carrier(trace=trace, remaining=_seconds(headers.get(REMAINING_HEADER)), retry_owner=owner)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return None if math.isnan(seconds) or seconds == math.inf else max(0.0, seconds)

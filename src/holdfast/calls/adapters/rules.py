"""Rules that the adapters share: options, origin and headers of a request, warm-ups, translated errors. Pure."""

import math
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from holdfast._errors import CallError, DeadlineExceeded, HoldfastError, InvalidValue
from holdfast.calls.scope import IDEMPOTENCY_KEY_HEADER, TRACEPARENT_HEADER

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The options of one request. None means the default."""

    idempotent: bool | None = None
    """Whether repeating it has the same effect as doing it once. Default: by the method, or if a key is sent."""
    operation: str | None = None
    """Its name in events. Default: the method, because there are too many paths."""
    stream: bool | None = None
    """True: the client reads the body later. False: the attempt reads it. Default: by its `content-length`."""

    def __post_init__(self) -> None:
        for name in ("idempotent", "stream"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidValue(f"{name} is {getattr(self, name)!r}: expected True, False or None")
        operation: object = self.operation
        if operation is not None and not (isinstance(operation, str) and operation):
            raise InvalidValue(f"operation is {self.operation!r}: expected a name, or None")


DEFAULTS = RequestOptions()
_NAMES = tuple(field.name for field in fields(RequestOptions))


def parse_options(given: object) -> RequestOptions:
    """Return the options of a request, given as RequestOptions, a mapping or None. Raise InvalidValue for others."""
    if given is None:
        return DEFAULTS
    if isinstance(given, RequestOptions):
        return given
    if not isinstance(given, Mapping) or not given.keys() <= set(_NAMES):
        raise InvalidValue(f"options of a request are {given!r}: expected a mapping with any of {', '.join(_NAMES)}")
    known: Mapping[str, Any] = given
    return RequestOptions(**known)


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The parameters of the call for one request."""

    idempotent: bool
    operation: str
    send_key: bool
    """Whether an idempotency key is sent."""


def plan_call(method: str, options: RequestOptions, *, accepts_keys: bool, is_repeatable: bool) -> CallPlan:
    """Return the plan for a server that honours idempotency keys or not, and a body that can be sent twice or not."""
    by_itself = method.upper() in IDEMPOTENT_METHODS
    idempotent = is_repeatable and (by_itself or accepts_keys if options.idempotent is None else options.idempotent)
    return CallPlan(
        idempotent, options.operation or method.upper(), send_key=accepts_keys and idempotent and not by_itself
    )


def add_headers(headers: MutableMapping[str, str], attempt: "Attempt", *, propagate: bool, send_key: bool) -> None:
    """Add the attempt's deadline, retry owner, trace and idempotency key to a request's headers."""
    if propagate:
        for name, value in attempt.headers().items():
            if name != TRACEPARENT_HEADER or name not in headers:  # instrumentation may have set it
                headers[name] = value
    if send_key and IDEMPOTENCY_KEY_HEADER not in headers:
        headers[IDEMPOTENCY_KEY_HEADER] = attempt.idempotency_key


MIN_TIMEOUT = 0.001
"""Seconds. A socket timeout of 0 means non-blocking, which fails with another error."""


def shorter_timeout(asked: float | None, left: float) -> float | None:
    """Return the shorter of the timeout asked for and the seconds left, as a socket timeout: None means no timeout."""
    if left == math.inf:
        return asked
    return max(MIN_TIMEOUT, left if asked is None else min(asked, left))


def late_answer_error(attempt: "Attempt") -> DeadlineExceeded:
    """Return the error to raise when the call's deadline passes while its caller reads the response."""
    return DeadlineExceeded(f"{attempt.dependency.name}: the deadline passed while the response was read")


_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port of a URL."""

    scheme: str
    host: str
    """Without brackets."""
    port: int | None
    """None means the default port of the scheme."""

    @property
    def netloc(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None or self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_origin(address: str, scheme: str) -> Origin:
    """Parse `host:port`, with the given scheme, or a URL without a path. Raise InvalidValue for other addresses."""
    try:
        parts = urlsplit(address if "://" in address else f"{scheme}://{address}")
        port = parts.port
    except ValueError as error:
        raise _invalid_address(address) from error
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in _PORTS or not parts.hostname or extra:
        raise _invalid_address(address)
    return Origin(parts.scheme, parts.hostname, port)


def _invalid_address(address: str) -> InvalidValue:
    return InvalidValue(f"endpoint {address!r}: expected host:port, or http(s)://host:port without a path")


def check_connections(connections: int) -> None:
    """Raise InvalidValue for a warm-up of fewer than 1 connection."""
    if connections < 1:
        raise InvalidValue(f"warm-up of {connections} connections: expected at least 1")


def is_kept_open(version: str, headers: Mapping[str, str]) -> bool:
    """Return whether the connection stays open after this response."""
    # https://www.rfc-editor.org/rfc/rfc9112#section-9.3
    said = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    return "close" not in said and (version != "HTTP/1.0" or "keep-alive" in said)


def count_ready(url: str, outcomes: Iterable[bool | BaseException]) -> int:
    """Return the number of ready connections (True). Raise the first error if none is; False means closed."""
    known = list(outcomes)
    ready = sum(outcome is True for outcome in known)
    if ready:
        return ready
    for outcome in known:
        if isinstance(outcome, BaseException):
            outcome.add_note(f"holdfast: warm-up of {url}: none of {len(known)} connections is ready")
            raise outcome
    raise CallError(f"warm-up of {url}: the server closes each connection after its response, so none stays open")


ErrorPairs: TypeAlias = tuple[tuple[type[HoldfastError], type[HoldfastError]], ...]
"""Pairs of a Holdfast error and its subclass that is also an error of the client's library."""


def translate_error(error: HoldfastError, pairs: ErrorPairs) -> HoldfastError | None:
    """Return the error as an error of the client's library, with its message, cause, notes and attributes, or None."""
    for kind, library_kind in pairs:
        if isinstance(error, kind):
            other = library_kind(str(error))
            vars(other).update(vars(error))
            if hasattr(error, "__notes__"):
                other.__notes__ = [*error.__notes__]
            other.__cause__ = error.__cause__
            return other
    return None

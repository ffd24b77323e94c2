"""What the adapters share: options, origin and headers of one request, warm-ups, errors as twins. Pure."""

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
    """What one request asks for; None leaves it to the rule."""

    idempotent: bool | None = None
    """Whether doing it twice is doing it once. The rule: by the method, or because an idempotency key is sent."""
    operation: str | None = None
    """Its name in events; the rule: the method. Paths make too many names."""
    stream: bool | None = None
    """True: hand the body over as it comes. False: read it within the attempt. The rule: by its `content-length`."""

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
    """The options in what a request carries: None, the options themselves, or a mapping of them."""
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
    """How one request is called."""

    idempotent: bool
    operation: str
    send_key: bool
    """Whether an idempotency key is sent."""


def plan_call(method: str, options: RequestOptions, *, accepts_keys: bool, is_repeatable: bool) -> CallPlan:
    """Return how to call: whether the server knows idempotency keys, and the body can be sent twice."""
    by_itself = method.upper() in IDEMPOTENT_METHODS
    idempotent = is_repeatable and (by_itself or accepts_keys if options.idempotent is None else options.idempotent)
    return CallPlan(
        idempotent, options.operation or method.upper(), send_key=accepts_keys and idempotent and not by_itself
    )


def add_headers(headers: MutableMapping[str, str], attempt: "Attempt", *, propagate: bool, send_key: bool) -> None:
    """Add to a request's headers what the attempt sends along: deadline and retry owner, trace, idempotency key."""
    if propagate:
        for name, value in attempt.headers().items():
            if name != TRACEPARENT_HEADER or name not in headers:  # instrumentation may have set its own
                headers[name] = value
    if send_key and IDEMPOTENCY_KEY_HEADER not in headers:
        headers[IDEMPOTENCY_KEY_HEADER] = attempt.idempotency_key


MIN_TIMEOUT = 0.001
"""Seconds; a timeout of 0 would mean not to wait at all, which sockets answer with another error."""


def shorter_timeout(asked: float | None, left: float) -> float | None:
    """Return the shorter of the timeout asked for and the seconds left, as sockets want it."""
    if left == math.inf:
        return asked
    return max(MIN_TIMEOUT, left if asked is None else min(asked, left))


def late_answer_error(attempt: "Attempt") -> DeadlineExceeded:
    """Return what to raise when the call's deadline passes while its caller reads the answer."""
    return DeadlineExceeded(f"{attempt.dependency.name}: cut off, because the deadline has passed during the answer")


_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port, as the URL of a request has them."""

    scheme: str
    host: str
    """Without brackets."""
    port: int | None
    """None: the scheme's own."""

    @property
    def netloc(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None or self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_origin(address: str, scheme: str) -> Origin:
    """The origin that `host:port` or a URL names; one without a scheme has that of the request."""
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
    """Refuse a number of connections that cannot be meant."""
    if connections < 1:
        raise InvalidValue(f"warm-up of {connections} connections: expected at least 1")


def is_kept_open(version: str, headers: Mapping[str, str]) -> bool:
    """Whether the connection that an answer came on is kept."""
    # https://www.rfc-editor.org/rfc/rfc9112#section-9.3
    said = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    return "close" not in said and (version != "HTTP/1.0" or "keep-alive" in said)


def count_ready(url: str, outcomes: Iterable[bool | BaseException]) -> int:
    """Count the True ones, ready connections; False: the server closed it. If none is ready, raise the first error."""
    known = list(outcomes)
    ready = sum(outcome is True for outcome in known)
    if ready:
        return ready
    for outcome in known:
        if isinstance(outcome, BaseException):
            outcome.add_note(f"holdfast: warm-up of {url}: none of {len(known)} connections is ready")
            raise outcome
    raise CallError(f"warm-up of {url}: the server closes each connection after its answer, so none can be kept")


ErrorPairs: TypeAlias = tuple[tuple[type[HoldfastError], type[HoldfastError]], ...]
"""Errors of Holdfast, and beside each the one that is also an error of a client's library."""


def translate_error(error: HoldfastError, twins: ErrorPairs) -> HoldfastError | None:
    """Return the error as its twin: same words, same cause, same notes and attributes. None: it has no twin."""
    for kind, twin in twins:
        if isinstance(error, kind):
            other = twin(str(error))
            vars(other).update(vars(error))
            if hasattr(error, "__notes__"):
                other.__notes__ = [*error.__notes__]
            other.__cause__ = error.__cause__
            return other
    return None

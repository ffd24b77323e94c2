"""The options of a service, and the rules for its requests: bounds, refusals, the status to count. Pure."""

import math
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from holdfast._backoff import Chance
from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Carrier, Operation, Zone
from holdfast.calls.scope import (
    REMAINING_HEADER,
    RETRY_OWNER_HEADER,
    TRACEPARENT_HEADER,
    XRAY_HEADER,
    IncomingScope,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareOptions:
    """The options of one service. Durations are seconds."""

    workload: str
    zone: Zone | None = None
    """The AZ-ID that this process runs in. Needed to report outcomes and to follow the zone's status."""
    instance: str | None = None
    """Name of this process in outcomes; None means the host's name."""
    default_deadline: float | None = 60.0
    """Deadline of requests without one: load balancers close idle connections after a minute. It interrupts nothing,
    but calls made after it are refused. Use None for services that stream for longer."""
    max_deadline: float | None = 300.0
    """Maximum deadline of a request; None accepts any deadline from callers."""
    trust_callers: bool = True
    """Whether to use the deadline and retry owner that callers send. Use False at the edge; traces are always used."""
    late_status: int = 504
    """HTTP status of a request whose deadline passed before it began, or before its response began."""
    health_path: str = "/health"
    """Path of the balancer's health check. It returns 503 while the zone is out. Not reported as an outcome."""
    refuse_while_out: bool = False
    """Whether to refuse all other requests as well while the zone is out. Off by default: in most failures of a zone,
    a response that may be bad is better than a certain refusal."""
    retry_after: float = 5.0
    """Minimum Retry-After of refused requests, in seconds. A random part of up to the same length is added."""
    cancel_overruns: bool = False
    """Whether to cancel a handler at its deadline if its response has not begun, and respond with `late_status`. ASGI
    on asyncio only. Off by default: code that does not expect to be cancelled may leave work half done."""

    report_source_ip: bool = False
    """Whether telemetry contains the client's address, as the server sees it. Off by default: it is personal data in
    many countries, log files keep it for long, and detection does not use it."""

    def __post_init__(self) -> None:
        check_workload_name(self.workload)
        if self.zone is not None:
            parse_zone(self.zone)
        if self.instance is not None and (not self.instance or not self.instance.isprintable()):
            raise InvalidValue(f"instance {self.instance!r}: expected printable text, or None for the host's name")
        for name in ("default_deadline", "max_deadline"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidValue(f"{name} of {value} seconds: expected more than 0, or None for no bound")
        if (
            self.max_deadline is not None
            and self.default_deadline is not None
            and self.default_deadline > self.max_deadline
        ):
            raise InvalidValue(
                f"default_deadline of {self.default_deadline} seconds: expected at most the max_deadline, "
                f"{self.max_deadline}"
            )
        if not 400 <= self.late_status <= 599:
            raise InvalidValue(f"late_status {self.late_status}: expected an error status, 400 to 599")
        if not self.health_path.startswith("/"):
            raise InvalidValue(f"health_path {self.health_path!r}: expected a path that begins with /")
        if not 1 <= self.retry_after < math.inf:
            raise InvalidValue(f"retry_after of {self.retry_after} seconds: expected 1 or more; HTTP has whole seconds")


HOST_HEADER = "host"
REQUEST_HEADERS = frozenset({REMAINING_HEADER, RETRY_OWNER_HEADER, TRACEPARENT_HEADER, XRAY_HEADER, HOST_HEADER})
"""The request headers to read, in lower case."""
CLIENT_GONE = 499
"""Status to count if the client disconnected before the response; introduced by nginx, and widely used."""
MIN_FAIR_SECONDS = 0.1
"""Minimum deadline of a caller for a late response to count as a fault of the zone: about a usual attempt timeout."""
EARLY_SHARE = 0.1
"""A client that disconnects within this last fraction of its time counts as having waited until its deadline: its time
began before the request arrived here."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})
_PHRASES = {int(status): status.phrase for status in HTTPStatus}
UNMATCHED = "unmatched"
"""Route of a request without a known route. Not its path: callers choose paths, so their number is unbounded."""


class Bounds(IncomingScope, eq=False):
    """The scope of a request, and where its deadline comes from."""

    is_from_caller: bool = False
    """Whether the caller set the deadline, and so does not wait any longer."""
    is_fair: bool = True
    """Whether the deadline left at least MIN_FAIR_SECONDS."""
    counts_as_waited_from: float = math.inf
    """Monotonic time from which a client that disconnects counts as having waited until its deadline."""


@dataclass(frozen=True, slots=True)
class MiddlewareResponse:
    """A complete response that the middleware sends itself."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def status_line(self) -> str:
        """The status line for WSGI: `504 Gateway Timeout`."""
        return f"{self.status} {_PHRASES.get(self.status, 'Error')}"


def build_bounds(service: MiddlewareOptions, carrier: Carrier, now: float) -> Bounds | None:
    """Return the scope of a request that arrived `now`, or None if its deadline has passed already."""
    remaining = carrier.remaining if service.trust_callers else None
    if remaining is not None and remaining <= 0:
        return None
    is_from_caller = remaining is not None
    if remaining is None:
        remaining = service.default_deadline
    if remaining is None or (service.max_deadline is not None and remaining > service.max_deadline):
        remaining, is_from_caller = service.max_deadline, False
    left = math.inf if remaining is None else remaining
    return Bounds(
        now + left,
        carrier.retry_owner if service.trust_callers else None,
        None,
        carrier.trace,
        is_from_caller=is_from_caller,
        is_fair=not is_from_caller or left >= MIN_FAIR_SECONDS,
        counts_as_waited_from=now + left * (1 - EARLY_SHARE),
    )


def respond_late(service: MiddlewareOptions) -> MiddlewareResponse:
    """Return the response to a request whose deadline passed before it began."""
    detail = "the caller's deadline has passed: it no longer waits for the response"
    return _build_problem(service.late_status, DeadlineExceeded.slug, detail)


def respond_overrun(service: MiddlewareOptions) -> MiddlewareResponse:
    """Return the response to a request whose handler stopped, or was cancelled, at its deadline."""
    return _build_problem(service.late_status, DeadlineExceeded.slug, "the request took longer than its deadline")


def respond_unhealthy(service: MiddlewareOptions) -> MiddlewareResponse:
    """Return the response to a health check while the zone is out."""
    return _build_problem(HTTPStatus.SERVICE_UNAVAILABLE, "zone-out", f"zone {service.zone} is out: send nothing here")


def respond_refused(service: MiddlewareOptions, chance: Chance) -> MiddlewareResponse:
    """Return the response to other requests while the zone is out, with `refuse_while_out`."""
    seconds = math.ceil(service.retry_after * (1 + chance()))
    detail = f"zone {service.zone} is out: call another zone, or retry here later"
    return _build_problem(HTTPStatus.SERVICE_UNAVAILABLE, "zone-out", detail, ("retry-after", str(seconds)))


def _build_problem(status: int, slug: str, detail: str, *headers: tuple[str, str]) -> MiddlewareResponse:
    """Return a response with problem details: https://www.rfc-editor.org/rfc/rfc9457."""
    kind, title = f"urn:holdfast:problem:{slug}", _PHRASES.get(status, "Error")
    body = msgspec.json.encode({"type": kind, "title": title, "status": int(status), "detail": detail})
    always = (("content-type", "application/problem+json"), ("content-length", str(len(body))))
    return MiddlewareResponse(int(status), (*always, *headers), body)


def choose_status(status: int | None, *, failed: bool, is_client_gone: bool, late: Bounds | None = None) -> int:
    """Return the status to count a request with.

    `status` is that of the response, if it began before the client disconnected. `failed`: the application raised, or
    left its response unfinished, which is not its fault after a disconnect. `late` is given if the response did not
    begin before the deadline. That counts as a fault if the deadline was fair, so that a zone that hangs is detected,
    and otherwise as a disconnect. A response after a deadline that the caller did not set counts with its own status.
    """
    if late is not None and (status is None or late.is_from_caller):
        return HTTPStatus.GATEWAY_TIMEOUT if late.is_fair else CLIENT_GONE
    if is_client_gone:
        return CLIENT_GONE if status is None else status
    if status is None or (failed and status < 500):
        return 500
    return status


def name_operation(workload: str, method: str, template: str | None) -> Operation:
    """Return the operation of a route, such as `GET /users/{id}` of the workload."""
    return Operation(workload, f"{method if method in METHODS else 'other'} {template or UNMATCHED}")


def parse_status(line: str) -> int | None:
    """Return the status in a line such as `200 OK`, or None."""
    return int(line[:3]) if line[:3].isascii() and line[:3].isdigit() else None

"""A service's options, and what follows from a request and from its end: bounds, refusals, what is counted. Pure."""

import math
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from holdfast._backoff import Chance
from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Carrier, Operation, Zone
from holdfast.calls.scope import REMAINING_HEADER, RETRY_OWNER_HEADER, TRACEPARENT_HEADER, IncomingScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who is asked, for how long, and what is done when the zone is out. Durations are seconds."""

    workload: str
    zone: Zone | None = None
    """The AZ-ID that this process runs in; needed to report outcomes and to obey the status of the zone."""
    instance: str | None = None
    """What this process is called in outcomes; None: the host's name."""
    default_deadline: float | None = 60.0
    """For requests that come without one: balancers close idle connections after a minute, and then nobody waits. It
    interrupts nothing, but calls made past it are refused: None for services that stream for longer than that."""
    max_deadline: float | None = 300.0
    """No request has more, whatever its caller says; None: callers are believed."""
    trust_callers: bool = True
    """Whether the deadline and the retry owner that callers send count. False at the edge: only the trace does."""
    late_status: int = 504
    """What a request is answered with whose deadline has passed before it began, or before it was answered."""
    health_path: str = "/health"
    """Where the balancer asks: answered with 503 while the zone is out, so that it sends no more. Never an outcome."""
    refuse_while_out: bool = False
    """Whether other requests are refused as well while the zone is out. Off: what still comes is served, because for
    most failures of a zone an answer that may be bad is better than a certain refusal."""
    retry_after: float = 5.0
    """Least seconds that refused callers are asked to stay away; each is told up to twice as much, to spread them."""
    cancel_overruns: bool = False
    """Whether a handler that overruns its deadline is cancelled and answered for, with the late status, if it has sent
    nothing yet. ASGI only, on asyncio. Off: code that does not expect to be cancelled may leave work half done."""

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
            raise InvalidValue(f"late_status {self.late_status}: expected the status of an error, 400 to 599")
        if not self.health_path.startswith("/"):
            raise InvalidValue(f"health_path {self.health_path!r}: expected a path that begins with /")
        if not 1 <= self.retry_after < math.inf:
            raise InvalidValue(f"retry_after of {self.retry_after} seconds: expected 1 or more; HTTP counts whole ones")


CARRIER_HEADERS = frozenset({REMAINING_HEADER, RETRY_OWNER_HEADER, TRACEPARENT_HEADER})
"""The headers that are read, in lower case."""
CLIENT_GONE = 499
"""What is counted when the client left before there was an answer; nginx made the number up, and others follow."""
MIN_FAIR_SECONDS = 0.1
"""Least seconds that a caller must give for a late answer to be a fault of the zone: about a usual attempt timeout."""
EARLY_SHARE = 0.1
"""Of its time, by which a client may leave early and still has waited: its time began before the request came here."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})
_PHRASES = {int(status): status.phrase for status in HTTPStatus}
UNMATCHED = "unmatched"
"""The route of a request that no route is known for: paths are the callers', and would be without number."""


class Bounds(IncomingScope, eq=False):
    """The scope that a request is served in, and whose word that is."""

    is_from_caller: bool = False
    """Whether the caller itself gave the deadline: then nobody waits for what comes later."""
    is_fair: bool = True
    """Whether it was time enough."""
    waited_from: float = math.inf
    """Monotonic time from which on a client that leaves has waited until its deadline."""


@dataclass(frozen=True, slots=True)
class MiddlewareResponse:
    """A whole response that the middleware gives by itself."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def status_line(self) -> str:
        """The status as WSGI wants it: `504 Gateway Timeout`."""
        return f"{self.status} {_PHRASES.get(self.status, 'Error')}"


def build_bounds(service: Service, carrier: Carrier, now: float) -> Bounds | None:
    """The scope that a request is served in, when it came in `now`; None if its deadline has passed already."""
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
        waited_from=now + left * (1 - EARLY_SHARE),
    )


def respond_late(service: Service) -> MiddlewareResponse:
    """For a request whose deadline had passed before it began."""
    detail = "the caller's deadline has passed: nobody waits for the answer any more"
    return _build_problem(service.late_status, DeadlineExceeded.slug, detail)


def respond_overrun(service: Service) -> MiddlewareResponse:
    """For a request whose handler gave up, or was cut off, because its deadline had passed."""
    return _build_problem(service.late_status, DeadlineExceeded.slug, "it took longer than the caller's deadline")


def respond_unhealthy(service: Service) -> MiddlewareResponse:
    """For the balancer while the zone is out."""
    return _build_problem(HTTPStatus.SERVICE_UNAVAILABLE, "zone-out", f"zone {service.zone} is out: send nothing here")


def respond_refused(service: Service, chance: Chance) -> MiddlewareResponse:
    """For other requests while the zone is out, if they are to be refused."""
    seconds = math.ceil(service.retry_after * (1 + chance()))
    detail = f"zone {service.zone} is out: ask in another zone, or here again later"
    return _build_problem(HTTPStatus.SERVICE_UNAVAILABLE, "zone-out", detail, ("retry-after", str(seconds)))


def _build_problem(status: int, slug: str, detail: str, *headers: tuple[str, str]) -> MiddlewareResponse:
    """Problem details: https://www.rfc-editor.org/rfc/rfc9457."""
    kind, title = f"urn:holdfast:problem:{slug}", _PHRASES.get(status, "Error")
    body = msgspec.json.encode({"type": kind, "title": title, "status": int(status), "detail": detail})
    always = (("content-type", "application/problem+json"), ("content-length", str(len(body))))
    return MiddlewareResponse(int(status), (*always, *headers), body)


def choose_status(status: int | None, *, failed: bool, is_client_gone: bool, late: Bounds | None = None) -> int:
    """Return the status that a request counts with.

    `status` is that of the response, if one began while the client was there; `failed`: the application raised, or left
    its response unfinished, which is not its fault once the client is gone. `late` are the bounds of a request that was
    not answered before its deadline: a fault if the time was fair, so that a zone that hangs shows, else as a client
    that left. Past a deadline that the caller did not give, an answer is an answer.
    """
    if late is not None and (status is None or late.is_from_caller):
        return HTTPStatus.GATEWAY_TIMEOUT if late.is_fair else CLIENT_GONE
    if is_client_gone:
        return CLIENT_GONE if status is None else status
    if status is None or (failed and status < 500):
        return 500
    return status


def name_operation(workload: str, method: str, template: str | None) -> Operation:
    """The operation that a route stands for: `GET /users/{id}` of the workload."""
    return Operation(workload, f"{method if method in METHODS else 'other'} {template or UNMATCHED}")


def parse_status(line: str) -> int | None:
    """The status in a line such as `200 OK`; None if there is none."""
    return int(line[:3]) if line[:3].isascii() and line[:3].isdigit() else None

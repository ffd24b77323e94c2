"""The part that the ASGI and the WSGI middleware share: admits requests, and reports their outcomes."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast._types import Operation, Outcome, RequestDetail, Sink, ZoneView
from holdfast.calls.context import current_scope
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import XRAY_HEADER, find_incoming_scope, get_trace_id, parse_carrier
from holdfast.middleware import rules
from holdfast.middleware.rules import HOST_HEADER, UNMATCHED, Bounds, MiddlewareOptions, MiddlewareResponse
from holdfast.telemetry.meter import Meter

log = logging.getLogger("holdfast.middleware")

NameOperation = Callable[[Mapping[str, Any]], Operation]
"""Returns the operation of a request, from its ASGI scope or WSGI environment. Called when the response begins."""
Application = TypeVar("Application")


def mark_cache_refresh() -> None:
    """Report the current request with `CacheRefresh` true: it refreshes a local cache. Do nothing outside of one."""
    incoming = find_incoming_scope(current_scope())
    if incoming is not None:
        incoming.is_cache_refresh = True


class Middleware(ABC, Generic[Application]):
    """The base of the ASGI and the WSGI middleware: an application behind a gate."""

    def __init__(
        self,
        app: Application,
        service: MiddlewareOptions,
        *,
        sink: Sink[Outcome] | None = None,
        zones: ZoneView | None = None,
        operation: NameOperation | None = None,
        runtime: Runtime = PROCESS,
    ) -> None:
        self._app = app
        self._gate = Gate(service, name=operation or self._route, sink=sink, zones=zones, runtime=runtime)

    @abstractmethod
    def _route(self, request: Mapping[str, Any]) -> Operation:
        """Return the operation of a request, from the route that the framework found."""


class Gate:
    """The admission and reporting of one service's requests. Thread-safe if the sink and the view are."""

    def __init__(
        self,
        service: MiddlewareOptions,
        *,
        name: NameOperation,
        sink: Sink[Outcome] | None,
        zones: ZoneView | None,
        runtime: Runtime,
    ) -> None:
        for what, given in (("a sink", sink), ("a view of zones", zones)):
            if given is not None and service.zone is None:
                raise InvalidValue(
                    f"service {service.workload} has {what}, but no zone: set MiddlewareOptions(zone=...)"
                )
        if service.refuse_while_out and zones is None:
            raise InvalidValue(f"service {service.workload} has refuse_while_out: expected a view of zones as well")
        self.service = service
        self.runtime = runtime
        self.meter: Meter | None = None
        """Reports outcomes; None without a sink."""
        if sink is not None and service.zone is not None:
            self.meter = Meter(
                service.workload, zone=service.zone, sink=sink, instance=service.instance, runtime=runtime
            )
        self._name = name
        self._zones = zones

    def admit(self, path: str, headers: Mapping[str, str]) -> Bounds | MiddlewareResponse | None:
        """Return the bounds of a request, the response that refuses it, or None for a health check to pass on."""
        service = self.service
        is_out = self._zones is not None and service.zone in self._zones.zones_out(service.workload)
        if path == service.health_path:
            return rules.respond_unhealthy(service) if is_out else None
        if is_out and service.refuse_while_out:
            return rules.respond_refused(service, self.runtime.chance)
        return rules.build_bounds(service, parse_carrier(headers), self.runtime.monotonic()) or rules.respond_late(
            service
        )

    def report_refusal(self, request: Mapping[str, Any], path: str, answer: MiddlewareResponse) -> None:
        """Report a request that `admit` has refused, unless it is a health check."""
        if self.meter is not None and path != self.service.health_path:
            detail = RequestDetail(status=answer.status, path=path)
            self.meter.report(self.name(request), seconds=0.0, detail=detail, is_ignored=True)

    def name(self, request: Mapping[str, Any]) -> Operation:
        """Return the operation of a request, UNMATCHED if finding it fails."""
        if self.meter is None:
            return Operation(self.service.workload, UNMATCHED)  # it is not reported
        try:
            return self._name(request)
        except Exception:
            log.exception("%s: could not find the operation of a request; it is unmatched", self.service.workload)
            return Operation(self.service.workload, UNMATCHED)


class ServedRequest:
    """The progress of one request and its response. Reports one outcome, however often `end` is called."""

    def __init__(
        self,
        gate: Gate,
        request: Mapping[str, Any],
        bounds: Bounds,
        *,
        headers: Mapping[str, str],
        path: str,
        client: str,
    ) -> None:
        self._gate = gate
        self._bounds = bounds
        self._request = request
        self._headers = headers
        self._path = path
        self._client = client
        self._began = gate.runtime.monotonic()
        self._operation: Operation | None = None
        self._status: int | None = None
        self._is_late = False
        self.has_begun = False
        """Whether the application's response has begun."""
        self.is_client_gone = False
        """Whether the client has disconnected."""
        self.is_over = False

    @property
    def has_expired(self) -> bool:
        """True after the deadline."""
        return self._gate.runtime.monotonic() >= self._bounds.expires

    def respond_to(self, error: BaseException) -> MiddlewareResponse | None:
        """Return the response if `error` is a DeadlineExceeded after the request's own deadline. None: re-raise it."""
        if not isinstance(error, DeadlineExceeded) or self.is_client_gone or not self.has_expired:
            return None
        log.info("a request to %s stopped at its deadline: %s", self._gate.service.workload, error)
        return rules.respond_overrun(self._gate.service)

    def begin(self, status: int | None) -> None:
        """Record that the response has begun. After a disconnect, its status does not count."""
        if not self.is_client_gone:
            self._status = status
            self._is_late = self.has_expired
        self.has_begun = True
        self._operation = self._gate.name(self._request)  # now: Flask drops the route before the body is sent

    def end(self, *, failed: bool = False) -> None:
        """Report the outcome, after the last byte or instead of it. Repeating it has no effect."""
        if self.is_over:
            return
        self.is_over = True
        if self._status is None and not self.is_client_gone:
            self._is_late = self.has_expired
        late = self._bounds if self._is_late else None
        status = rules.choose_status(self._status, failed=failed, is_client_gone=self.is_client_gone, late=late)
        meter, headers = self._gate.meter, self._headers
        if meter is None:
            return
        detail = RequestDetail(
            status=status,
            trace=get_trace_id(self._bounds.trace, headers.get(XRAY_HEADER)),
            path=self._path,
            host=headers.get(HOST_HEADER, ""),
            source_ip=self._client if self._gate.service.report_source_ip else "",
            is_cache_refresh=self._bounds.is_cache_refresh,
        )
        seconds = self._gate.runtime.monotonic() - self._began
        meter.report(self._operation or self._gate.name(self._request), seconds=seconds, detail=detail)

    def mark_client_gone(self) -> None:
        """Record that the client has disconnected."""
        if not self.is_client_gone:
            self.is_client_gone = True
            if self._status is None:
                self._is_late = self._gate.runtime.monotonic() >= self._bounds.counts_as_waited_from

    def end_client_gone(self) -> None:
        """Report the outcome of a request whose client has disconnected."""
        self.mark_client_gone()
        self.end()

"""What both drivers ask: whether a request is let in, in which bounds; and whom they tell how it ended."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast._types import Operation, Outcome, Side, Sink, ZoneView
from holdfast.calls.outcomes import build_counts
from holdfast.calls.periodic import host_name
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import parse_carrier
from holdfast.middleware import rules
from holdfast.middleware.rules import UNMATCHED, Bounds, MiddlewareResponse, Service

log = logging.getLogger("holdfast.middleware")

NameOperation = Callable[[Mapping[str, Any]], Operation]
"""Tells the operation of a request from its ASGI scope or WSGI environment, once the response begins."""
Application = TypeVar("Application")


class Middleware(ABC, Generic[Application]):
    """Base of the ASGI and the WSGI middleware: an application with a gate in front of it."""

    def __init__(
        self,
        app: Application,
        service: Service,
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
        """Name a request by the route that the framework found."""


class Gate:
    """One service's door. Thread-safe, as far as the sink and the view are."""

    def __init__(
        self,
        service: Service,
        *,
        name: NameOperation,
        sink: Sink[Outcome] | None,
        zones: ZoneView | None,
        runtime: Runtime,
    ) -> None:
        for what, given in (("a sink", sink), ("a view of zones", zones)):
            if given is not None and service.zone is None:
                raise InvalidValue(f"service {service.workload} has {what}, but no zone: say in which zone it runs")
        if service.refuse_while_out and zones is None:
            raise InvalidValue(f"service {service.workload} is to refuse requests: expected a view of zones as well")
        self.service = service
        self.runtime = runtime
        self._name = name
        self._sink = sink
        self._zones = zones
        self._instance = service.instance or host_name()
        self.dropped_outcomes = 0
        """Outcomes that the sink failed to take; about so many if several threads lose some at once."""

    def admit(self, path: str, headers: Mapping[str, str]) -> Bounds | MiddlewareResponse | None:
        """Return the scope to serve a request in, or how to refuse it; None: a health check for the application."""
        service = self.service
        is_out = self._zones is not None and service.zone in self._zones.out(service.workload)
        if path == service.health_path:
            return rules.respond_unhealthy(service) if is_out else None
        if is_out and service.refuse_while_out:
            return rules.respond_refused(service, self.runtime.chance)
        return rules.build_bounds(service, parse_carrier(headers), self.runtime.monotonic()) or rules.respond_late(
            service
        )

    def report_refusal(self, request: Mapping[str, Any], path: str, answer: MiddlewareResponse) -> None:
        """A request was refused by `admit`."""
        if path != self.service.health_path:
            self.report(self.name(request), status=answer.status, seconds=0.0, internal=True)

    def name(self, request: Mapping[str, Any]) -> Operation:
        """The operation of a request; whatever goes wrong with that, it has one."""
        if self._sink is None:
            return Operation(self.service.workload, UNMATCHED)  # nobody will be told
        try:
            return self._name(request)
        except Exception:
            log.exception("a request of %s could not be named", self.service.workload)
            return Operation(self.service.workload, UNMATCHED)

    def report(self, operation: Operation, *, status: int, seconds: float, internal: bool = False) -> None:
        """Report a request that has ended; a failing sink changes nothing. `internal`: the middleware answered it."""
        service = self.service
        if self._sink is None or service.zone is None:
            return
        try:
            self._sink.emit(
                Outcome(
                    workload=service.workload,
                    operation=operation,
                    zone=service.zone,
                    instance=self._instance,
                    at=self.runtime.clock.wall(),
                    side=Side.SERVER,
                    internal=internal,
                    **build_counts(status, seconds),
                )
            )
        except Exception:
            self.dropped_outcomes += 1
            if self.dropped_outcomes == 1:  # a sink that fails once mostly fails for every event
                log.exception("an outcome of %s could not be told; others are only counted", service.workload)


class ServedRequest:
    """One request and its response, as they go on. However it ends, that is told once."""

    def __init__(self, gate: Gate, request: Mapping[str, Any], bounds: Bounds) -> None:
        self._gate = gate
        self._bounds = bounds
        self._request = request
        self._began = gate.runtime.monotonic()
        self._operation: Operation | None = None
        self._status: int | None = None
        self._is_late = False
        self.has_begun = False
        """Whether the application has begun to answer."""
        self.is_client_gone = False
        """Whether the client has left."""
        self.is_over = False

    @property
    def has_expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._gate.runtime.monotonic() >= self._bounds.expires

    def respond_to(self, error: BaseException) -> MiddlewareResponse | None:
        """Return the answer if this error says that the request's own deadline has passed; None: raise it on."""
        if not isinstance(error, DeadlineExceeded) or self.is_client_gone or not self.has_expired:
            return None
        log.info("a request of %s was given up: %s", self._gate.service.workload, error)
        return rules.respond_overrun(self._gate.service)

    def begin(self, status: int | None) -> None:
        """The response has begun; what is said to a client that had left before is not its answer."""
        if not self.is_client_gone:
            self._status = status
            self._is_late = self.has_expired
        self.has_begun = True
        self._operation = self._gate.name(self._request)  # now: Flask forgets its route before the body is sent

    def end(self, *, failed: bool = False) -> None:
        """The last byte was sent, or none will be; what comes after the first time changes nothing."""
        if self.is_over:
            return
        self.is_over = True
        if self._status is None and not self.is_client_gone:
            self._is_late = self.has_expired
        late = self._bounds if self._is_late else None
        status = rules.choose_status(self._status, failed=failed, is_client_gone=self.is_client_gone, late=late)
        seconds = self._gate.runtime.monotonic() - self._began
        self._gate.report(self._operation or self._gate.name(self._request), status=status, seconds=seconds)

    def mark_client_gone(self) -> None:
        """The client is gone, and nobody reads what is still to be sent."""
        if not self.is_client_gone:
            self.is_client_gone = True
            if self._status is None:
                self._is_late = self._gate.runtime.monotonic() >= self._bounds.waited_from

    def end_client_gone(self) -> None:
        """The client is gone, and the application is done."""
        self.mark_client_gone()
        self.end()

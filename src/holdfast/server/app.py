"""The ASGI application: routes, guards, errors, and the OpenAPI description."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from litestar import Litestar, Request, Response
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope

from holdfast._multi_sink import MultiSink
from holdfast.metrics import Exporter, LogExporter, PrometheusExporter
from holdfast.queue.metrics import QueueMetrics
from holdfast.server.auth import Authenticator
from holdfast.server.detection.forward import TelemetryForwarder
from holdfast.server.executor import BoundedExecutor
from holdfast.server.metrics import AnsweredRequest, ReceivedTelemetry, ServerMetrics, TakeOver
from holdfast.server.problems import build_problem_response
from holdfast.server.queues import QueueMonitor
from holdfast.server.routes.alarms import alarm_history, explain_alarm, list_alarms
from holdfast.server.routes.alerts import acknowledge_alert, list_alerts, show_alert, snooze_alert
from holdfast.server.routes.credentials import create_credential, list_credentials, revoke_credential, whoami
from holdfast.server.routes.dead_letters import dead_letters, redrive
from holdfast.server.routes.deploys import begin_deploy, end_deploy, list_deploys
from holdfast.server.routes.description import OPENAPI_CONFIG, description
from holdfast.server.routes.evacuations import (
    evacuate,
    list_evacuations,
    plan_evacuation,
    restore_evacuation,
    resume_evacuation,
    show_evacuation,
)
from holdfast.server.routes.health import DatabaseProbe, health, health_without_body, ready, ready_without_body
from holdfast.server.routes.limits import clear_limits, queue_policy, set_limits, set_policy, tenant_limits
from holdfast.server.routes.messages import message_status, send_message, send_messages
from holdfast.server.routes.metrics import ScrapeCache, metrics
from holdfast.server.routes.page import events, explain_verdict, overview, page, page_without_body, verdicts
from holdfast.server.routes.queues import list_queues, queue_state, sweep, tenant_usage
from holdfast.server.routes.status import build_status_router, change_workload, change_zone, history
from holdfast.server.routes.telemetry import ingest, series
from holdfast.server.state import ServerState, Services
from holdfast.status.metrics import observe_zones

MAX_REQUEST_BYTES = 1 << 20
"""Maximum size of a request body: far above any valid request, and small enough to be harmless."""


async def _answer_options(request: Request[Any, Any, Any]) -> Response[None] | None:
    """Answer OPTIONS with all methods of the path; Litestar's own answer has only the first.

    Asynchronous, because every request passes through here: a plain function would need a thread, and all threads may
    be waiting for an unavailable database.
    """
    if request.method != "OPTIONS":
        return None
    asked = request.scope["path_template"]
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, HTTPRoute) and route.path_format == asked
        for method in route.methods
    }
    return Response(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})


def create_app(
    services: Services,
    *,
    allow_anonymous: bool = False,
    allow_anonymous_reads: bool = True,
    exporters: Sequence[Exporter] = (),
) -> Litestar:
    """Return the application for `services`. Its metrics go to `GET /metrics`, the log, and `exporters`."""
    queue_exporter, other_exporter, exporters = PrometheusExporter(), PrometheusExporter(), (LogExporter(), *exporters)
    queue_metrics = QueueMetrics(queue_exporter, *exporters)
    streams = {"events": services.hub, "status": services.status_hub}
    server_metrics = ServerMetrics(other_exporter, *exporters, streams=streams)
    observe_zones(services.status_cache, other_exporter, *exporters)
    server_metrics.observe_detection(services.detection)
    queue_watch = QueueMonitor(services.queues, queue_metrics)

    async def count_answer(message: Message, scope: Scope) -> None:
        if message["type"] == "http.response.start":
            route = scope.get("path_template")
            server_metrics.emit(AnsweredRequest(str(scope.get("method", "GET")), route, message["status"]))

    @asynccontextmanager
    async def run_in_loop(_: Litestar) -> AsyncIterator[None]:
        services.hub.start()
        services.status_hub.start()
        watching = asyncio.create_task(queue_watch.run())
        services.detection.on_polled = lambda result: server_metrics.emit(ReceivedTelemetry(result))
        services.detection.on_takeover = lambda: server_metrics.emit(TakeOver())
        await services.detection.start()
        yield
        await services.detection.close()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        services.hub.close()
        services.status_hub.close()

    return Litestar(
        route_handlers=[
            *(page, page_without_body, overview, verdicts, explain_verdict, events, description),
            *(list_alarms, alarm_history, explain_alarm),
            *(begin_deploy, end_deploy, list_deploys),
            *(list_evacuations, show_evacuation, plan_evacuation, evacuate, resume_evacuation, restore_evacuation),
            *(list_alerts, show_alert, acknowledge_alert, snooze_alert),
            *(health, health_without_body, ready, ready_without_body, metrics),
            *(whoami, list_credentials, create_credential, revoke_credential),
            *(
                ingest,
                series,
                # With allow_anonymous, the guard admits every user of this machine, and nobody else.
                build_status_router(is_open=allow_anonymous_reads and not allow_anonymous),
                history,
                change_zone,
                change_workload,
            ),
            *(send_message, send_messages, message_status),
            *(list_queues, queue_state, tenant_usage, sweep, dead_letters, redrive),
            *(tenant_limits, set_limits, clear_limits, queue_policy, set_policy),
        ],
        state=ServerState(
            {
                "services": services,
                "authenticator": Authenticator(None if allow_anonymous else services.credentials),
                "stopping": False,
                "database_probe": DatabaseProbe(services),
                "change_executor": BoundedExecutor("holdfast-changes"),
                "evacuation_executor": BoundedExecutor("holdfast-evacuations"),
                "scrape_cache": ScrapeCache(services.queues, queue_metrics, queue_exporter, other_exporter),
                "server_metrics": server_metrics,
                "forwarder": TelemetryForwarder(),
                "send_sink": MultiSink(queue_metrics),  # which logs what a sink raises
            }
        ),
        before_request=_answer_options,
        before_send=[count_answer],
        exception_handlers={Exception: build_problem_response},
        lifespan=[run_in_loop],
        request_max_body_size=MAX_REQUEST_BYTES,
        logging_config=None,
        openapi_config=OPENAPI_CONFIG,
    )

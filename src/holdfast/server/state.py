"""The typed state of the application for its routes. Litestar itself does not type the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from litestar.datastructures import State

from holdfast._types import Sink
from holdfast.alerts import AlertStore
from holdfast.config import WorkloadSettings
from holdfast.config.evacuation import EvacuationSettings
from holdfast.engines import Database
from holdfast.evacuate import EvacuationService
from holdfast.queue.events import SendEvent
from holdfast.server.alarms import AlarmReports
from holdfast.server.auth import Authenticator
from holdfast.server.credentials import CredentialStore
from holdfast.server.detection.forward import TelemetryForwarder
from holdfast.server.detection.process import DetectionProcess
from holdfast.server.executor import BoundedExecutor
from holdfast.server.metrics import ServerMetrics
from holdfast.server.push import EventHub
from holdfast.server.queues import Queues
from holdfast.server.status_cache import StatusCache
from holdfast.server.status_log import StatusLog
from holdfast.status.writer import StatusWriter
from holdfast.watch import DeployStore, WatchStore

if TYPE_CHECKING:
    from holdfast.server.routes.health import DatabaseProbe
    from holdfast.server.routes.metrics import ScrapeCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts that the routes use. The caller that creates them opens and closes them."""

    database: Database
    credentials: CredentialStore
    status_cache: StatusCache
    status_log: StatusLog
    status_writer: StatusWriter
    watch_store: WatchStore
    deploys: DeployStore
    detection: DetectionProcess
    evacuations: EvacuationService
    queues: Queues
    workloads: Sequence[WorkloadSettings]
    hub: EventHub
    """All events, for the page."""
    status_hub: EventHub
    """Changes of zone statuses only, for hosts."""
    stores: Mapping[str, Database] = field(default_factory=dict)
    """The open databases by subsystem, for readiness checks."""
    evacuation: EvacuationSettings = field(default_factory=EvacuationSettings)
    alarms: AlarmReports = field(default_factory=AlarmReports)
    alerts: AlertStore | None = None
    """None without an [[alert]] in the settings."""


class ServerState(State):
    """The state of the application."""

    services: Services
    authenticator: Authenticator
    stopping: bool
    database_probe: "DatabaseProbe"
    change_executor: BoundedExecutor
    """Runs changes of zone statuses."""
    evacuation_executor: BoundedExecutor
    """Plans and starts evacuations, which ask AWS."""
    scrape_cache: "ScrapeCache"
    server_metrics: ServerMetrics
    forwarder: TelemetryForwarder
    """Forwards telemetry on standby."""
    send_sink: Sink[SendEvent]

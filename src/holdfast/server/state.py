"""What the routes work on, with types: Litestar knows the state of an application by names alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litestar.datastructures import State

from holdfast.config import WorkloadSettings
from holdfast.engines import Database
from holdfast.server.auth import Authority
from holdfast.server.credentials import CredentialStore
from holdfast.server.executor import BoundedExecutor
from holdfast.server.metrics import ServerMetrics
from holdfast.server.push import Hub
from holdfast.server.queues import Queues
from holdfast.server.status_log import StatusLog
from holdfast.server.statuses import Statuses
from holdfast.status.change import Changes
from holdfast.watch import Watch, WatchStore

if TYPE_CHECKING:
    from holdfast.server.routes.health import Probe
    from holdfast.server.routes.metrics import Scrape


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts behind the routes. Whoever made them opens and closes them."""

    database: Database
    credentials: CredentialStore
    statuses: Statuses
    status_log: StatusLog
    changes: Changes
    watch_store: WatchStore
    watch: Watch
    queues: Queues
    workloads: Sequence[WorkloadSettings]
    hub: Hub
    """Everything that happens, for the page."""
    status_hub: Hub
    """Changes of zone statuses alone, for every host there is."""


class ServerState(State):
    """The state of the application, as routes take it."""

    services: Services
    authority: Authority
    stopping: bool
    probe: "Probe"
    changing: BoundedExecutor
    """Runs changes of zone statuses."""
    scrape: "Scrape"
    server_metrics: ServerMetrics

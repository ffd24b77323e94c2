"""Run the server: bind, serve, stop."""

import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType

import msgspec
import uvicorn

import holdfast
from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import SystemClock
from holdfast._errors import EngineUnavailable, NotAllowed
from holdfast._listen import get_base_url, listen
from holdfast._process import ProcessIdentity, encode_identity
from holdfast._secret import check_url
from holdfast.alerts import AlertStore
from holdfast.alerts import store as alert_store
from holdfast.compose import (
    Databases,
    has_queue_store,
    open_alerter,
    open_publisher,
    open_queue_backend,
    open_status_store,
    prepare_data_directory,
    seed_queues,
)
from holdfast.compose_evacuation import open_evacuator
from holdfast.config import ServerSettings, Settings
from holdfast.engines import Database
from holdfast.evacuate import EvacuationMode, EvacuationService
from holdfast.metrics import ExportContext, open_exporters
from holdfast.queue.backend import Backend
from holdfast.server import status_log
from holdfast.server.access import log_access
from holdfast.server.alarms import AlarmReports
from holdfast.server.app import create_app
from holdfast.server.connections import Connections
from holdfast.server.credentials import SUBSYSTEM, CredentialStore
from holdfast.server.detection.lease import DetectionLease
from holdfast.server.detection.process import DetectionProcess
from holdfast.server.metrics import ServerMetrics
from holdfast.server.protocol import HttpProtocol, WebSocketProtocol
from holdfast.server.push import EventHub
from holdfast.server.queues import Queues
from holdfast.server.state import Services
from holdfast.server.status_cache import StatusCache
from holdfast.server.status_log import StatusLog
from holdfast.server.status_publisher import StatusLogPublisher
from holdfast.server.streams import REVOCATION_SECONDS, end_revoked_streams
from holdfast.status.wire import StatusChange
from holdfast.status.writer import StatusWriter
from holdfast.telemetry.query import SeriesQuery
from holdfast.watch import DeployStore, WatchStore, store
from holdfast.watch.lease import LeaseStore

logger = logging.getLogger("holdfast.server")

BACKLOG = 4096
"""Connections that may wait to be accepted: Linux's default maximum, for thousands that reconnect at the same time."""
OWN_FILES = 256
"""Open files of the server itself: at most 40 threads read a SQLite database at a time, with three files each."""
MIN_CONNECTIONS = 20
"""Allowed even if the limit of open files is so low that the server may fail to open its own files."""
_DEAD_PEER_SECONDS = 30
"""A peer that acknowledges nothing for this long counts as disconnected."""
# Connections inherit these options from their listener. Linux and macOS do not have the same ones.
_KEEPALIVE_OPTIONS = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in {
        "TCP_KEEPIDLE": _DEAD_PEER_SECONDS // 2,
        "TCP_KEEPINTVL": _DEAD_PEER_SECONDS // 6,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": _DEAD_PEER_SECONDS * 1000,
    }.items()
    if hasattr(socket, name)
]
_MAX_WEBSOCKET_BYTES = 1024
"""Maximum size of a message from a WebSocket client; clients have nothing to send."""
_CLOSE_RESERVE = 0.5
"""Seconds of `shutdown_timeout` that are reserved for closing the database after the last request."""
_EXIT_RESERVE = 0.2
"""Seconds before the end of `shutdown_timeout` when the process exits anyway; uvicorn takes 0.1 s to see a signal."""


def serve(settings: Settings, announce: Callable[[str, str | None], None]) -> None:
    """Run until SIGTERM or SIGINT, then stop within `server.shutdown_timeout` seconds, even if streams are open.

    `announce` is called once the server accepts requests, with its address and, at the first start, the token of a new
    operator; otherwise the token is None. Raise HoldfastError if the server cannot start.
    """
    # A blocked database call cannot be interrupted, so the process exits without it. It was not acknowledged.
    exit_timer = threading.Timer(max(0.1, settings.server.shutdown_timeout - _EXIT_RESERVE), _force_exit)
    exit_timer.daemon = True
    with ExitStack() as stack:
        stack.callback(exit_timer.cancel)
        file_limit = _raise_file_limit()
        prepare_data_directory(settings)
        listener = stack.enter_context(bind(settings.server))  # first: a server that cannot start leaves no store
        databases = stack.enter_context(Databases(settings))
        credentials = CredentialStore(databases.database(SUBSYSTEM), SystemClock())
        is_local = is_loopback(settings.server.host)
        if not is_local:
            require_credentials(settings.server, credentials)
        max_connections = get_max_connections(settings, file_limit)
        address = get_base_url(listener)
        services = _create_services(
            settings, databases, stack, credentials=credentials, max_connections=max_connections, address=address
        )
        stack.callback(services.queues.close)
        if settings.queue:
            services.queues.try_to_open()
        _start_loops(settings, databases, services, stack)
        exporters = stack.enter_context(
            open_exporters(settings.metrics.export, ExportContext(namespace="holdfast/server"))
        )
        app = create_app(
            services,
            allow_anonymous=settings.server.allow_anonymous,
            allow_anonymous_reads=settings.status.allow_anonymous_reads,
            exporters=exporters,
        )

        def stopping() -> None:
            app.state.stopping = True
            services.hub.close_threadsafe()
            services.status_hub.close_threadsafe()

        announce_errors: list[OSError] = []

        def started() -> None:
            # The token is shown only once: create it as late as possible, and revoke it if it cannot be shown.
            token = credentials.create_first_operator() if is_local and not settings.server.allow_anonymous else None
            try:
                announce(address, token)
            except OSError as error:
                if token is not None:
                    credentials.revoke(token)
                announce_errors.append(error)
                server.should_exit = True

        connections = _create_connections(max_connections, app.state.server_metrics)
        server = _Server(
            uvicorn.Config(
                log_access(app),
                http=HttpProtocol,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # any process on this machine could claim to be another client
                ws=WebSocketProtocol,
                ws_max_size=_MAX_WEBSOCKET_BYTES,
                ws_per_message_deflate=False,  # would compress each event again for every listener
                backlog=BACKLOG,
                timeout_graceful_shutdown=max(0.1, settings.server.shutdown_timeout - _CLOSE_RESERVE),  # type: ignore[arg-type]
            ),
            connections,
            on_started=started,
            on_stopping=stopping,
            on_shutdown=exit_timer.start,
        )
        logger.info(
            "starting",
            extra={"address": address, "version": holdfast.__version__, "max_connections": connections.max_connections},
        )
        server.run(sockets=[listener])
        if announce_errors:
            raise EngineUnavailable(
                f"cannot write the address of the server to standard output: {announce_errors[0]}"
            ) from announce_errors[0]
        logger.info("stopped")


def _create_services(
    settings: Settings,
    databases: Databases,
    stack: ExitStack,
    *,
    credentials: CredentialStore,
    max_connections: int,
    address: str,
) -> Services:
    clock, hub, status_hub = SystemClock(), EventHub(), EventHub(max_anonymous=max_connections // 2)
    log = StatusLog(databases.database(status_log.SUBSYSTEM), publishes=settings.status.sns_topic is not None)

    def publish_change(change: StatusChange) -> None:
        hub.publish_threadsafe("status", msgspec.json.encode(change.status))
        status_hub.publish_threadsafe("status", msgspec.json.encode(change))

    status_store = open_status_store(settings, databases)
    cache = StatusCache(
        status_store, log, clock=clock, refresh_interval=settings.status.refresh_interval, on_change=publish_change
    )
    status_writer = StatusWriter(cache, clock, unpublished_store=status_store)
    watch_database = databases.database(store.SUBSYSTEM)
    evacuations = EvacuationService(
        stack.enter_context(open_evacuator(settings, databases, writer=status_writer)),
        clock,
        mode=EvacuationMode(settings.evacuation.mode),
        name=f"server {socket.gethostname()}",
    )
    return Services(
        stores=databases.opened,
        database=databases.database(SUBSYSTEM),
        credentials=credentials,
        status_cache=cache,
        status_log=log,
        status_writer=status_writer,
        watch_store=WatchStore(watch_database),
        deploys=DeployStore(watch_database, clock),
        detection=DetectionProcess(
            settings,
            evacuations,
            hub.publish_threadsafe,
            clock,
            lease=_create_lease(settings.server, watch_database, address) if settings.workload else None,
            answer_stored=lambda query: _answer_stored(settings, databases, query),
        ),
        queues=_create_queues(settings, databases),
        workloads=settings.workload,
        hub=hub,
        status_hub=status_hub,
        evacuation=settings.evacuation,
        evacuations=evacuations,
        alarms=AlarmReports(settings, databases.database),
        alerts=AlertStore(databases.database(alert_store.SUBSYSTEM)) if settings.alert else None,
    )


def _create_lease(settings: ServerSettings, database: Database, address: str) -> DetectionLease:
    """Return the lease that decides whether this server evaluates, or another one on the same database."""
    identity = ProcessIdentity.of_this_process()
    lease_store = LeaseStore(
        database, encode_identity(identity), choose_advertised_address(settings, address), settings.lease_seconds
    )
    return DetectionLease(lease_store, identity, settings.lease_seconds)


def choose_advertised_address(settings: ServerSettings, address: str) -> str:
    """Return the URL at which other servers reach this one, which listens at the URL `address`."""
    if settings.advertise is not None:
        return settings.advertise.rstrip("/")
    host, _, port = address.removeprefix("http://").rpartition(":")
    return f"http://{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else address  # noqa: S104 - compared


def _answer_stored(settings: Settings, databases: Databases, query: SeriesQuery) -> bytes:
    """Answer a query from the measurements that the evaluating server has saved."""
    from holdfast.telemetry.history import SUBSYSTEM as TELEMETRY  # imports NumPy
    from holdfast.telemetry.history import answer_from

    database = databases.database(TELEMETRY)
    return msgspec.json.encode(answer_from(database, query, settings.telemetry.bin_seconds, databases.clock.wall()))


def _start_loops(settings: Settings, databases: Databases, services: Services, stack: ExitStack) -> None:
    """Start the background loops of the server. The stack stops them."""
    services.status_cache.start()
    stack.callback(services.status_cache.close)
    stack.enter_context(services.evacuations)
    if settings.status.sns_topic is not None:
        publisher = StatusLogPublisher(services.status_log, open_publisher(databases, settings.status.sns_topic))
        publisher.start()
        stack.callback(publisher.close)
    if settings.alert:
        stack.enter_context(open_alerter(settings, databases, services.watch_store))
    if settings.heartbeat.url is not None:
        check_url(settings.heartbeat.url.reveal())  # now, and not again and again in the detection process
    if not settings.server.allow_anonymous:
        revocations = BackgroundLoop(
            "holdfast-revocations",
            lambda: end_revoked_streams(services.credentials, (services.hub, services.status_hub)),
            action="check the credentials of open streams",
            logger=logger,
            backoff=constant_backoff(REVOCATION_SECONDS),
        )
        revocations.start()
        stack.callback(revocations.stop, timeout=None)


def _create_connections(max_connections: int, metrics: ServerMetrics) -> Connections:
    connections = Connections(max_connections, metrics.emit, SystemClock())
    metrics.observe_connections(connections)
    return connections


def _create_queues(settings: Settings, databases: Databases) -> Queues:
    """Return the queues. Their store is imported and opened on first use."""

    def open_backend() -> Backend:
        backend = open_queue_backend(settings, databases)
        seed_queues(settings, backend)
        return backend

    return Queues(open_backend, exists=lambda: has_queue_store(settings, databases))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address. All addresses of a name must be loopback."""
    try:
        found = {socket_address[0] for *_, socket_address in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):  # no such name, or not a valid name
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in found)


def require_credentials(settings: ServerSettings, credentials: CredentialStore) -> None:
    """Raise NotAllowed if a server beyond loopback would require no credentials, or has no operator yet."""
    if settings.allow_anonymous:
        raise NotAllowed(
            f"server.allow_anonymous with server.host {settings.host}: without credentials only loopback is allowed; "
            "set server.allow_anonymous = false, or server.host = '127.0.0.1'"
        )
    if not credentials.has_operator():
        raise NotAllowed(
            f"server.host {settings.host} can be reached from other machines, but there is no operator yet: "
            "first run `holdfast credential create --role operator` with the same --settings or --data-directory"
        )


def bind(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens on the configured address."""
    listener = listen(settings.host, settings.port, section="server", backlog=BACKLOG)
    for level, option, value in _KEEPALIVE_OPTIONS:
        listener.setsockopt(level, option, value)
    return listener


def _raise_file_limit() -> int:
    """Raise the limit of open files to the maximum, and return it: the usual limit is 1024, less than the streams."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the server can start without it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def get_max_connections(settings: Settings, file_limit: int) -> int:
    """Return the maximum number of connections: by the settings, or fewer if the limit of open files is lower."""
    available = file_limit - OWN_FILES - settings.database.max_connections
    return max(MIN_CONNECTIONS, min(settings.server.max_connections, available))


def _force_exit() -> None:
    logger.warning("shutdown timed out: unfinished requests were abandoned")
    logging.shutdown()
    os._exit(0)


class _Server(uvicorn.Server):
    """A uvicorn server that ends open streams when it is signalled to stop; uvicorn would wait for its timeout."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        on_started: Callable[[], None],
        on_stopping: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.server_state = connections
        self._on_started = on_started
        self._on_stopping = on_stopping  # runs in a signal handler, so it must not take a lock
        self._on_shutdown = on_shutdown

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_shutdown()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # a requested stop is a success: do not raise the signal again
        self._on_stopping()
        if sig == signal.SIGINT and self.force_exit:
            logger.warning("stopping immediately after a second interrupt")

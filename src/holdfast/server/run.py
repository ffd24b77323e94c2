"""Running the server: bind, serve, stop."""

import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

import uvicorn

import holdfast
from holdfast._clock import SystemClock
from holdfast._errors import EngineUnavailable, NotAllowed
from holdfast.compose import Databases, only_server
from holdfast.config import ServerSettings, Settings
from holdfast.evacuate import Evacuator
from holdfast.server import verdict_log
from holdfast.server.access import log_access
from holdfast.server.app import Services, create_app
from holdfast.server.credentials import SUBSYSTEM, CredentialStore
from holdfast.server.push import Hub
from holdfast.server.verdict_log import VerdictLog
from holdfast.server.watch import Watch
from holdfast.status import SqlStatusStore
from holdfast.status.stores import sql as status

logger = logging.getLogger("holdfast.server")

_RESERVE = 0.5
"""Seconds of `stop_within` that are kept back for closing the database, and the process, after the last request."""
_LAST_RESERVE = 0.2
"""Seconds of it that are left when closing is given up; uvicorn takes up to 0.1 s to notice a signal."""


def serve(settings: Settings, announce: Callable[[str, str | None], None]) -> None:
    """Run until SIGTERM or SIGINT, then stop within `server.stop_within` seconds, open streams or not.

    `announce` is called once, when requests are taken, with the address and, at the very first start, the token of a
    new operator. Raises HoldfastError when the server cannot start.
    """
    # Work that waits for a database cannot be interrupted, only left. Nothing of it was acknowledged to anybody.
    overdue = threading.Timer(max(0.1, settings.server.stop_within - _LAST_RESERVE), _leave)
    overdue.daemon = True
    with ExitStack() as stack:
        stack.callback(overdue.cancel)
        stack.enter_context(only_server(settings))
        databases = stack.enter_context(Databases(settings))
        credentials = CredentialStore(databases.of(SUBSYSTEM), SystemClock())
        is_local = is_loopback(settings.server.host)
        if not is_local:
            require_credentials(settings.server, credentials)
        listener = stack.enter_context(bind(settings.server))
        services = _services(settings, databases, credentials)
        services.watch.start()
        stack.callback(services.watch.close)
        app = create_app(services, is_open=settings.server.open)

        def stopping() -> None:
            app.state.stopping = True
            services.hub.close_threadsafe()

        address = address_of(listener)
        untold: list[OSError] = []

        def started() -> None:
            # Only now, because it is shown this once; and not kept if it could not be shown.
            token = credentials.create_first() if is_local and not settings.server.open else None
            try:
                announce(address, token)
            except OSError as error:
                if token is not None:
                    credentials.revoke(token)
                untold.append(error)
                server.should_exit = True

        server = _Server(
            uvicorn.Config(
                log_access(app),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # anybody on this machine could name another client
                ws="none",
                timeout_graceful_shutdown=max(0.1, settings.server.stop_within - _RESERVE),  # type: ignore[arg-type]
            ),
            on_started=started,
            on_stopping=stopping,
            on_shutdown=overdue.start,
        )
        logger.info("starting", extra={"address": address, "version": holdfast.__version__})
        server.run(sockets=[listener])
        if untold:
            raise EngineUnavailable(f"nobody could be told that the server had started: {untold[0]}") from untold[0]
        logger.info("stopped")


def _services(settings: Settings, databases: Databases, credentials: CredentialStore) -> Services:
    clock, hub = SystemClock(), Hub()
    statuses = SqlStatusStore(databases.of(status.SUBSYSTEM))
    verdicts = VerdictLog(databases.of(verdict_log.SUBSYSTEM))
    watch = Watch(
        settings.workload,
        bin_seconds=settings.telemetry.bin_seconds,
        evacuator=Evacuator(statuses, clock),
        verdicts=verdicts,
        hub=hub,
        clock=clock,
    )
    return Services(
        database=databases.of(SUBSYSTEM),
        credentials=credentials,
        statuses=statuses,
        verdicts=verdicts,
        watch=watch,
        workloads=settings.workload,
        hub=hub,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name counts when everything it stands for does."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):  # no such name, or nothing that could be one
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in found)


def require_credentials(settings: ServerSettings, credentials: CredentialStore) -> None:
    """Refuse to be reachable from elsewhere for everybody, or with nobody who could be let in."""
    if settings.open:
        raise NotAllowed(
            f"server.open with server.host {settings.host}: without credentials only loopback is allowed; "
            "set server.open = false, or server.host = '127.0.0.1'"
        )
    if not credentials.has_operator():
        raise NotAllowed(
            f"server.host {settings.host} can be reached from other machines, and there is no operator yet: "
            "first run `holdfast credential create --role operator`, with the same --settings or --data-directory"
        )


def bind(settings: ServerSettings) -> socket.socket:
    """A socket that listens at the configured address."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except (OSError, ValueError) as error:
        # `create_server` appends the address, which is named already.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while ")[0]
        raise EngineUnavailable(
            f"cannot listen on {settings.host!r} port {settings.port}: {reason}; "
            "set another server.host (--host) or server.port (--port, 0 for any free one)"
        ) from error


def address_of(listener: socket.socket) -> str:
    """The base URL at which the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _leave() -> None:
    logger.warning("stopped over unfinished work")
    logging.shutdown()
    os._exit(0)


class _Server(uvicorn.Server):
    """Ends open streams when a signal asks it to stop: uvicorn by itself would wait for them until it gives up."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        on_stopping: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping  # in a signal handler: nothing that takes a lock
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
        self._captured_signals.clear()  # a stop that was asked for is a good end: no signal is raised again
        self._on_stopping()
        if sig == signal.SIGINT and self.force_exit:
            logger.warning("stopping at once")

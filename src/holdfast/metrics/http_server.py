"""Serve a process's metrics over HTTP: only `GET /metrics`."""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from holdfast._errors import EngineUnavailable
from holdfast._forks import register_after_fork
from holdfast._listen import get_base_url
from holdfast.metrics.exporters.prometheus import CONTENT_TYPE

logger = logging.getLogger("holdfast.metrics")

PATH = "/metrics"
TIMEOUT_SECONDS = 10.0
"""Timeout of a response: Prometheus' default timeout of a scrape."""
MAX_CONCURRENT_REQUESTS = 16
"""Each request has a thread; hanging clients must not take threads that handlers need."""
STOP_POLL_SECONDS = 0.1
"""How often the server thread checks whether to stop."""


class MetricsServer(ThreadingHTTPServer):
    """An HTTP server that answers with the text of `render`, from its own threads, while it is open.

    Listens from construction on; raises EngineUnavailable if it cannot. Open or hanging client connections do not delay
    closing. A forked child does not serve requests.
    """

    daemon_threads = True  # closing does not wait for them
    request_queue_size = 16

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        self.render = render
        self._permits = threading.BoundedSemaphore(MAX_CONCURRENT_REQUESTS)
        try:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), _MetricsRequestHandler)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise EngineUnavailable(
                f"cannot serve metrics on {host!r} port {port}: {reason}; "
                "choose another port or host; each of several processes takes the next port"
            ) from error
        self.socket.setblocking(False)  # do not block in accept() if the client closed the connection first
        self._thread = threading.Thread(
            target=self.serve_forever, args=(STOP_POLL_SECONDS,), name="holdfast-metrics", daemon=True
        )
        register_after_fork(self)

    @property
    def address(self) -> str:
        """URL of the metrics."""
        return f"{get_base_url(self.socket)}{PATH}"

    def reset_after_fork(self) -> None:
        """Close the inherited socket in a forked child, so that a restarted parent can bind the port."""
        self.socket.close()

    def __enter__(self) -> Self:
        self._thread.start()
        logger.info("serving metrics at %s", self.address)
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without resolving the host name, which HTTPServer would look up in DNS."""
        TCPServer.server_bind(self)

    def verify_request(self, *_: Any) -> bool:
        """Return True if fewer than MAX_CONCURRENT_REQUESTS are being served; otherwise the connection is closed."""
        return self._permits.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the process cannot start another thread
            self._permits.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._permits.release()

    def handle_error(self, *_: Any) -> None:
        """Ignore client disconnects and timeouts."""
        logger.debug("a scrape was not answered: %s", sys.exception())


class _MetricsRequestHandler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_SECONDS
    server: HTTPServer

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, MetricsServer)
        if self.path.partition("?")[0] == PATH:
            self._answer(HTTPStatus.OK, CONTENT_TYPE, server.render())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"not found: the only path is {PATH}\n")

    def version_string(self) -> str:
        return "holdfast"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - http.server's own name
        logger.debug(format, *arguments)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

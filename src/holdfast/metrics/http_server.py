"""Serve what a process has counted over HTTP: `GET /metrics`, and nothing else."""

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
"""Seconds for which an answer waits for whoever asked: as long as Prometheus gives a scrape, by default."""
MAX_CONCURRENT_REQUESTS = 16
"""Requests at a time. Each has a thread; those who ask and then hang must not take what handlers need."""
STOP_POLL_SECONDS = 0.1
"""Seconds between looks whether to stop."""


class MetricsServer(ThreadingHTTPServer):
    """Answers with what `render` writes, from threads of its own, while it is open.

    Listens from when it is made: raises EngineUnavailable if that cannot be. Nobody who asks, or hangs while asking,
    keeps it from being closed. A forked child has no part in it.
    """

    daemon_threads = True  # and so they are not waited for
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
                "give another port or host; of several processes, each takes the next port"
            ) from error
        self.socket.setblocking(False)  # who has left again before he was accepted is not waited for
        self._thread = threading.Thread(
            target=self.serve_forever, args=(STOP_POLL_SECONDS,), name="holdfast-metrics", daemon=True
        )
        register_after_fork(self)

    @property
    def address(self) -> str:
        """Where it is asked."""
        return f"{get_base_url(self.socket)}{PATH}"

    def reset_after_fork(self) -> None:
        """In a forked child: leave the port to the parent, or who comes in its place would find it in use."""
        self.socket.close()

    def __enter__(self) -> Self:
        self._thread.start()
        logger.info("metrics are at %s", self.address)
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Without the name of the host, for which HTTPServer would ask the DNS."""
        TCPServer.server_bind(self)

    def verify_request(self, *_: Any) -> bool:
        """Whether there is a place for one more; else the connection is closed."""
        return self._permits.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there are as many threads as there may be
            self._permits.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._permits.release()

    def handle_error(self, *_: Any) -> None:
        """Who asked is gone, or slow: no trouble of the worker's."""
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
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"there is only {PATH}\n")

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

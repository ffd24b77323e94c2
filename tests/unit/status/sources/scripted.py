"""A server that says what a test tells it to, over real sockets."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Scripted:
    """Answers with `answer(path, headers) -> (status, headers, body)`; a body that is callable is given the socket."""

    def __init__(self, answer: Callable[[str, dict[str, str]], tuple[int, dict[str, str], Any]]) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                scripted.asked.append((self.path, headers))
                status, extra, body = answer(self.path, headers)
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                if callable(body):
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.flush()
                    with suppress(OSError):
                        body(self.connection)
                    self.close_connection = True
                    return
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def hang(connection: socket.socket) -> None:
    """Say nothing, until the other side gives up."""
    connection.settimeout(30.0)
    connection.recv(1)

"""A metadata service on loopback that answers as a test says, or never."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any, NamedTuple, Self, TypeAlias

Respond: TypeAlias = Callable[[BaseHTTPRequestHandler], None]

IMDS_ZONE = "/latest/meta-data/placement/availability-zone-id"
IMDS_TOKEN = "/latest/api/token"


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]


def reply(body: str | bytes, status: int = 200, **headers: str) -> Respond:
    """Return a response; of a header's name, `_` stands for `-`."""
    content = body.encode() if isinstance(body, str) else body

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return respond


class MetadataServer:
    """Answers `METHOD /path` with the next of its responses, and with the last one ever after; else with 404."""

    def __init__(self, tls: SSLContext | None = None) -> None:
        self.responses: dict[str, list[Respond]] = {}
        self.asked: list[Asked] = []
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def on(self, request: str, *responses: Respond) -> Self:
        self.responses[request] = list(responses)
        return self

    def on_instance(self, *zones: Respond) -> Self:
        """Answer as EC2's instance metadata does."""
        return self.on(f"PUT {IMDS_TOKEN}", reply("a-token")).on(f"GET {IMDS_ZONE}", *zones)

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """Never answer."""
        self._released.wait()
        handler.close_connection = True

    def drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one byte at a time, and never come to an end."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not self._released.wait(0.01):
            try:
                handler.wfile.write(b"x")
            except OSError:
                break
        handler.close_connection = True

    def paths(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.asked]

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append(Asked(self.command, self.path, headers))
                waiting = server.responses.get(f"{self.command} {self.path}")
                if not waiting:
                    reply("not here", 404)(self)
                    return
                (waiting.pop(0) if len(waiting) > 1 else waiting[0])(self)

            do_PUT = do_GET  # noqa: N815 - called by this name

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

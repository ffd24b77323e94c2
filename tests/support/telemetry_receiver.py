"""A server that takes telemetry and answers as it is told, in place of Holdfast's own."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class TelemetryReceiver(ThreadingHTTPServer):
    """Keeps the lines that it gets. Refuses those that contain `bad`; `old` ones are late, `ancient` ones too late."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 202
        self.lines: list[bytes] = []
        self.tokens: set[str | None] = set()
        self.arrived = threading.Condition()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, count: int) -> None:
        """Wait until `count` lines have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.lines) >= count, timeout=60), self.lines


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TelemetryReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = body.split(b"\n")
        refused = sum(b"bad" in line for line in lines)
        late, too_late = (sum(word in line for line in lines) for word in (b"old", b"ancient"))
        reason = "a bad line" if refused else None
        answer = {"accepted": len(lines) - refused, "refused": refused, "reason": reason, "late": late}
        answer["too_late"] = too_late
        content = json.dumps(answer).encode()
        if self.server.status < 300:
            with self.server.arrived:
                self.server.tokens.add(self.headers.get("Authorization"))
                self.server.lines += lines
                self.server.arrived.notify_all()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@contextmanager
def receiving() -> Iterator[TelemetryReceiver]:
    """Start a receiver, and stop it at the end."""
    receiver = TelemetryReceiver()
    thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()

"""One instance of the shop: an HTTP service with two operations that reports every request in embedded metric format.

`POST /fault` starts a gray failure: some requests fail, all are slower, and `/health` still answers 200.
"""

import argparse
import random
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from holdfast._types import Operation, Zone
from holdfast.demo.process import announce, exit_with_parent
from holdfast.demo.records import InjectedFault, RecordFile
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.sinks.server import ServerSink

WORKLOAD = "shop"
NAMESPACE = f"{WORKLOAD}/frontend"
OPERATIONS = {"/": Operation("Home", "Index"), "/products": Operation("Products", "List")}
USUAL_SECONDS = (0.005, 0.025)
"""Range of the duration of a request without a fault."""


class FaultRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /fault`: the share of requests that fail, and the seconds that all of them take longer."""

    errors: float
    delay: float


class ShopServer(ThreadingHTTPServer):
    """The HTTP server of one instance."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, region: str, zone: Zone, instance: str, sink: ServerSink, record: RecordFile) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.region = region
        self.zone = zone
        self.instance = instance
        self.sink = sink
        self.record = record
        self.randomness = random.Random(instance)
        self.fault: InjectedFault | None = None

    def begin_fault(self, errors: float, delay: float) -> None:
        """Fail a share of the requests, and slow down all of them, from now on. Record the fault."""
        self.fault = InjectedFault(at=time.time(), instance=self.instance, zone=self.zone, errors=errors, delay=delay)
        self.record.write(self.fault)

    def work(self) -> int:
        """Take the time of one request. Return its status."""
        fault = self.fault
        time.sleep(self.randomness.uniform(*USUAL_SECONDS) + (fault.delay if fault else 0.0))
        return 500 if fault and self.randomness.random() < fault.errors else 200

    def report(self, path: str, at: float, status: int, seconds: float) -> None:
        """Emit the telemetry of one request."""
        request = RequestRecord(
            namespace=NAMESPACE,
            operation=OPERATIONS[path],
            region=self.region,
            zone=self.zone,
            instance=self.instance,
            at=at,
            status=status,
            seconds=seconds,
            path=path,
            host=f"{self.zone}.shop.internal",
            source_ip="127.0.0.1",
            trace=f"{self.randomness.getrandbits(128):032x}",
        )
        self.sink.emit(encode_emf(request))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ShopServer

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, b'{"status": "ok"}')
            return
        if self.path not in OPERATIONS:
            self._answer(404, b'{"status": "not found"}')
            return
        start = time.monotonic()
        status = self.server.work()
        self._answer(status, b'{"items": []}' if status == 200 else b'{"error": "internal"}')
        # With the time of its end: a slow request would be too late for the bin in which it began.
        self.server.report(self.path, time.time(), status, time.monotonic() - start)

    def do_POST(self) -> None:
        fault = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])), type=FaultRequest)
        self.server.begin_fault(fault.errors, fault.delay)
        self._answer(204, b"")

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - http.server's own name
        """Do not log requests as text: they are reported as telemetry."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Run one instance until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--server", "--region", "--zone", "--instance"):
        parser.add_argument(name, required=True)
    parser.add_argument("--record", type=Path, required=True)
    arguments = parser.parse_args()
    exit_with_parent()
    sink = ServerSink(arguments.server)
    record = RecordFile(arguments.record)
    shop = ShopServer(arguments.region, Zone(arguments.zone), arguments.instance, sink, record)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=shop.shutdown).start())
    with sink:
        announce(address=f"http://127.0.0.1:{shop.server_port}")
        shop.serve_forever(poll_interval=0.1)
    shop.server_close()
    record.close()


if __name__ == "__main__":
    main()

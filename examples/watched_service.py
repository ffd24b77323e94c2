"""A service that reports every request to Holdfast: `python watched_service.py use1-az1 8080`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from wsgiref.simple_server import make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from holdfast import Operation, Zone
from holdfast.middleware import MiddlewareOptions, WsgiMiddleware
from holdfast.telemetry.sinks.lines import EmfSink
from holdfast.telemetry.sinks.server import ServerSink


def home(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


if __name__ == "__main__":
    zone, port = sys.argv[1:]
    token = Path("token").read_text(encoding="utf-8").strip()
    options = MiddlewareOptions(workload="shop", zone=Zone(zone), instance=f"i-{zone}-1")
    with ServerSink("http://127.0.0.1:8470", token=token) as lines:
        sink = EmfSink(lines, component="frontend", region="us-east-1")
        watched = WsgiMiddleware(home, options, sink=sink, operation=lambda _: Operation("Home", "Index"))
        with make_server("127.0.0.1", int(port), watched) as server:
            print(f"zone {zone} on http://127.0.0.1:{port}", flush=True)
            server.serve_forever()

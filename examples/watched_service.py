"""A service that reports every request to Holdfast: `python watched_service.py use1-az1 8080`."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.sinks.server import ServerSink


class Watched:
    """A WSGI middleware that reports every request."""

    def __init__(self, application: WSGIApplication, sink: ServerSink, zone: Zone, instance: str) -> None:
        self._application = application
        self._sink = sink
        self._zone = zone
        self._instance = instance

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start, status = time.monotonic(), 500  # an application that raises has failed

        def answer(line: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            nonlocal status
            status = int(line[:3])
            return start_response(line, headers, *error)

        try:
            return self._application(environ, answer)
        finally:
            request = RequestRecord(
                namespace="shop/frontend",
                operation=Operation("Home", environ["REQUEST_METHOD"]),
                region="us-east-1",
                zone=self._zone,
                instance=self._instance,
                at=time.time(),  # the end of the request: with its start, a slow request would be too late to count
                status=status,
                seconds=time.monotonic() - start,
                path=environ["PATH_INFO"],
            )
            self._sink.emit(encode_emf(request))


def home(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


if __name__ == "__main__":
    zone, port = sys.argv[1:]
    token = Path("token").read_text(encoding="utf-8").strip()
    with ServerSink("http://127.0.0.1:8470", token=token) as sink:
        application = Watched(home, sink, Zone(zone), instance=f"i-{zone}-1")
        with make_server("127.0.0.1", int(port), application) as server:
            print(f"zone {zone} on http://127.0.0.1:{port}", flush=True)
            server.serve_forever()

"""A Flask service with deadlines, telemetry and a health check by zone: `python flask_shop.py 8080`."""

import sys

from flask import Flask

from holdfast.calls import remaining
from holdfast.engines.aws import find_zone
from holdfast.middleware import MiddlewareOptions, WsgiMiddleware
from holdfast.status import ZoneTracker
from holdfast.telemetry.sinks.lines import EmfSink
from holdfast.telemetry.sinks.server import ServerSink

SERVER = "http://127.0.0.1:8470"
app = Flask("shop")


@app.get("/items/<name>")
def show(name: str) -> dict[str, object]:
    return {"name": name, "seconds_left": remaining()}


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


if __name__ == "__main__":
    service = MiddlewareOptions(workload="shop", zone=find_zone())
    with ServerSink(SERVER) as lines, ZoneTracker(SERVER) as tracker:
        sink = EmfSink(lines, component="frontend", region="us-east-1")
        app.wsgi_app = WsgiMiddleware(app.wsgi_app, service, sink=sink, zones=tracker)  # type: ignore[method-assign]
        app.run(port=int(sys.argv[1]))  # for a trial; in production, use a server such as gunicorn

"""A server of simulated AWS accounts and regions. boto3 finds it by `endpoint_url`.

The last twelve characters of an access key are the number of its account, as in `AKIA123456789012`. So one address
serves several accounts.

    python -m holdfast.simulate.aws.control_plane --zones use1-az1,use1-az2 --add application:shop --add group:shop:6

serves one account, prints its address as one line of JSON, and ends after SIGTERM, or when standard input is closed.
"""

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast._clock import SystemClock
from holdfast._types import Zone
from holdfast.simulate.aws.group_instances import LAUNCH_SECONDS
from holdfast.simulate.aws.protocols import Refusal, Reply, Request, Service, ServiceError, open_service
from holdfast.simulate.aws.region import ACCOUNT, ARNS, REGION, SimulatedRegion

_SCOPE = re.compile(r"Credential=[^/]*?(\d{0,12})/\d+/([^/]+)/([^/]+)/aws4_request")
_SERVICES = {
    "elasticloadbalancing": "elbv2",
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    "tagging": "resourcegroupstaggingapi",
}
"""boto3's names of services that sign their requests with another name."""


class ReplyLost(Exception):
    """Raise it in `faults` to carry the call out, and then close the connection without a reply."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, regions: Sequence[SimulatedRegion]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._regions = regions
        self._services: dict[str, Service] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread with a name of its own, because clients keep their connections open."""
        work = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True, name="simulated-aws"
        )
        work.start()

    def answer(self, request: Request, account: str, region_name: str, signing_name: str) -> Reply | None:
        """Return the reply to a request, or None if it gets lost."""
        name = _SERVICES.get(signing_name, signing_name)
        if name not in self._services:
            self._services[name] = open_service(name, self._regions[0].handlers[name])
        service = self._services[name]
        for region in self._regions:
            if (region.account, region.region) == (account, region_name):
                try:
                    return _answer(request, service, region, name)
                except ServiceError as error:
                    return service.write_error(error)
        return service.write_error(ServiceError(Refusal.UNKNOWN_KEY, f"no account {account} in {region_name}"))


def _answer(request: Request, service: Service, region: SimulatedRegion, name: str) -> Reply | None:
    call = operation, values = service.read(request)
    region.calls.append(operation.name)
    is_lost = False
    try:
        region.faults(operation.name)
    except ReplyLost:
        is_lost = True
    found = region.call(name, operation.name, values)
    return None if is_lost else service.write(operation, service.cut_page(call, found, region.page_size))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        scope = _SCOPE.search(self.headers.get("authorization", ""))
        if scope is None:
            self.send_error(403, "the request is not signed")
            return
        reply = self.server.answer(
            Request(self.command, self.path, body, self.headers.get("x-amz-target", "")), *scope.groups()
        )
        if reply is None:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {**reply.headers, "content-length": str(len(reply.body))}.items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the client was killed
            self.end_headers()
            self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - names of the standard library


@contextmanager
def serve(regions: Sequence[SimulatedRegion]) -> Iterator[str]:
    """Serve accounts and regions on a port of the loopback interface. Yield its address.

    `regions` may change meanwhile, but must not be empty.
    """
    server = _Server(regions)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve one account and region until SIGTERM, or until standard input is closed."""
    parser = argparse.ArgumentParser(description="Simulate one AWS account in one region.")
    parser.add_argument("--zones", required=True, help="AZ-IDs, separated by commas")
    parser.add_argument("--account", default=ACCOUNT)
    parser.add_argument("--region", default=REGION)
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="KIND:NAME[:NUMBER][:disabled]",
        help=f"a resource in all zones, by its kind: {', '.join(ARNS)}, service (of ECS) or function. NUMBER: the "
        "instances of a group, which may grow to twice as many, or the tasks of a service. Zonal shift is enabled, "
        "except with `:disabled`",
    )
    parser.add_argument(
        "--seconds", type=float, default=LAUNCH_SECONDS, help="time until an instance runs or a function has changed"
    )
    arguments = parser.parse_args()
    zones = [Zone(each) for each in arguments.zones.split(",")]
    region = SimulatedRegion(SystemClock(), zones, account=arguments.account, region=arguments.region)
    region.functions.update_seconds = arguments.seconds
    region.ecs.deploy_seconds = arguments.seconds
    for text in arguments.add:
        kind, _, tail = text.partition(":")
        name, *rest = tail.split(":")
        is_valid = all(each.isdecimal() or each == "disabled" for each in rest)
        if kind not in (*ARNS, "function", "service") or not name or not is_valid:
            parser.error(f"--add {text}: expected KIND:NAME[:NUMBER][:disabled], such as group:shop:6")
        _add_resource(region, kind, name, rest, launch_seconds=arguments.seconds)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_wait_for_parent, args=(stop,), daemon=True).start()
    with serve([region]) as address:
        sys.stdout.write(json.dumps({"address": address, "access_key": region.access_key}) + "\n")
        sys.stdout.flush()
        stop.wait()


def _add_resource(region: SimulatedRegion, kind: str, name: str, rest: Sequence[str], *, launch_seconds: float) -> None:
    """Add a resource as the command line describes it: `rest` may have a number, and the word `disabled`."""
    count, zones = sum(int(each) for each in rest if each.isdecimal()), list(region.zones.values())
    is_enabled = "disabled" not in rest
    if kind == "function":
        region.functions.add(name)
    elif kind == "service":
        region.ecs.add("main", name, desired=count or len(zones))
    elif kind == "group":
        spread = {zone: len(range(number, count, len(zones))) for number, zone in enumerate(zones)}
        arn = region.groups.add(name, spread, max_size=2 * count, is_enabled=is_enabled)
        region.groups.get(arn).launch_seconds = launch_seconds
    else:
        region.add(kind, name, is_enabled=is_enabled)


def _wait_for_parent(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    main()

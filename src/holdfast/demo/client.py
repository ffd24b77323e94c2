"""The customers of the shop: a steady load on all zones that are not out."""

import argparse
import http.client
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast._types import Zone
from holdfast.calls import Endpoints, NoEndpoint
from holdfast.demo.process import announce, exit_with_parent
from holdfast.demo.records import RecordFile, SentRequest
from holdfast.demo.shop import OPERATIONS, WORKLOAD
from holdfast.status import ZoneTracker

TIMEOUT = 2.0
"""Seconds after which a request counts as failed, because a customer does not wait longer."""
SPARE_THREADS = 32
"""Threads in addition to one per request of a second: even if every request took a second, none would wait."""


class LoadGenerator:
    """A client that sends requests and records each of them."""

    def __init__(self, endpoints: Endpoints, record: RecordFile) -> None:
        self._endpoints = endpoints
        self._record = record
        self._local = threading.local()

    def send(self, path: str) -> None:
        """Send one request to the next endpoint, and record the result."""
        try:
            zone, address = self._endpoints.next()
        except NoEndpoint:
            self._record.write(SentRequest(at=time.time(), zone="", address="", status=0, seconds=0.0))
            return
        at, start = time.time(), time.monotonic()
        status = self._get(address, path)
        seconds = time.monotonic() - start
        self._record.write(SentRequest(at=at, zone=zone, address=address, status=status, seconds=seconds))

    def _get(self, address: str, path: str) -> int:
        connections: dict[str, http.client.HTTPConnection] = self._local.__dict__
        connection = connections.get(address)
        if connection is None:
            connection = connections[address] = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0
        return response.status


def main() -> None:
    """Send requests until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--endpoints", required=True, help="JSON: addresses by zone")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--record", type=Path, required=True)
    arguments = parser.parse_args()
    exit_with_parent()
    signals: list[int] = []  # not an Event: the handler may interrupt code that holds its lock
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    by_zone = {Zone(zone): addresses for zone, addresses in msgspec.json.decode(arguments.endpoints).items()}
    record = RecordFile(arguments.record)
    with ZoneTracker(arguments.server) as tracker, ThreadPoolExecutor(int(arguments.rate) + SPARE_THREADS) as threads:
        customers = LoadGenerator(Endpoints(by_zone, tracker, WORKLOAD), record)
        announce(ready=True)
        paths = list(OPERATIONS)
        start, sent = time.monotonic(), 0
        while not signals:
            time.sleep(max(0.0, start + sent / arguments.rate - time.monotonic()))
            threads.submit(customers.send, paths[sent % len(paths)])
            sent += 1
    record.close()


if __name__ == "__main__":
    main()

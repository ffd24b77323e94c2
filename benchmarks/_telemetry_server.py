"""What telemetry costs a real server: its throughput over HTTP, its answers to others meanwhile, and its memory.

Documents are made beforehand, and dated when they are sent: a client that encodes would be measured instead of the
server. Clients run at a lower priority than the server, because on a real machine they run elsewhere.
"""

import gzip
import http.client
import json
import os
import random
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from holdfast import Operation, Side, Zone
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey, RequestRecord, encode_emf
from holdfast.telemetry.collector import Collector
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable

WORKLOAD = "shop"
ZONES = tuple(Zone(f"use1-az{number}") for number in (1, 2, 3))
SETTINGS = """
data_directory = "data"
[server]
port = {port}
allow_anonymous = true
[log]
level = "error"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
"""
PROBE = "/status/use1-az1"
"""The route that every host polls, which answers from memory."""
_TIMESTAMP = re.compile(rb'"Timestamp":\d+')


def make_documents(count: int, *, operations: int = 200, instances: int = 100, seed: int = 1) -> list[bytes]:
    """Documents like the source's: three dimension sets, about 830 bytes, over operations, zones and instances."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        zone = chance.choice(ZONES)
        is_fault = chance.random() < 0.01
        made.append(
            encode_emf(
                RequestRecord(
                    namespace=f"{WORKLOAD}/frontend",
                    operation=Operation("Catalogue", f"Operation{chance.randrange(operations)}"),
                    region="us-east-1",
                    zone=zone,
                    instance=f"i-{zone}-{chance.randrange(instances):017x}",
                    at=time.time(),
                    status=500 if is_fault else 200,
                    seconds=chance.lognormvariate(-3, 0.6),
                    path="/catalogue/items/4711",
                    host="shop.internal",
                    source_ip="10.0.0.1",
                    trace="1-5f84c7a1-sample0000000000000000",
                )
            )
        )
    return made


def date(documents: Sequence[bytes]) -> bytes:
    """The documents as one body, with the present time."""
    return _TIMESTAMP.sub(b'"Timestamp":%d' % (time.time() * 1000), b"\n".join(documents))


class TelemetryServer:
    """A real `holdfast up` that watches one workload."""

    def __init__(self, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        Path(folder, "holdfast.toml").write_text(SETTINGS.format(port=self.port))
        self._folder = folder

    def __enter__(self) -> "TelemetryServer":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "up"], cwd=self._folder, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        raise RuntimeError("the server did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)


@contextmanager
def open_server() -> Iterator[TelemetryServer]:
    with tempfile.TemporaryDirectory() as folder, TelemetryServer(folder) as server:
        yield server


def send(connection: http.client.HTTPConnection, body: bytes) -> int:
    """Send a compressed body. Return the number of accepted documents; 0 if the server is busy."""
    connection.request("POST", "/v1/telemetry", body, {"Content-Encoding": "gzip"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status == 503:
        time.sleep(0.01)
        return 0
    if response.status != 202 or answer["refused"]:
        raise RuntimeError(f"telemetry was answered {response.status}: {answer}")
    accepted: int = answer["accepted"]
    return accepted


def run_sender(port: int, seconds: float, batch: int, seed: int) -> float:
    """Send as fast as the server answers, for some seconds. Return the accepted documents per second."""
    os.nice(10)
    bodies = [gzip.compress(date(make_documents(batch, seed=seed + each)), 1) for each in range(4)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    total, number, begin = 0, 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        total += send(connection, bodies[number % len(bodies)])
        number += 1
    connection.close()
    return total / (time.monotonic() - begin)


def measure_http(seconds: float, batch: int = 2000) -> float:
    """Documents per second over HTTP, compressed, in batches."""
    with open_server() as server, get_context("spawn").Pool(2) as pool:
        senders = [(server.port, 1.0, batch, seed) for seed in (1, 2)]
        pool.starmap(run_sender, senders)  # warm up
        return sum(pool.starmap(run_sender, [(server.port, seconds, batch, seed) for seed in (1, 2)]))


def _probe(server: TelemetryServer, seconds: float) -> list[float]:
    """Ask the server for a zone's status 100 times a second. Return the seconds of each answer."""
    connection, took, end = server.connect(), [], time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter()
        connection.request("GET", PROBE)
        response = connection.getresponse()
        response.read()
        took.append(time.perf_counter() - begin)
        time.sleep(0.01)
    connection.close()
    return took


def measure_latency(seconds: float) -> tuple[float, float]:
    """The 99th percentile of the answers of an idle server, and of one that takes in telemetry as fast as it can."""
    with open_server() as server:
        _probe(server, 1.0)
        idle = _probe(server, seconds)
        sender = get_context("spawn").Process(target=run_sender, args=(server.port, seconds + 3, 2000, 7))
        sender.start()
        time.sleep(2)  # it makes its documents first
        busy = _probe(server, seconds)
        sender.join()
    return _p99(idle), _p99(busy)


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def measure_memory(bins: int, series: int = 60_000) -> tuple[float, float]:
    """Megabytes of a process that keeps `series` series with instances for `bins` bins, and of its blocks alone."""
    context = get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_fill, (bins, series))


def _fill(bins: int, series: int) -> tuple[float, float]:
    from holdfast.engines.sqlite import SqliteDatabase

    chance = random.Random(1)
    keys = [
        BinKey(
            WORKLOAD, Operation("Catalogue", f"Operation{operation}"), zone, f"i-{zone}-{instance:017x}", Side.SERVER
        )
        for operation in range(200)
        for zone in ZONES
        for instance in range(series // 600)
    ]
    latencies = [chance.lognormvariate(-3, 0.6) for _ in range(10_000)]
    with tempfile.TemporaryDirectory() as folder, SqliteDatabase(Path(folder) / "telemetry.sqlite") as database:
        table, now = SeriesTable(), 1_700_000_000.0
        collector = Collector(table)
        history = TelemetryHistory(database, table, 10.0, [WORKLOAD], now)
        collector.pop_complete(now)
        for _ in range(bins):
            start = int(now)
            collector.add(
                (
                    BinDelta(
                        key,
                        now,
                        10.0,
                        Bin(
                            count_2xx=8,
                            success_seconds=Histogram.of(chance.choices(latencies, k=8)),
                            by_second={start + chance.randrange(10): 4, start + chance.randrange(10): 4},
                        ),
                    )
                    for key in keys
                ),
                now + 9,
            )
            now += 10
            history.add(collector.pop_complete(now + 2), {}, {}, now + 2)
            history.save(now + 2)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, history.nbytes / 1e6

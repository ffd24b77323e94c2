"""The attacks. Each returns a `Result`."""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.server.protocol import HEAD_SECONDS
from tests.attack.probe import Probe
from tests.integration.server.process import HoldfastServer, environment

ROOT = Path(__file__).parents[2]
SLOW_CONNECTIONS = 2000
FLOODS = 200
FLOOD_BYTES = 32 * 1024 * 1024
FLOOD_SECONDS = 60.0
INVALID_UPGRADES = 2000
IDLE_CONNECTIONS = 8000
CLOSE_SLACK = 10.0
"""Seconds after the deadline in which a busy machine has closed all connections."""
KILOBYTES_PER_CONNECTION = 20
SCHEMATHESIS_SECONDS = 90
CLOSED = 0
"""Stands for the status of a connection that was closed without an answer."""
OPEN = -1
"""Stands for the status of a connection that was neither answered nor closed."""


@dataclass
class Result:
    """The figures of an attack, and everything that should not have happened."""

    attack: str
    figures: dict[str, object] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def unexpected_requests(server: HoldfastServer, directory: Path, *, with_credentials: bool) -> Result:
    """Send what schemathesis invents to all routes: no 5xx, and no status that the description does not have."""
    result = Result(f"schemathesis, {'with' if with_credentials else 'without'} credentials")
    before = count_answers(server)
    hooks = {
        "SCHEMATHESIS_HOOKS": "tests.integration.server.schemathesis_auth",
        "TEST_DATA_DIRECTORY": str(server.directory / "data"),
    }
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.address}/openapi.json", "--no-color"),
        *("--phases", "coverage,fuzzing", "--max-examples", "10", "--seed", "8470"),
        *("--checks", "status_code_conformance"),  # `count_answers` finds errors of the server, which may be described
        # A stream of events has no end to wait for.
        *("--exclude-path", "/v1/events", "--exclude-path", "/v1/status/events"),
    ]
    variables = environment(PYTHONWARNINGS="default", PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path[1:]]))
    try:
        finished = subprocess.run(
            command,
            cwd=directory,
            env={**variables, **(hooks if with_credentials else {})},
            capture_output=True,
            text=True,
            timeout=SCHEMATHESIS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        result.violations.append(f"schemathesis did not finish within {SCHEMATHESIS_SECONDS} s")
    else:
        if finished.returncode != 0:
            result.violations.append(f"schemathesis: {finished.stdout[-4000:]}{finished.stderr[-1000:]}")
    answers = count_answers(server) - before
    faults = {status: count for status, count in answers.items() if status >= 500}
    result.figures = {"requests": answers.total(), "statuses": dict(sorted(answers.items())), "faults": faults}
    if faults:
        result.violations.append(f"answers of 500 or more: {faults}")
    if answers.total() < 100:
        result.violations.append(f"only {answers.total()} requests were answered")
    return result


def count_answers(server: HoldfastServer) -> "Counter[int]":
    """Return the number of logged answers by status; 500 for a zone that is out, which is no error, counts as 200.

    The log level must be debug, for all routes to be logged.
    """
    answers: Counter[int] = Counter()
    for entry in server.entries():
        status = entry.get("http.response.status_code")
        if status is not None:
            answers[200 if status == 500 and entry["url.path"].startswith("/status/") else status] += 1
    return answers


def slow_connections(server: HoldfastServer) -> Result:
    """Send one byte of a request, and nothing more: all connections are closed at the deadline."""
    result = Result(f"{SLOW_CONNECTIONS} slow connections")
    with Probe(server) as probe, connected(server, SLOW_CONNECTIONS, b"G") as sockets:
        ends, seconds = wait_for_ends(sockets, HEAD_SECONDS + CLOSE_SLACK)
    result.figures = {"ends": dict(ends), "all_closed_after_seconds": seconds, **probe.figures()}
    result.violations = probe.violations(allowed_megabytes(SLOW_CONNECTIONS))
    if ends.total() < SLOW_CONNECTIONS:
        result.violations.append(f"{SLOW_CONNECTIONS - ends.total()} connections were not closed")
    return result


def header_floods(server: HoldfastServer) -> Result:
    """Send 32 MB of headers, small ones or a single one: 431 or closed, and no more memory is used."""
    result = Result(f"{FLOODS} floods of {FLOOD_BYTES >> 20} MB of headers")
    start = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    small, single = b"a: b\r\n" * 10_000, b"b" * 60_000
    with Probe(server) as probe, connected(server, FLOODS, start) as sockets:
        begun = time.monotonic()
        sent = 0
        ends: Counter[int] = Counter()
        with selectors.DefaultSelector() as selector:
            for number, connection in enumerate(sockets):
                chunk = small if number % 2 else single
                if chunk is single:
                    connection.send(b"a: ")
                selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, [chunk, FLOOD_BYTES])
            while selector.get_map() and time.monotonic() < begun + FLOOD_SECONDS:
                for key, events in selector.select(1):
                    state = key.data
                    assert isinstance(key.fileobj, socket.socket)
                    if events & selectors.EVENT_READ or state[1] <= 0:
                        ends[read_end(key.fileobj)] += 1
                        selector.unregister(key.fileobj)
                        continue
                    try:
                        count = key.fileobj.send(state[0])
                    except OSError:
                        count = 0  # it is closed, which the next read shows
                    state[1] -= count
                    sent += count
            left = len(selector.get_map())
    result.figures = {
        "ends": dict(ends),
        "megabytes_sent": sent >> 20,
        "seconds": round(time.monotonic() - begun, 1),
        **probe.figures(),
    }
    result.violations = probe.violations(allowed_megabytes(FLOODS))
    if left or not ends.keys() <= {CLOSED, 431}:
        result.violations.append(f"expected 431 or a closed connection, found {dict(ends)} and {left} still open")
    return result


def invalid_upgrades(server: HoldfastServer) -> Result:
    """Ask for WebSockets with a body, and send no body: all are refused, and the server can still be stopped."""
    result = Result(f"{INVALID_UPGRADES} requests for WebSockets with a body")
    request = b"GET /v1/status/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    request += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nContent-Length: 5\r\n\r\n"
    with Probe(server) as probe, connected(server, INVALID_UPGRADES, request) as sockets:
        ends, seconds = wait_for_ends(sockets, HEAD_SECONDS + CLOSE_SLACK)
    result.figures = {"ends": dict(ends), "all_closed_after_seconds": seconds, **probe.figures()}
    result.violations = probe.violations(allowed_megabytes(INVALID_UPGRADES))
    if ends != {400: INVALID_UPGRADES}:
        result.violations.append(f"expected {INVALID_UPGRADES} answers of 400, found {dict(ends)}")
    return result


def idle_connections(server: HoldfastServer, max_connections: int) -> Result:
    """Connect and send nothing: health and statuses are answered, and all connections are closed at the deadline."""
    result = Result(f"{IDLE_CONNECTIONS} idle connections, server.max_connections {max_connections}")
    with Probe(server) as probe, connected(server, IDLE_CONNECTIONS, b"") as sockets:
        opened = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        ends, seconds = wait_for_ends(sockets, HEAD_SECONDS + CLOSE_SLACK)
    lines = [entry for entry in server.entries() if entry.get("reason") == "connection_limit"]
    result.figures = {
        "ends": dict(ends),
        "open_files_of_the_server": opened,
        "all_closed_after_seconds": seconds,
        "log_lines_about_the_limit": len(lines),
        **probe.figures(),
    }
    result.violations = probe.violations(allowed_megabytes(min(IDLE_CONNECTIONS, max_connections)))
    if ends.total() < IDLE_CONNECTIONS:
        result.violations.append(f"{IDLE_CONNECTIONS - ends.total()} connections were not closed")
    if max_connections < IDLE_CONNECTIONS and not 1 <= len(lines) <= 10:
        result.violations.append(f"expected 1 to 10 log lines about the limit of connections, found {len(lines)}")
    return result


def allowed_megabytes(connections: int) -> float:
    """Return how much a server may grow by: a part for all connections, and one for each."""
    return 30 + connections * KILOBYTES_PER_CONNECTION / 1024


@contextmanager
def connected(server: HoldfastServer, count: int, data: bytes) -> Iterator[Sequence[socket.socket]]:
    """Open connections, and send `data` on each; they do not block."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(server.connect())
            with suppress(OSError):  # a server may close it at once
                sockets[-1].sendall(data)
            sockets[-1].setblocking(False)
        yield sockets
    finally:
        for connection in sockets:
            connection.close()


def wait_for_ends(sockets: Sequence[socket.socket], timeout: float) -> tuple["Counter[int]", float]:
    """Wait until the server has closed all; return the number of connections by status, and the seconds it took."""
    begun = time.monotonic()
    ends: Counter[int] = Counter()
    with selectors.DefaultSelector() as selector:
        for connection in sockets:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < begun + timeout:
            for key, _ in selector.select(1):
                assert isinstance(key.fileobj, socket.socket)
                ends[read_end(key.fileobj)] += 1
                selector.unregister(key.fileobj)
    return ends, round(time.monotonic() - begun, 1)


def read_end(connection: socket.socket, timeout: float = 5.0) -> int:
    """Return the status of the answer, `CLOSED`, or `OPEN`, which no attack expects."""
    try:
        connection.settimeout(timeout)
        answer = connection.recv(4096)
    except TimeoutError:
        return OPEN
    except OSError:
        return CLOSED
    return int(answer.split()[1]) if answer else CLOSED

"""A first look at the server, with nothing to set up: `python examples/first_start.py`, or `make demo`.

Starts a real server in a temporary directory, on a free port; asks it everything that it answers; stops it again.
"""

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

LIMIT = 10.0
"""Seconds until a server that does not do its part is killed, so that this always ends."""


def say(what: str, result: object) -> None:
    print(f"{what:<42} {result}", flush=True)


@contextmanager
def server() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running server and what it announced; ended however this block is left."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        command = [sys.executable, "-m", "holdfast.cli", "up", "--port", "0", "--data-directory", folder, "--json"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
            watchdog = threading.Timer(LIMIT, process.kill)
            watchdog.start()
            try:
                line = process.stdout.readline() if process.stdout else ""
                if not line:
                    sys.exit(f"the server did not start: {process.communicate()[1]}")
                yield process, json.loads(line)
            finally:
                watchdog.cancel()
                process.terminate()  # does nothing to a process that has ended already
                try:
                    process.communicate(timeout=LIMIT)
                except subprocess.TimeoutExpired:
                    process.kill()


class Client:
    """Just enough HTTP. Not urllib, which would ask a proxy for the way to this very machine."""

    def __init__(self, address: str, token: str) -> None:
        self._place = urlsplit(address)
        self._token = token

    @contextmanager
    def send(self, method: str, path: str, body: object = None, token: str | None = None) -> Iterator[HTTPResponse]:
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": "application/json"}
        with closing(HTTPConnection(str(self._place.hostname), self._place.port, timeout=LIMIT)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as reply:
                yield reply

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> Any:
        with self.send(method, path, body, token) as reply:
            return json.load(reply)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    begun = time.monotonic()
    with server() as (process, announced):
        client = Client(announced["address"], announced["token"])
        say("server listens on", f"{announced['address']}, {time.monotonic() - begun:.1f} s after it was started")
        say("is it alive? GET /health", client.ask("GET", "/health")["status"])
        say("can it do its work? GET /ready", client.ask("GET", "/ready")["status"])
        say("the operator's credential: GET /v1/whoami", client.ask("GET", "/v1/whoami")["role"])

        made = client.ask("POST", "/v1/credentials", {"role": "viewer", "note": "first look"})
        viewer, token = made["credential"]["id"], made["token"]
        say("a new credential: POST /v1/credentials", f"{viewer}, role {made['credential']['role']}")
        say("used by the viewer: GET /v1/whoami", client.ask("GET", "/v1/whoami", token=token)["note"])
        client.ask("DELETE", f"/v1/credentials/{viewer}")
        say("revoked, and used once more", client.ask("GET", "/v1/whoami", token=token)["detail"])

        with client.send("GET", "/v1/events") as stream:
            say("a live stream: GET /v1/events", stream.readline().decode().strip())
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            status = process.wait(LIMIT)
            say("stopped by SIGTERM, the stream still open", f"in {time.monotonic() - begun:.2f} s, exit code {status}")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

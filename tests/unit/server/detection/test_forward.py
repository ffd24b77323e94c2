"""Telemetry that reaches a server on standby is forwarded, or the sender is asked to repeat it."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast import EngineUnavailable
from holdfast.server.detection.forward import TelemetryForwarder
from holdfast.status.sources.web import HttpResponse
from tests.services.start import free_port


class Receiver(ThreadingHTTPServer):
    """A server that answers each request with the next of its statuses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.got: list[tuple[bytes, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((body, {name.lower(): value for name, value in self.headers.items()}))
        content = b'{"detail": "later"}'
        self.send_response(self.server.statuses.pop(0))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def forward(address: str | None, **headers: str) -> HttpResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(TelemetryForwarder().forward(address, b"lines", given))


def test_a_request_is_forwarded_in_the_name_of_its_sender_with_its_batch(receiver: Receiver) -> None:
    receiver.statuses = [202, 400]
    assert forward(receiver.address, authorization="Bearer x", x_holdfast_batch="one", cookie="c").status == 202
    [(body, headers)] = receiver.got
    assert (body, headers["authorization"], headers["x-holdfast-batch"]) == (b"lines", "Bearer x", "one")
    assert "cookie" not in headers
    assert forward(receiver.address).status == 400, "the sender gets the refusal"


def test_a_repeated_attempt_has_the_same_batch_even_if_the_sender_gave_none(receiver: Receiver) -> None:
    receiver.statuses = [502, 202]
    assert forward(receiver.address).status == 202
    first, second = (headers["x-holdfast-batch"] for _, headers in receiver.got)
    assert first == second


def test_a_sender_is_asked_to_repeat_what_cannot_be_forwarded(receiver: Receiver) -> None:
    receiver.statuses = [503, 503]
    with pytest.raises(EngineUnavailable, match="answered 503: later"):
        forward(receiver.address)
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        forward(f"http://127.0.0.1:{free_port()}")
    for address, headers in ((None, {}), (receiver.address, {"x_holdfast_forwarded": "1"})):
        with pytest.raises(EngineUnavailable, match="no server evaluates at the moment"):
            forward(address, **headers)
    assert len(receiver.got) == 2

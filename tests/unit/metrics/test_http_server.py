"""What a process has counted, over HTTP."""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from holdfast._errors import EngineUnavailable
from holdfast.metrics.http_server import MAX_CONCURRENT_REQUESTS, MetricsServer, _MetricsRequestHandler
from tests.services.start import free_port
from tests.unit.forked import in_child

STUCK = 30.0


def get(address: str) -> httpx.Response:
    return httpx.get(address, timeout=STUCK, trust_env=False)


@pytest.fixture
def scrapes() -> Iterator[MetricsServer]:
    with MetricsServer("127.0.0.1", free_port(), lambda: "counted 1\n") as scrapes:
        yield scrapes


class TestScrapes:
    def test_metrics_are_answered_as_prometheus_expects_them(self, scrapes: MetricsServer) -> None:
        for address in (scrapes.address, f"{scrapes.address}?name=x"):
            answer = get(address)
            assert (answer.status_code, answer.text) == (200, "counted 1\n")
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"

    @pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics2", "/health"])
    def test_there_is_nothing_else(self, scrapes: MetricsServer, path: str) -> None:
        assert get(scrapes.address.replace("/metrics", path)).status_code == 404

    def test_an_address_of_the_newer_kind_is_as_good(self) -> None:
        with MetricsServer("::1", free_port(), lambda: "counted 1\n") as scrapes:
            assert scrapes.address.startswith("http://[::1]:")
            assert get(scrapes.address).text == "counted 1\n"

    @pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
    def test_where_it_cannot_listen_it_says_what_to_change(self, scrapes: MetricsServer, host: str) -> None:
        port = scrapes.server_address[1]
        reason = "Address already in use" if host == "127.0.0.1" else "Cannot assign requested address"
        with pytest.raises(
            EngineUnavailable, match=f"cannot serve metrics on '{host}' port {port}: {reason}; choose another port"
        ):
            MetricsServer(host, int(port), str)

    def test_those_who_hang_take_a_bounded_number_of_threads_and_give_them_back(self, scrapes: MetricsServer) -> None:
        where = ("127.0.0.1", int(scrapes.server_address[1]))
        until(lambda: answering(scrapes) == 0)
        with ExitStack() as stack:
            for _ in range(MAX_CONCURRENT_REQUESTS):
                stack.enter_context(socket.create_connection(where, timeout=STUCK))
            with socket.create_connection(where, timeout=STUCK) as one_too_many:
                assert one_too_many.recv(1) == b"", "it is closed at once"
            assert answering(scrapes) == MAX_CONCURRENT_REQUESTS
        until(lambda: answering(scrapes) == 0)
        assert get(scrapes.address).status_code == 200

    def test_one_that_is_silent_for_long_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_MetricsRequestHandler, "timeout", _MetricsRequestHandler.timeout / 1000)
        with (
            MetricsServer("127.0.0.1", free_port(), str) as scrapes,
            socket.create_connection(("127.0.0.1", int(scrapes.server_address[1])), timeout=STUCK) as silent,
        ):
            assert silent.recv(1) == b""

    def test_one_that_leaves_in_the_middle_is_no_trouble(
        self, scrapes: MetricsServer, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with socket.create_connection(("127.0.0.1", int(scrapes.server_address[1])), timeout=STUCK) as hasty:
            hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, and no end
        until(lambda: answering(scrapes) == 0)
        assert get(scrapes.address).status_code == 200
        assert capfd.readouterr().err == ""

    def test_a_forked_child_leaves_the_port_to_its_parent(self, scrapes: MetricsServer) -> None:
        in_child(lambda: scrapes.socket.fileno() == -1)
        assert get(scrapes.address).status_code == 200

    def test_it_is_not_imported_where_nobody_asks_for_it(self) -> None:
        program = (
            "import sys, holdfast.cli.worker.command, holdfast.cli.worker.work, holdfast.metrics\n"
            "print('http.server' in sys.modules)"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ran.stdout == "False\n"


def answering(scrapes: MetricsServer) -> int:
    """Return the number of threads of `scrapes` that serve a client, or wait for its request."""
    targets = [getattr(thread, "_target", None) for thread in threading.enumerate()]
    return sum(target == scrapes.process_request_thread for target in targets)


def until(condition: Callable[[], bool]) -> None:
    gone = threading.Event()
    for _ in range(int(STUCK / 0.01)):
        if condition():
            return
        gone.wait(0.01)
    raise AssertionError("it did not come to be")

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from holdfast import InvalidValue
from tests.support.proxy import LossyProxy

STUCK = 10.0


class Echo(socketserver.ThreadingTCPServer):
    """A server that answers with what it was told, and remembers it."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.heard = bytearray()


class Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        while words := self.request.recv(100):
            self.server.heard += words
            self.request.sendall(words)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,))
        thread.start()
        yield echo
        echo.shutdown()
        thread.join(STUCK)


@pytest.fixture
def proxy(echo: Echo) -> Iterator[LossyProxy]:
    with LossyProxy("127.0.0.1", echo.server_address[1]) as proxy:
        yield proxy


def connect(proxy: LossyProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=STUCK)


def ask(client: socket.socket, words: bytes) -> bytes:
    """The answer, or nothing when the connection is broken."""
    try:
        client.sendall(words)
        return client.recv(100)
    except ConnectionError:
        return b""


def test_what_is_not_to_be_lost_is_carried(proxy: LossyProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        assert ask(first, b"one") == b"one"
        assert ask(second, b"two") == b"two"
        assert ask(first, b"three") == b"three"
    assert proxy.losses == 0


def test_a_lost_request_never_reaches_the_server(proxy: LossyProxy, echo: Echo) -> None:
    proxy.lose("request", b"marker")
    with connect(proxy) as client:
        assert ask(client, b"before") == b"before"
        assert ask(client, b"the marker") == b""
    assert bytes(echo.heard) == b"before"
    assert proxy.losses == 1


def test_a_lost_reply_reaches_the_server_but_not_the_client(proxy: LossyProxy, echo: Echo) -> None:
    proxy.lose("reply", b"marker")
    with connect(proxy) as client:
        assert ask(client, b"the marker") == b""
    assert bytes(echo.heard) == b"the marker"
    assert proxy.losses == 1


def test_a_late_word_to_go_on_is_not_the_reply_to_be_lost(proxy: LossyProxy) -> None:
    proxy.lose("reply", b"100 Continue")
    with connect(proxy) as client:
        assert ask(client, b"HTTP/1.1 100 Continue\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert ask(client, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n") == b""
    assert proxy.losses == 1


def test_a_marker_is_found_across_packets(proxy: LossyProxy) -> None:
    proxy.lose("request", b"marker")
    with connect(proxy) as client:
        assert ask(client, b"the mar") == b"the mar"
        assert ask(client, b"ker") == b""


def test_a_marker_works_once_and_not_for_what_was_said_before(proxy: LossyProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"marker") == b"marker"
        proxy.lose("request", b"marker")
        assert ask(client, b"other") == b"other"
        assert ask(client, b"marker") == b""
    with connect(proxy) as client:
        assert ask(client, b"marker") == b"marker"


def test_cutting_breaks_what_is_open_and_admits_what_is_new(proxy: LossyProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.cut()
        assert ask(client, b"two") == b""
    with connect(proxy) as client:
        assert ask(client, b"three") == b"three"


def test_refusing_breaks_what_is_new_too_until_it_is_admitted(proxy: LossyProxy) -> None:
    proxy.refuse()
    with connect(proxy) as client:
        assert ask(client, b"one") == b""
    proxy.admit()
    with connect(proxy) as client:
        assert ask(client, b"two") == b"two"


def test_a_server_that_is_away_breaks_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with LossyProxy("127.0.0.1", port) as proxy, connect(proxy) as client:
        assert ask(client, b"one") == b""


def test_closing_breaks_everything_and_may_be_repeated(proxy: LossyProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"one") == b"one"
        proxy.close()
        proxy.close()
        assert ask(client, b"two") == b""
    with pytest.raises(ConnectionError):
        connect(proxy)


def test_an_empty_marker_is_refused(proxy: LossyProxy) -> None:
    with pytest.raises(InvalidValue, match="marker is empty"):
        proxy.lose("reply", b"")

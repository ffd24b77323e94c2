"""Telemetry to a server, which may be away."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.telemetry.sinks import server as module
from holdfast.telemetry.sinks.server import ServerSink
from tests.unit.forked import in_child


class Receiver(ThreadingHTTPServer):
    """Takes telemetry, and answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = 202
        self.body = b""
        self.lines: list[bytes] = []
        self.requests = 0
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.server.answer < 300:
            self.server.lines += body.split(b"\n")
        self.send_response(self.server.answer)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
    thread.start()
    yield receiver
    receiver.shutdown()
    thread.join()
    receiver.server_close()


def address(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.server_port}"


def test_every_line_arrives_once_and_in_order_also_those_of_the_last_moment(receiver: Receiver) -> None:
    with ServerSink(address(receiver), token="secret") as sink:
        for number in range(1200):
            sink.emit(b"%d" % number)
    assert receiver.lines == [b"%d" % number for number in range(1200)]
    assert receiver.requests >= 3, "in batches"
    assert receiver.tokens == {"Bearer secret"}
    assert sink.dropped_lines == 0


def test_lines_are_held_while_the_server_is_away_and_sent_when_it_is_back(receiver: Receiver) -> None:
    sink = ServerSink(address(receiver))
    sink.emit(b"one")
    receiver.answer = 503
    sink._loop.run_step()
    sink.emit(b"two")
    receiver.answer = 202
    sink.close()
    assert receiver.lines == [b"one", b"two"]
    assert sink.dropped_lines == 0


def test_a_server_that_cannot_be_reached_raises_nothing_and_blocks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    sink = ServerSink("http://127.0.0.1:1")
    sink.emit(b"one")
    sink.close()
    assert "cannot send telemetry, 1 line not sent" in caplog.text
    assert "trying again" not in caplog.text
    assert sink.dropped_lines == 0


def test_past_its_limit_the_oldest_lines_are_dropped_and_counted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HELD_LINES", 3)
    sink = ServerSink(address(receiver))
    for number in range(5):
        sink.emit(b"%d" % number)
    assert sink.dropped_lines == 2
    sink.close()
    assert receiver.lines == [b"2", b"3", b"4"]
    assert sink.dropped_lines == 2


def test_lines_that_could_not_be_sent_are_the_first_to_be_dropped(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HELD_LINES", 3)
    sink = ServerSink(address(receiver))
    for number in range(3):
        sink.emit(b"%d" % number)
    receiver.answer = 503
    sink._loop.run_step()
    sink.emit(b"3")
    receiver.answer = 202
    sink.close()
    assert receiver.lines == [b"1", b"2", b"3"]
    assert sink.dropped_lines == 1


def test_what_the_server_refuses_is_not_sent_again(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answer = 400
    receiver.body = b'{"detail": "no text"}'
    sink = ServerSink(address(receiver))
    sink.emit(b"bad")
    sink._loop.run_step()
    sink.close()
    assert receiver.requests == 1
    assert caplog.messages == ["the server refused 1 line of telemetry; HTTP 400: no text"]
    assert sink.refused_lines == 1


def test_lines_that_the_server_refuses_among_others_are_counted(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.body = b'{"accepted": 1, "refused": 2, "reason": "no workload"}'
    sink = ServerSink(address(receiver))
    sink.emit(b"line")
    sink.close()
    assert sink.refused_lines == 2
    assert caplog.messages == ["the server refused 2 lines of telemetry; first reason: no workload"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff", b'{"refused": "many"}', b'{"accepted": 1, "refused": 0, "reason": null}']
)
def test_an_answer_that_names_no_refused_lines_counts_none(receiver: Receiver, body: bytes) -> None:
    receiver.body = body
    sink = ServerSink(address(receiver))
    sink.emit(b"line")
    sink.close()
    assert (sink.refused_lines, sink.dropped_lines) == (0, 0)


def test_closing_and_starting_may_be_repeated(receiver: Receiver) -> None:
    sink = ServerSink(address(receiver))
    sink.close()
    sink = ServerSink(address(receiver)).start().start()
    sink.close()
    sink.close()


def test_a_forked_child_sends_its_own_lines_and_none_of_its_parents(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600.0)  # so that the second line is still held at the fork
    sink = ServerSink(address(receiver))
    sink.emit(b"sent by the parent")
    with sink:
        while not sink._sent:
            pass
        sink.emit(b"held by the parent")

        def work() -> bool:
            assert sink._loop.is_running
            sink.emit(b"of the child")
            sink._loop.wake()
            while sink._lines or not sink._sent:
                pass
            return sink.dropped_lines == 0 and sink._emitted == 1

        in_child(work)
    assert receiver.lines == [b"sent by the parent", b"of the child", b"held by the parent"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_forked_child_of_one_that_does_not_send_does_not_send_either(receiver: Receiver, is_closed: bool) -> None:
    sink = ServerSink(address(receiver))
    if is_closed:
        sink.start().close()
    in_child(lambda: not sink._loop.is_running)

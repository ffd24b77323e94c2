"""Telemetry to a server, which may be away."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast import InvalidValue
from holdfast.telemetry.sinks import buffered
from holdfast.telemetry.sinks.server import ServerSink
from tests.unit.forked import in_child


class Receiver(ThreadingHTTPServer):
    """Takes telemetry, and answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = 202
        self.body = b""
        self.headers: dict[str, str] = {}
        self.max_lines = 1_000_000
        self.loses_answers = False
        self.closes_idle_connections = False
        self.lines: list[bytes] = []
        self.requests = 0
        self.batches: list[str] = []
        self.encodings: list[str | None] = []
        self.tokens: set[str | None] = set()
        self.paths: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.requests += 1
        server.paths.add(self.path)
        server.tokens.add(self.headers.get("Authorization"))
        server.batches.append(self.headers["X-Holdfast-Batch"])
        server.encodings.append(self.headers.get("Content-Encoding"))
        if server.encodings[-1] == "gzip":
            body = gzip.decompress(body)
        lines = body.split(b"\n")
        status = 413 if len(lines) > server.max_lines else server.answer
        if status < 300:
            server.lines += lines
        if server.loses_answers:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)
        self.close_connection = server.closes_idle_connections  # without telling the client

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


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[ServerSink]:
    """A sink that sends when a test flushes it, runs a step of its loop, or closes it."""
    sink = ServerSink(address(receiver))
    yield sink
    sink.close()


def test_every_line_arrives_once_and_in_order_also_those_of_the_last_moment(receiver: Receiver) -> None:
    with ServerSink(address(receiver), token="secret") as sink:
        for number in range(1200):
            sink.emit(b"%d" % number)
    assert receiver.lines == [b"%d" % number for number in range(1200)]
    assert receiver.requests >= 3, "in batches"
    assert receiver.tokens == {"Bearer secret"}
    assert sink.dropped_lines == 0


def test_lines_are_held_while_the_server_is_away_and_sent_when_it_is_back(receiver: Receiver, sink: ServerSink) -> None:
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


def test_what_the_server_refuses_is_not_sent_again(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = 400
    receiver.body = b'{"detail": "no text"}'
    sink.emit(b"bad")
    sink._loop.run_step()
    sink.close()
    assert receiver.requests == 1
    assert caplog.messages == ["the server refused 1 line of telemetry; HTTP 400: no text"]
    assert sink.refused_lines == 1


def test_lines_that_the_server_refuses_among_others_are_counted(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.body = b'{"accepted": 1, "refused": 2, "reason": "no workload"}'
    sink.emit(b"line")
    sink.close()
    assert sink.refused_lines == 2
    assert caplog.messages == ["the server refused 2 lines of telemetry; first reason: no workload"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff", b'{"refused": "many"}', b'{"accepted": 1, "refused": 0, "reason": null}']
)
def test_an_answer_that_names_no_refused_lines_counts_none(receiver: Receiver, sink: ServerSink, body: bytes) -> None:
    receiver.body = body
    sink.emit(b"line")
    sink.close()
    assert (sink.refused_lines, sink.dropped_lines) == (0, 0)


def test_a_sender_that_is_refused_again_and_again_says_so_once_a_minute(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = 401
    for _ in range(3):
        sink.emit(b"line")
        sink.flush()
    assert (sink.refused_lines, sink.held_lines, len(caplog.messages)) == (3, 0, 1)


def test_lines_are_held_and_the_address_told_if_the_answer_is_a_redirect(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer, receiver.headers = 308, {"Location": "https://other"}
    sink.emit(b"one")
    assert not sink.flush()
    assert (sink.sent_lines, sink.held_lines) == (0, 1)
    assert "the answer is a redirect to https://other: use its address instead" in caplog.text
    receiver.answer = 202
    assert sink.flush()


def test_a_sender_without_a_token_is_told_where_to_set_it(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer, receiver.body = 401, b'{"detail": "no credential"}'
    sink.emit(b"line")
    sink.flush()
    assert "HTTP 401: there is no token: set HOLDFAST_TOKEN, or pass `token=` to ServerSink" in caplog.text
    caplog.clear()
    with ServerSink(address(receiver), token="hf_wrong") as other:
        other.emit(b"line")
    assert caplog.messages == ["the server refused 1 line of telemetry; HTTP 401: no credential"]


@pytest.mark.parametrize("token", ["", "hf_secret\n", "hf secret", "hf_sécret"])
def test_a_token_with_a_character_that_no_token_has_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidValue, match="token: expected text without spaces and line ends") as raised:
        ServerSink("http://127.0.0.1:1", token=token)
    assert not token or token not in str(raised.value)


def test_an_address_that_is_no_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidValue, match=r"address '127\.0\.0\.1:8470'"):
        ServerSink("127.0.0.1:8470")


def test_a_server_behind_a_path_gets_the_lines(receiver: Receiver) -> None:
    with ServerSink(f"{address(receiver)}/behind/") as sink:
        sink.emit(b"line")
    assert (receiver.paths, receiver.lines) == ({"/behind/v1/telemetry"}, [b"line"])


def test_a_batch_whose_answer_was_lost_is_sent_again_with_the_same_id(receiver: Receiver, sink: ServerSink) -> None:
    sink.emit(b"one")
    receiver.loses_answers = True
    sink.flush()
    receiver.loses_answers = False
    sink.emit(b"two")
    sink.close()
    first, again, next_batch = receiver.batches
    assert first == again != next_batch
    assert all(len(batch) == 32 for batch in receiver.batches)
    assert receiver.lines == [b"one", b"one", b"two"], "so the server can drop the second"


def test_a_connection_that_was_closed_while_idle_is_opened_again_without_a_warning(
    receiver: Receiver, sink: ServerSink, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.closes_idle_connections = True
    for line in (b"one", b"two", b"three"):
        sink.emit(line)
        assert sink.flush()
    assert receiver.lines == [b"one", b"two", b"three"]
    assert caplog.messages == []


def test_batches_are_compressed_once_the_server_says_that_it_accepts_that(receiver: Receiver, sink: ServerSink) -> None:
    sink.emit(b"one")
    sink.flush()
    receiver.headers = {"Accept-Encoding": "gzip"}
    for line in (b"two", b"three"):
        sink.emit(line)
        sink.flush()
    receiver.headers = {}
    receiver.answer = 415  # an older server took over
    sink.emit(b"four")
    sink._loop.run_step()
    receiver.answer = 202
    sink.flush()
    assert receiver.encodings == [None, None, "gzip", "gzip", None]
    assert receiver.lines == [b"one", b"two", b"three", b"four"]
    assert (sink.refused_lines, sink.sent_lines) == (0, 4)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 0.25), ("86400", 60.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.25)]
)
def test_a_server_that_is_busy_is_asked_again_when_it_says_so(
    receiver: Receiver, sink: ServerSink, status: int, header: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer, receiver.headers = status, {"Retry-After": header}
    sink.emit(b"one")
    pause = sink._loop.run_step()
    assert seconds <= pause <= seconds * 1.25, "later by up to a quarter, so that senders do not return together"
    sink._loop.run_step()
    receiver.answer, receiver.headers = 202, {}
    sink._loop.run_step()
    assert receiver.lines == [b"one"]
    assert len(set(receiver.batches)) == 1
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "cannot send telemetry",
        "can send telemetry again",
    ]


def test_while_a_busy_server_is_waited_for_the_oldest_lines_are_dropped(
    receiver: Receiver, sink: ServerSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "MAX_HELD_LINES", 3)
    receiver.answer, receiver.headers = 503, {"Retry-After": "60"}
    for number in range(10):
        sink.emit(b"%d" % number)
        sink._loop.run_step()
    receiver.answer, receiver.headers = 202, {}
    sink.close()
    assert receiver.lines == [b"%d" % number for number in range(10)][-len(receiver.lines) :]
    assert sink.sent_lines + sink.dropped_lines == 10
    assert 3 <= sink.sent_lines <= 4


def test_a_busy_server_that_does_not_say_for_how_long_is_asked_again_soon(receiver: Receiver, sink: ServerSink) -> None:
    receiver.answer = 429
    sink.emit(b"one")
    assert sink._loop.run_step() <= 0.5
    receiver.answer = 202
    sink.close()
    assert receiver.lines == [b"one"]


def test_a_batch_that_is_too_large_is_divided_and_later_ones_are_smaller(receiver: Receiver, sink: ServerSink) -> None:
    receiver.max_lines = 30
    lines = [b"%d" % number for number in range(200)]
    for line in lines:
        sink.emit(line)
    assert sink.flush()
    assert receiver.lines == lines
    before = receiver.requests
    for line in lines[:25]:
        sink.emit(line)
    assert sink.flush()
    assert receiver.requests == before + 1
    assert len(set(receiver.batches)) == len(receiver.batches), "another content has another id"
    assert (sink.sent_lines, sink.dropped_lines, sink.refused_lines) == (225, 0, 0)


def test_a_line_that_alone_is_too_large_is_refused(receiver: Receiver, sink: ServerSink) -> None:
    receiver.max_lines = 0
    sink.emit(b"one")
    sink.emit(b"two")
    assert sink.flush()
    assert (sink.refused_lines, receiver.lines) == (2, [])


def test_closing_and_starting_may_be_repeated(receiver: Receiver) -> None:
    sink = ServerSink(address(receiver))
    sink.close()
    sink = ServerSink(address(receiver)).start().start()
    sink.close()
    sink.close()


def test_a_forked_child_sends_its_own_lines_and_none_of_its_parents(
    receiver: Receiver, sink: ServerSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "FLUSH_SECONDS", 3600.0)  # so that the second line is still held at the fork
    with sink:
        sink.emit(b"sent by the parent")
        assert sink.flush()
        sink.emit(b"held by the parent")

        def work() -> bool:
            assert sink._loop.is_running
            sink.emit(b"of the child")
            return sink.flush() and (sink.sent_lines, sink.dropped_lines) == (1, 0)

        in_child(work)
    assert receiver.lines == [b"sent by the parent", b"of the child", b"held by the parent"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_forked_child_of_one_that_does_not_send_does_not_send_either(receiver: Receiver, is_closed: bool) -> None:
    sink = ServerSink(address(receiver))
    if is_closed:
        sink.start().close()
    in_child(lambda: not sink._loop.is_running)

"""Telemetry to the CloudWatch agent, over real sockets."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast import InvalidValue
from holdfast.telemetry.sinks.agent import AgentSink
from tests.unit.forked import in_child

PATIENCE = 20.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(PATIENCE)
        yield listening


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def read_lines(connection: socket.socket, count: int) -> list[bytes]:
    """Read whole lines, until there are as many; fail if there are more."""
    connection.settimeout(PATIENCE)
    found = b""
    while found.count(b"\n") < count:
        piece = connection.recv(65_536)
        assert piece, f"closed after {found!r}"
        found += piece
    assert found.endswith(b"\n")
    return found.splitlines()


def test_over_tcp_every_document_is_a_line_of_one_connection(listener: socket.socket) -> None:
    with AgentSink(f"tcp://127.0.0.1:{port_of(listener)}") as sink:
        for number in range(1200):
            sink.emit(b"%d" % number)
        connection, _ = listener.accept()
        with connection:
            assert read_lines(connection, 1200) == [b"%d" % number for number in range(1200)]
        assert sink.flush()
    assert (sink.sent_lines, sink.dropped_lines) == (1200, 0)


def test_over_udp_every_document_is_a_datagram_and_one_that_is_too_long_is_dropped() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(PATIENCE)
        sink = AgentSink(f"udp://127.0.0.1:{port_of(receiver)}")
        for line in (b"one", b"x" * 70_000, b"three"):
            sink.emit(line)
        assert sink.flush()
        assert [receiver.recv(65_536) for _ in range(2)] == [b"one\n", b"three\n"]
        sink.close()
    assert (sink.sent_lines, sink.dropped_lines) == (2, 1)


def test_an_agent_that_restarts_gets_the_lines_after_its_restart(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    sink = AgentSink(f"tcp://127.0.0.1:{port_of(listener)}")
    for line in (b"one", b"two", b"three"):
        sink.emit(line)
        assert sink.flush()
        connection, _ = listener.accept()
        assert read_lines(connection, 1) == [line]
        connection.close()  # the sink notices it before the next line, which would be lost otherwise
    sink.close()
    assert caplog.messages == []


def test_an_agent_that_resets_its_connection_gets_the_lines_after_it(listener: socket.socket) -> None:
    sink = AgentSink(f"tcp://127.0.0.1:{port_of(listener)}")
    sink.emit(b"one")
    assert sink.flush()
    connection, _ = listener.accept()
    linger_zero = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
    connection.close()
    sink.emit(b"two")
    assert sink.flush()
    again, _ = listener.accept()
    with again:
        assert read_lines(again, 1) == [b"two"]
    sink.close()


def test_a_connection_that_breaks_in_a_batch_loses_no_line_that_was_not_accepted(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system accepts some lines and half of another, before the timeout of an agent that does not read."""
    monkeypatch.setattr("holdfast.telemetry.sinks.agent._TIMEOUT", 0.05)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sink = AgentSink(f"tcp://127.0.0.1:{port_of(listener)}")
    lines = [b"%03d" % number + b"x" * 100_000 for number in range(60)]
    for line in lines:
        sink.emit(line)
    while sink.held_lines and not sink._loop.is_failing:
        sink._loop.run_step()
    sent = sink.sent_lines
    assert 0 < sent < 60
    first, _ = listener.accept()
    with first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        seen = b""
        first.settimeout(PATIENCE)
        while piece := first.recv(1 << 20):
            seen += piece
    assert seen.split(b"\n")[:-1] == lines[:sent], "counted as sent, and arrived"
    monkeypatch.setattr("holdfast.telemetry.sinks.agent._TIMEOUT", PATIENCE)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with sink:
        again, _ = listener.accept()
        with again:
            assert read_lines(again, 60 - sent) == lines[sent:]
        assert sink.flush()
    assert (sink.sent_lines, sink.dropped_lines) == (60, 0)


@pytest.mark.parametrize("scheme", ["tcp", "udp"])
def test_an_agent_that_is_away_raises_nothing_and_its_lines_are_held(scheme: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if scheme == "tcp" else socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = port_of(unused)
    sink = AgentSink(f"{scheme}://127.0.0.1:{port}")
    for _ in range(5):
        sink.emit(b"line")
        sink.flush()
    # The first datagram is sent before the system knows that nobody listens.
    assert sink.held_lines >= (5 if scheme == "tcp" else 1)
    assert sink.held_lines + sink.sent_lines == 5
    sink.close()


def test_a_forked_child_has_a_connection_of_its_own(listener: socket.socket) -> None:
    with AgentSink(f"tcp://127.0.0.1:{port_of(listener)}") as sink:
        sink.emit(b"of the parent")
        assert sink.flush()

        def work() -> bool:
            sink.emit(b"of the child")
            return sink.flush()

        in_child(work)
        sink.emit(b"of the parent again")
        assert sink.flush()
        parent, _ = listener.accept()
        child, _ = listener.accept()
        with parent, child:
            assert read_lines(child, 1) == [b"of the child"]
            assert read_lines(parent, 2) == [b"of the parent", b"of the parent again"]


@pytest.mark.parametrize(
    "address", ["127.0.0.1:25888", "http://127.0.0.1", "tcp://", "tcp://host:port", "tcp://h:99999"]
)
def test_an_address_that_can_be_none_is_refused_and_named(address: str) -> None:
    with pytest.raises(InvalidValue, match="of the CloudWatch agent"):
        AgentSink(address)


def test_the_port_is_the_agents_unless_told() -> None:
    assert [(sink._host, sink._port) for sink in (AgentSink(), AgentSink("udp://agent.local"))] == [
        ("127.0.0.1", 25888),
        ("agent.local", 25888),
    ]

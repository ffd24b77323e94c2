"""Being told which zones are out: over streams and sockets, by a server that waits for nobody."""

import json
import re
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from holdfast import Zone, ZoneState, ZoneStatus
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore
from tests.integration.server.listen import Heard, events, until
from tests.integration.server.process import STUCK, HoldfastServer
from tests.support.proxy import LossyProxy

SETTINGS = "[status]\nrefresh_interval = 0.1\n"
ZONE = "use1-az1"
RESTARTING = 1012


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("push"), settings=SETTINGS) as server:
        yield server


@pytest.fixture
def change(server: HoldfastServer) -> Iterator[Callable[..., Any]]:
    with server.operator() as operator:

        def change(workload: str, *, out: bool = True) -> Any:
            body = {"state": "out" if out else "in", "reason": f"test {workload}"}
            return operator.put(f"/v1/zones/{ZONE}/{workload}", json=body).raise_for_status().json()

        yield change


def socket_of(server: HoldfastServer, last: str = "") -> ClientConnection:
    query = f"?last_event_id={last}" if last else ""
    address = f"ws://127.0.0.1:{server.port}/v1/status/socket{query}"
    return connect(address, proxy=None, open_timeout=STUCK, close_timeout=STUCK)


def said(listener: ClientConnection) -> Any:
    return json.loads(listener.recv(STUCK))


def settled(stream: Iterator[Heard]) -> Heard:
    """The next confirmed status: on a slow machine the provisional one before it, which has an end, is sent as well."""
    return next(event for event in stream if event.data["status"]["expires"] is None)


class TestStreams:
    def test_who_comes_hears_all_that_is_known_and_then_every_change(
        self, server: HoldfastServer, change: Callable[..., Any]
    ) -> None:
        before = change("first")
        with events(server) as stream:
            snapshot = next(stream)
            assert snapshot.name == "snapshot"
            assert before in snapshot.data["statuses"]
            written = [change("second"), change("second", out=False)]
            told = [next(stream), next(stream)]
        assert [event.name for event in told] == ["status", "status"]
        assert [event.data["status"] for event in told] == written
        assert [event.data["revision"] - snapshot.data["revision"] for event in told] == [1, 2]
        assert {event.data["run"] for event in told} == {snapshot.data["run"]}

    def test_who_was_cut_off_hears_exactly_what_was_missed(
        self, server: HoldfastServer, change: Callable[..., Any]
    ) -> None:
        with LossyProxy("127.0.0.1", server.port) as proxy:
            with events(server, port=proxy.port) as stream:
                next(stream)
                change("cut", out=True)
                last = settled(stream).id
                proxy.cut()
            missed = [change("cut", out=False), change("cut"), change("cut", out=False)]
            with events(server, last, port=proxy.port) as stream:
                assert [settled(stream).data["status"] for _ in missed] == missed
                later = change("cut")
                assert settled(stream).data["status"] == later

    @pytest.mark.parametrize("last", ["garbage", "00000000-1", "-", "9" * 5000, "%00"])
    def test_who_comes_with_an_id_that_is_not_known_begins_anew(self, server: HoldfastServer, last: str) -> None:
        with events(server, last) as stream:
            assert next(stream).name == "snapshot"

    def test_a_listener_that_has_gone_is_not_kept(self, server: HoldfastServer, change: Callable[..., Any]) -> None:
        with ExitStack() as opened:
            streams = [opened.enter_context(events(server)) for _ in range(20)]
            assert {next(stream).name for stream in streams} == {"snapshot"}
            meanwhile = open_files(server)
        until(lambda: open_files(server) <= meanwhile - 20)
        change("nobody")


class TestSockets:
    def test_they_are_told_the_same(self, server: HoldfastServer, change: Callable[..., Any]) -> None:
        with events(server) as stream, socket_of(server) as listener:
            first, snapshot = next(stream), said(listener)
            assert (snapshot["event"], snapshot["id"]) == ("snapshot", first.id)
            assert snapshot["data"]["statuses"] == first.data["statuses"]
            for out in (True, False):
                change("socket", out=out)
                event, message = next(stream), said(listener)
                assert message == {"id": event.id, "event": "status", "data": event.data}

    def test_who_comes_back_hears_exactly_what_was_missed(
        self, server: HoldfastServer, change: Callable[..., Any]
    ) -> None:
        with socket_of(server) as listener:
            last = said(listener)["id"]
        missed = [change("back"), change("back", out=False)]
        with socket_of(server, last) as listener:
            assert [said(listener)["data"]["status"] for _ in missed] == missed
        with socket_of(server, "nonsense") as listener:
            assert said(listener)["event"] == "snapshot"

    def test_what_a_listener_says_is_not_listened_to(self, server: HoldfastServer, change: Callable[..., Any]) -> None:
        with socket_of(server) as listener:
            said(listener)
            for junk in ("", "{}", "x" * 1000, b"\0\xff" * 100, '{"event": "status"}') * 20:
                listener.send(junk)
            written = change("junk")
            assert said(listener)["data"]["status"] == written

    def test_who_says_too_much_is_sent_away_and_nobody_else(
        self, server: HoldfastServer, change: Callable[..., Any]
    ) -> None:
        with socket_of(server) as quiet, socket_of(server) as loud:
            said(quiet)
            said(loud)
            with suppress(ConnectionClosed):  # it may be over before everything was sent
                loud.send("x" * 5_000_000)
            with pytest.raises(ConnectionClosed) as closed:
                loud.recv(STUCK)
            assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
            written = change("loud")
            assert said(quiet)["data"]["status"] == written

    def test_a_socket_that_is_torn_off_is_not_kept_and_not_complained_of(self, server: HoldfastServer) -> None:
        listeners = [socket_of(server) for _ in range(10)]
        meanwhile = open_files(server)
        for listener in listeners:
            # Gone without a word, and with what was sent still unread.
            listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            listener.socket.close()
        until(lambda: open_files(server) <= meanwhile - 10)
        assert not [entry for entry in server.entries() if entry["level"] == "error"]


class TestItsEnd:
    def test_a_server_that_stops_ends_streams_and_sockets_in_time_and_afterwards_begins_anew(
        self, tmp_path: Path
    ) -> None:
        with HoldfastServer.start(tmp_path, settings=SETTINGS) as server, ExitStack() as opened:
            streams = [opened.enter_context(events(server)) for _ in range(5)]
            sockets = [opened.enter_context(socket_of(server)) for _ in range(5)]
            ids = {next(stream).id for stream in streams} | {said(listener)["id"] for listener in sockets}
            assert server.signal(signal.SIGTERM) <= 2 + 3
            assert server.process.returncode == 0
            for stream in streams:
                assert list(stream) == []
            for listener in sockets:
                with pytest.raises(ConnectionClosed) as closed:
                    listener.recv(STUCK)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == RESTARTING
            assert not [entry for entry in server.entries() if entry["level"] in {"error", "warning"}]
            assert server.entries()[-1]["message"] == "stopped"
        [last] = ids
        with HoldfastServer.start(tmp_path, settings=SETTINGS) as again:
            with events(again, last) as stream:
                assert next(stream).name == "snapshot"
            with socket_of(again, last) as listener:
                assert said(listener)["event"] == "snapshot"


class TestTheSlow:
    def test_who_never_reads_is_cut_off_and_nobody_else_waits(self, tmp_path: Path) -> None:
        count, reason = 200, "x" * 10_000
        with (
            HoldfastServer.start(tmp_path, settings=SETTINGS) as server,
            SqliteDatabase(tmp_path / "data" / "status.sqlite") as database,
            closing(listening_socket(server, "/v1/status/events")) as slow,
            closing(listening_socket(server, "/v1/status/socket", *UPGRADE)) as slow_socket,
            events(server) as stream,
        ):
            next(stream)
            store = SqlStatusStore(database)
            versions = [0] * count
            for round_number in range(4):  # 8 MB: more than any buffer between here and there
                for number in range(count):
                    written = store.write(status(f"w{number}", reason, out=round_number % 2 == 0), versions[number])
                    versions[number] = written.version
                # Some come in one reading, some in the next; the last version of all of them comes.
                left = set(range(count))
                while left:
                    change = next(stream).data["status"]
                    if change["version"] == versions[int(change["workload"][1:])]:
                        left.discard(int(change["workload"][1:]))
            entry = server.entry(**{"url.path": "/v1/status/events"})
            assert entry["http.response.status_code"] == 200, "its handler has ended, although nothing was read"
            for connection in (slow, slow_socket):
                assert 0 < len(received(connection)) < 4 * count * len(reason), "and its connection was closed"


UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


class TestTheMany:
    def test_a_thousand_who_come_back_at_once_are_all_served_and_meanwhile_balancers_are_answered(
        self, server: HoldfastServer, change: Callable[..., Any]
    ) -> None:
        count = 1000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))
        with ExitStack() as opened, server.client() as client:
            request = b"GET /v1/status/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            heard: dict[socket.socket, bytes] = {}
            selector = opened.enter_context(selectors.DefaultSelector())

            def listen() -> None:
                for connection in heard:
                    selector.unregister(connection)
                    connection.close()
                heard.clear()
                for _ in range(count):
                    connection = opened.enter_context(closing(server.connect()))
                    connection.sendall(request)
                    selector.register(connection, selectors.EVENT_READ)
                    heard[connection] = b""

            def hear(word: bytes) -> list[float]:
                """Until all have heard the word; returns how long a balancer waited meanwhile."""
                waits, end = [], time.monotonic() + STUCK
                while not all(word in data for data in heard.values()):
                    assert time.monotonic() < end
                    for key, _ in selector.select(0.05):
                        connection = key.fileobj
                        assert isinstance(connection, socket.socket)
                        data = connection.recv(65_536)
                        assert data, "cut off"
                        heard[connection] += data
                    begun = time.monotonic()
                    assert client.get("/status/use1-az2").status_code == 200
                    waits.append(time.monotonic() - begun)
                return waits

            listen()
            hear(b"event: snapshot")
            listen()
            assert max(hear(b"event: snapshot")) < 5
            written = change("thousand")
            hear(f'"version":{written["version"]}'.encode())
            hear(b'"reason":"test thousand"')


def status(workload: str, reason: str, *, out: bool) -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(ZONE),
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=1.0,
        by="test",
        reason=reason,
    )


def listening_socket(server: HoldfastServer, path: str, *headers: str) -> socket.socket:
    """A connection that asks for events, and has room for few of them."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(STUCK)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode())
    assert re.match(rb"HTTP/1.1 (200|101)", connection.recv(64))
    return connection


def received(connection: socket.socket) -> bytes:
    data = b""
    while more := connection.recv(1 << 20):
        data += more
    return data


def open_files(server: HoldfastServer) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))

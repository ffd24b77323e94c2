"""Zone statuses over HTTP: asked by balancers and hosts, changed by operators, remembered with who and when."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.integration.server.listen import events, until
from tests.integration.server.process import STUCK, HoldfastServer, holdfast

ZONE, OTHER = "use1-az1", "use1-az2"
Change: TypeAlias = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    settings = "[status]\nrefresh_interval = 0.1\n"
    with HoldfastServer.start(tmp_path_factory.mktemp("status"), settings=settings) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: HoldfastServer) -> Iterator[httpx.Client]:
    """A host or a balancer: without a credential."""
    with server.client() as client:
        yield client


@pytest.fixture
def change(server: HoldfastServer, client: httpx.Client) -> Iterator[Change]:
    """Changes a status as an operator; in the end, all zones are in."""
    with server.operator() as operator:

        def change(path: str, **wanted: Any) -> httpx.Response:
            return operator.put(f"/v1/zones/{path}", json={"reason": "test", **wanted})

        yield change
        for status in client.get("/v1/status").json()["statuses"]:
            if status["state"] != "in":
                workload = f"/{status['workload']}" if status["workload"] else ""
                change(f"{status['zone']}{workload}", state="in").raise_for_status()


class TestAsking:
    def test_a_zone_that_nobody_took_out_is_in(self, client: httpx.Client) -> None:
        answer = client.get(f"/status/{ZONE}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == {"zone": ZONE, "workload": None, "state": "in", "since": None, "reason": None}
        assert int(answer.headers["age"]) < STUCK
        assert answer.headers["cache-control"] == "no-cache"

    def test_a_zone_that_is_out_answers_with_an_error_until_it_is_in_again(
        self, client: httpx.Client, change: Change
    ) -> None:
        before = time.time()
        change(ZONE, state="out", reason="gray failure").raise_for_status()
        answer = client.get(f"/status/{ZONE}")
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/json")
        body = answer.json()
        assert before <= body.pop("since") <= time.time()
        assert body == {"zone": ZONE, "workload": None, "state": "out", "reason": "gray failure"}
        assert client.get(f"/status/{OTHER}").status_code == 200
        change(ZONE, state="in").raise_for_status()
        assert client.get(f"/status/{ZONE}").status_code == 200

    def test_probes_may_ask_without_a_body(self, client: httpx.Client, change: Change) -> None:
        for path in (f"/status/{ZONE}", f"/status/{ZONE}/shop"):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
        change(ZONE, state="out").raise_for_status()
        for path in (f"/status/{ZONE}", f"/status/{ZONE}/shop"):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (500, b"")

    def test_a_zone_can_be_out_for_one_workload(self, client: httpx.Client, change: Change) -> None:
        change(f"{ZONE}/shop", state="out").raise_for_status()
        paths = (ZONE, f"{ZONE}/shop", f"{ZONE}/cart")
        assert [client.get(f"/status/{path}").status_code for path in paths] == [200, 500, 200]
        change(ZONE, state="out").raise_for_status()
        assert [client.get(f"/status/{path}").status_code for path in paths] == [500, 500, 500]

    def test_who_knows_that_a_zone_is_in_need_not_be_told_again(self, client: httpx.Client, change: Change) -> None:
        tag = client.get(f"/status/{ZONE}").headers["etag"]
        for known in (tag, "*"):
            answer = client.get(f"/status/{ZONE}", headers={"If-None-Match": known})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert client.get(f"/status/{ZONE}", headers={"If-None-Match": '"other"'}).status_code == 200
        change(ZONE, state="out").raise_for_status()
        for known in (tag, "*"):
            answer = client.get(f"/status/{ZONE}", headers={"If-None-Match": known})
            assert answer.status_code == 500, "never as if nothing had happened"
            assert "etag" not in answer.headers

    @pytest.mark.parametrize(
        "path",
        [
            "use9-az9",
            "us-east-1a",
            "%00",
            "%ff%fe",
            "%F0%9F%98%80",
            "a%20b",
            "..",
            "%2e%2e%2f%2e%2e",
            "a/b/c",
            "a//b",
            "'%3B%20drop%20table%20x%3B--",
            "%22%7D%0d%0aX-Odd:%201",
            "x" * 7_000,
            "z/" + "x" * 7_000,
            "x" * 50_000,
        ],
        ids=lambda path: f"{path[:24]}{len(path) if len(path) > 24 else ''}",
    )
    def test_an_odd_path_is_never_taken_for_a_zone_that_is_out(self, server: HoldfastServer, path: str) -> None:
        with closing(server.connect()) as connection:
            connection.sendall(f"GET /status/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head, _, body = everything(connection).partition(b"\r\n\r\n")
        expected = {200, 404} if len(path) < 100 else {400} if len(path) < 8_000 else {431}
        assert int(head.split()[1]) in expected
        assert len(body) < 1_000, "many unread answers would fill the buffers of the server"
        assert b"X-Odd" not in head
        assert json.loads(body).get("state", "in") == "in"

    def test_the_methods_of_a_status_are_named(self, client: httpx.Client) -> None:
        assert client.options(f"/status/{ZONE}").headers["allow"] == "GET, HEAD, OPTIONS"
        assert client.put(f"/status/{ZONE}", json={"state": "out"}).status_code == 405


class TestEverything:
    def test_all_that_is_known_has_a_name_that_changes_with_it(self, client: httpx.Client, change: Change) -> None:
        written = change(ZONE, state="out").json()
        answer = client.get("/v1/status")
        known = answer.json()
        assert written in known["statuses"]
        assert known["age"] < STUCK
        assert answer.headers["etag"] == f'W/"{known["run"]}-{known["revision"]}"'
        assert float(answer.headers["holdfast-time"]) == known["at"] == pytest.approx(time.time(), abs=STUCK)
        same = client.get("/v1/status", headers={"If-None-Match": answer.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert float(same.headers["holdfast-time"]) >= known["at"]
        assert int(same.headers["age"]) < STUCK
        change(ZONE, state="in").raise_for_status()
        other = client.get("/v1/status", headers={"If-None-Match": answer.headers["etag"]})
        assert (other.status_code, other.json()["revision"]) == (200, known["revision"] + 1)


class TestChanging:
    def test_it_is_recorded_with_who_when_and_why(
        self, server: HoldfastServer, client: httpx.Client, change: Change
    ) -> None:
        before = time.time()
        assert server.token is not None
        by = f"credential {server.token.split('_')[1]}"
        out = change(f"{ZONE}/shop", state="out", reason="  gray  ", **{"for": 3600}).json()
        assert (out["state"], out["by"], out["reason"], out["workload"]) == ("out", by, "gray", "shop")
        assert before <= out["since"] <= time.time()
        assert out["expires"] == pytest.approx(out["since"] + 3600)
        back = change(f"{ZONE}/shop", state="in", reason="mended").json()
        assert back["version"] > out["version"]
        with server.operator() as operator:
            newest, second = operator.get("/v1/status/history", params={"limit": 2}).json()
        assert (newest["status"], second["status"]) == (back, out)
        assert newest["number"] == second["number"] + 1
        assert before <= second["seen_at"] <= newest["seen_at"] <= time.time()

    def test_a_zone_that_is_out_for_a_while_comes_in_by_itself(
        self, server: HoldfastServer, client: httpx.Client, change: Change
    ) -> None:
        change(ZONE, state="out", **{"for": 1}).raise_for_status()
        assert client.get(f"/status/{ZONE}").status_code == 500
        until(lambda: client.get(f"/status/{ZONE}").status_code == 200)
        with server.operator() as operator:
            until(lambda: operator.get("/v1/status/history").json()[0]["status"]["by"] == "expiry")

    def test_a_second_zone_is_refused_unless_by_force(self, client: httpx.Client, change: Change) -> None:
        change(ZONE, state="out").raise_for_status()
        refused = change(OTHER, state="out")
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:holdfast:problem:conflict"
        assert refused.json()["detail"].startswith("zone use1-az1 is out, and only one zone of a region may be out: ")
        assert client.get(f"/status/{OTHER}").status_code == 200
        change(OTHER, state="out", force=True).raise_for_status()
        assert client.get(f"/status/{OTHER}").status_code == 500

    def test_a_zone_that_is_in_stays_in_whatever_is_said_of_how_long(self, change: Change) -> None:
        refused = change(ZONE, state="in", **{"for": 60})
        assert (refused.status_code, "`for` limits how long a zone is out" in refused.json()["detail"]) == (409, True)
        assert change(ZONE, state="in").status_code == 200

    @pytest.mark.parametrize(
        ("wanted", "name"),
        [
            ({"state": "out", "until": 5}, None),
            ({"state": "out", "seconds": 5}, None),
            ({"reason": "test"}, None),
            ({"state": "yes"}, "state"),
            ({"state": "out", "reason": ""}, "reason"),
            ({"state": "out", "reason": "x" * 501}, "reason"),
            ({"state": "out", "reason": None}, "reason"),
            ({"state": "out", "for": 0}, "for"),
            ({"state": "out", "for": -1}, "for"),
            ({"state": "out", "for": 31_536_001}, "for"),
            ({"state": "out", "for": "1h"}, "for"),
            ({"state": "out", "force": []}, "force"),
        ],
        ids=str,
    )
    def test_the_wrong_part_of_a_change_is_named(
        self, client: httpx.Client, change: Change, wanted: dict[str, Any], name: str | None
    ) -> None:
        refused = change(ZONE, **wanted)
        assert refused.status_code == 400
        assert [error["name"] for error in refused.json()["errors"]] == [name]
        assert client.get(f"/status/{ZONE}").status_code == 200

    @pytest.mark.parametrize("reason", [" ", "\t\n", "a\0b", "a\u202eb"])
    def test_a_reason_says_something(self, client: httpx.Client, change: Change, reason: str) -> None:
        refused = change(ZONE, state="out", reason=reason)
        assert refused.status_code == 400
        assert refused.json()["errors"] == [
            {
                "in": "body",
                "name": "reason",
                "detail": "expected one line of text without control characters, and not blank",
            }
        ]
        assert client.get(f"/status/{ZONE}").status_code == 200

    @pytest.mark.parametrize(
        ("path", "complaint"),
        [
            ("us-east-1a", "us-east-1a is the name of a zone"),
            ("-", "expected an AZ-ID"),
            ("x" * 65, "expected an AZ-ID"),
            ("%F0%9F%98%80", "expected an AZ-ID"),
            (f"{ZONE}/a%20b", "expected 1 to 128 letters"),
            (f"{ZONE}/{'x' * 129}", "expected 1 to 128 letters"),
            (f"{ZONE}/{quote('ä')}", "expected 1 to 128 letters"),
        ],
    )
    def test_what_cannot_be_a_zone_or_a_workload_is_refused(self, change: Change, path: str, complaint: str) -> None:
        refused = change(path, state="out")
        assert (refused.status_code, refused.json()["type"]) == (400, "urn:holdfast:problem:invalid-value")
        assert complaint in refused.json()["detail"]

    @pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", ""])
    def test_history_is_as_long_as_is_asked_for_within_bounds(self, server: HoldfastServer, limit: str) -> None:
        with server.operator() as operator:
            assert operator.get("/v1/status/history", params={"limit": limit}).status_code == 400
            assert len(operator.get("/v1/status/history", params={"limit": 1}).json()) <= 1
            assert operator.get("/v1/status/history", params={"limit": 1000}).status_code == 200

    def test_of_two_operators_who_take_different_zones_out_at_once_at_most_one_succeeds(
        self, server: HoldfastServer, client: httpx.Client, change: Change
    ) -> None:
        with ThreadPoolExecutor(2) as threads:
            for _ in range(25):
                codes = dict(
                    zip(
                        (ZONE, OTHER),
                        threads.map(lambda zone: change(zone, state="out").status_code, (ZONE, OTHER), timeout=STUCK),
                        strict=True,
                    )
                )
                assert set(codes.values()) <= {200, 409}
                out = {zone for zone in codes if client.get(f"/status/{zone}").status_code == 500}
                assert out == {zone for zone, code in codes.items() if code == 200}
                assert len(out) <= 1
                for zone in out:
                    change(zone, state="in").raise_for_status()


CLOSED = """
[status]
allow_anonymous_reads = false
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
[[workload]]
name = "cart"
region = "us-east-1"
zones = ["use1-az2", "use1-az3"]
"""
NEW: dict[str, dict[str, Any]] = {
    "viewer": {},
    "tracker": {},
    "tenant": {"tenant": "tenant-1"},
    "sender": {"workloads": ["shop"]},
}
READS = ["/status/use1-az1", "/status/use1-az1/shop", "/v1/status", "/v1/status/events"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    """A server that knows its workloads, and tells nobody without a credential."""
    with HoldfastServer.start(tmp_path_factory.mktemp("closed"), settings=CLOSED) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(closed: HoldfastServer) -> dict[str, str]:
    with closed.operator() as operator:
        return {
            role: operator.post("/v1/credentials", json={"role": role, **more}).raise_for_status().json()["token"]
            for role, more in NEW.items()
        }


class TestClosed:
    @pytest.mark.parametrize("path", READS)
    def test_nobody_reads_without_a_credential(self, closed: HoldfastServer, tokens: dict[str, str], path: str) -> None:
        codes = []
        for token in (None, tokens["tenant"], tokens["sender"], tokens["viewer"], tokens["tracker"]):
            with closed.client(token) as client, client.stream("GET", path) as answer:
                codes.append(answer.status_code)
        assert codes == [401, 403, 403, 200, 200]

    def test_nobody_listens_over_a_socket_without_a_credential(
        self, closed: HoldfastServer, tokens: dict[str, str]
    ) -> None:
        address = f"ws://127.0.0.1:{closed.port}/v1/status/socket"
        for token in (None, tokens["tenant"]):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=headers, proxy=None):
                pass
            assert refused.value.response.status_code == 403
        headers = {"Authorization": f"Bearer {tokens['viewer']}"}
        with connect(address, additional_headers=headers, proxy=None) as socket:
            assert json.loads(socket.recv(STUCK))["event"] == "snapshot"

    def test_who_has_a_credential_listens(self, closed: HoldfastServer, tokens: dict[str, str]) -> None:
        with events(closed, token=tokens["viewer"]) as stream:
            assert next(stream).name == "snapshot"

    def test_the_streams_of_a_credential_end_when_the_command_line_revokes_it(self, closed: HoldfastServer) -> None:
        with ExitStack() as opened:
            operator = opened.enter_context(closed.operator())
            revoked, kept = (operator.post("/v1/credentials", json={"role": "viewer"}).json() for _ in range(2))

            def listen(token: str) -> tuple[list[httpx.Response], ClientConnection]:
                client = opened.enter_context(closed.client(token))
                streams = [
                    opened.enter_context(client.stream("GET", path)) for path in ("/v1/events", "/v1/status/events")
                ]
                address = f"ws://127.0.0.1:{closed.port}/v1/status/socket"
                headers = {"Authorization": f"Bearer {token}"}
                return streams, opened.enter_context(connect(address, additional_headers=headers, proxy=None))

            streams, socket = listen(revoked["token"])
            others, other_socket = listen(kept["token"])
            finished = holdfast("credential", "revoke", revoked["credential"]["id"], directory=closed.directory)
            assert finished.returncode == 0, finished.stderr
            for stream in streams:
                assert b"event: " in stream.read()  # until its end
            assert json.loads(socket.recv(STUCK))["event"] == "snapshot"
            with pytest.raises(ConnectionClosed) as over:
                socket.recv(STUCK)
            assert over.value.rcvd is not None
            assert (over.value.rcvd.code, "revoked" in over.value.rcvd.reason) == (1008, True)
            for state in ("out", "in"):
                body = {"state": state, "reason": "still told"}
                operator.put("/v1/zones/use1-az1", json=body).raise_for_status()
            for stream in others:
                assert next(line for line in stream.iter_lines() if "still told" in line)
            assert json.loads(other_socket.recv(STUCK))["event"] == "snapshot"
            assert "still told" in other_socket.recv(STUCK)

    def test_what_asks_for_a_credential_says_so_in_its_description(self, closed: HoldfastServer) -> None:
        with closed.client() as client:
            paths = client.get("/openapi.json").json()["paths"]
        for path in ("/status/{zone}", "/status/{zone}/{workload}", "/v1/status", "/v1/status/events"):
            assert paths[path]["get"]["security"] == [{"credential": []}]
            assert {"401", "403", "503"} <= paths[path]["get"]["responses"].keys()

    @pytest.mark.parametrize(
        ("path", "code", "complaint"),
        [
            ("use1-az9", 404, "no zone use1-az9 is configured: expected one of use1-az1, use1-az2, use1-az3"),
            ("use1-az3/shop", 404, "no zone use1-az3 is configured for shop: expected one of use1-az1, use1-az2"),
            ("use1-az1/tv", 404, "no workload tv is configured: expected one of shop, cart"),
            ("use1-az3/cart", 200, None),
            ("use1-az3", 200, None),
        ],
    )
    def test_a_slip_of_an_operator_is_found_where_workloads_are_configured(
        self, closed: HoldfastServer, path: str, code: int, complaint: str | None
    ) -> None:
        with closed.operator() as operator:
            answer = operator.put(f"/v1/zones/{path}", json={"state": "out", "reason": "test"})
            assert (answer.status_code, answer.json().get("detail")) == (code, complaint)
            if code == 200:
                operator.put(f"/v1/zones/{path}", json={"state": "in", "reason": "test"}).raise_for_status()


def everything(connection: socket.socket) -> bytes:
    data = b""
    while more := connection.recv(65_536):
        data += more
    return data

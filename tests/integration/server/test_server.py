"""The real server, spoken to over HTTP: who is let in, what errors look like, how it starts and stops."""

import http
import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from holdfast.engines.sqlite import SqliteDatabase
from tests.integration.server.process import COMMAND, STUCK, HoldfastServer, environment, holdfast
from tests.services.postgres import RestartablePostgres
from tests.services.start import free_port
from tests.table import rows

GUARDED = [
    ("GET", "/v1/whoami", {"operator", "viewer", "tenant", "sender", "tracker"}),
    ("GET", "/v1/events", {"operator", "viewer"}),
    ("GET", "/v1/credentials", {"operator"}),
    ("POST", "/v1/credentials", {"operator"}),
    ("DELETE", "/v1/credentials/000000000000", {"operator"}),
    ("POST", "/v1/telemetry", {"operator", "sender"}),
    ("GET", "/v1/overview", {"operator", "viewer"}),
    ("GET", "/v1/series", {"operator", "viewer"}),
    ("GET", "/v1/verdicts", {"operator", "viewer"}),
    ("GET", "/v1/verdicts/explanation", {"operator", "viewer"}),
    ("GET", "/v1/alarms", {"operator", "viewer"}),
    ("GET", "/v1/alarms/history", {"operator", "viewer"}),
    ("GET", "/v1/alarms/use1-az1-silent", {"operator", "viewer"}),
    ("GET", "/v1/deploys", {"operator", "viewer"}),
    ("POST", "/v1/deploys", {"operator"}),
    ("POST", "/v1/deploys/end", {"operator"}),
    ("GET", "/v1/evacuations", {"operator", "viewer"}),
    ("GET", "/v1/evacuations/{run}", {"operator", "viewer"}),
    ("POST", "/v1/evacuations", {"operator"}),
    ("POST", "/v1/evacuations/plan", {"operator"}),
    ("POST", "/v1/evacuations/{run}/restore", {"operator"}),
    ("POST", "/v1/evacuations/{run}/resume", {"operator"}),
    ("GET", "/v1/alerts", {"operator", "viewer"}),
    ("GET", "/v1/alerts/verdict-1", {"operator", "viewer"}),
    ("POST", "/v1/alerts/acknowledge", {"operator"}),
    ("POST", "/v1/alerts/snooze", {"operator"}),
    ("GET", "/v1/status/history", {"operator", "viewer"}),
    ("GET", "/metrics", {"operator", "viewer"}),
    ("GET", "/v1/queues", {"operator", "viewer"}),
    ("GET", "/v1/queues/mail", {"operator", "viewer"}),
    ("GET", "/v1/queues/mail/usage?tenant=tenant-1", {"operator", "viewer", "tenant"}),
    ("POST", "/v1/queues/mail/messages?tenant=tenant-1", {"operator", "tenant"}),
    ("POST", "/v1/queues/mail/messages/batch?tenant=tenant-1", {"operator", "tenant"}),
    ("GET", "/v1/queues/mail/messages/17", {"operator", "viewer", "tenant"}),
    ("GET", "/v1/queues/mail/dead", {"operator", "viewer"}),
    ("POST", "/v1/queues/mail/redrive", {"operator"}),
    ("POST", "/v1/queues/mail/sweep", {"operator"}),
    ("GET", "/v1/queues/mail/policy", {"operator", "viewer"}),
    ("PUT", "/v1/queues/mail/policy", {"operator"}),
    ("GET", "/v1/queues/mail/limits", {"operator", "viewer"}),
    ("PUT", "/v1/queues/mail/limits", {"operator"}),
    ("DELETE", "/v1/queues/mail/limits", {"operator"}),
    ("PUT", "/v1/zones/use1-az1", {"operator"}),
    ("PUT", "/v1/zones/use1-az1/shop", {"operator"}),
]

by_route = rows("method, path, allowed", GUARDED)

STOP_WITHIN = 2.0
SLOW_MACHINE = 3.0
"""On top of what the server promises: for a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def tokens(server: HoldfastServer) -> dict[str, str]:
    """A token for every role, and one that has been revoked."""
    with server.operator() as operator:

        def create(role: str, **more: Any) -> Any:
            return operator.post("/v1/credentials", json={"role": role, **more}).raise_for_status().json()

        made = {
            "operator": create("operator"),
            "viewer": create("viewer"),
            "tenant": create("tenant", tenant="tenant-1"),
            "sender": create("sender", workloads=["shop"]),
            "tracker": create("tracker"),
            "revoked": create("operator"),
        }
        operator.delete(f"/v1/credentials/{made['revoked']['credential']['id']}").raise_for_status()
    return {who: created["token"] for who, created in made.items()}


def problem_of(response: httpx.Response, status: int, kind: str = "about:blank") -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["type"] == (kind if kind == "about:blank" else f"urn:holdfast:problem:{kind}")
    assert problem["title"] == http.HTTPStatus(status).phrase
    assert problem["status"] == status
    assert problem["instance"] == response.request.url.path
    return problem


def status_of(client: httpx.Client, method: str, path: str) -> int:
    with client.stream(method, path) as response:  # a stream of events has no end to wait for
        return response.status_code


def refusal(finished: subprocess.CompletedProcess[str], code: int) -> dict[str, str]:
    """The error of a server that did not start: one JSON object, after what it logged."""
    assert finished.returncode == code, finished.stderr
    assert finished.stdout == ""
    lines = [json.loads(line) for line in finished.stderr.splitlines()]
    error: dict[str, str] = lines[-1]
    assert error.keys() == {"error", "detail"}
    return error


class TestAnswers:
    @pytest.mark.parametrize("path", ["/health", "/ready"])
    def test_probes_may_ask_without_a_body(self, server: HoldfastServer, path: str) -> None:
        with server.client() as client:
            response = client.head(path)
        assert (response.status_code, response.content) == (200, b"")

    @pytest.mark.parametrize("path", ["/", "/page.css", "/v1/status"])
    def test_a_head_request_is_answered_like_get_without_the_body(self, server: HoldfastServer, path: str) -> None:
        with server.client() as client:
            head, full = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        varying = {"date", "age", "content-length", "holdfast-time"}
        assert {*head.headers.items()} - {*full.headers.items()} <= {(name, head.headers.get(name)) for name in varying}
        assert head.headers.keys() == full.headers.keys()
        assert path == "/v1/status" or head.headers["content-length"] == str(len(full.content))

    def test_health_needs_no_credential(self, server: HoldfastServer) -> None:
        with server.client() as client:
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/ready").json() == {"status": "ready"}

    def test_a_credential_is_told_who_it_is(self, server: HoldfastServer, tokens: dict[str, str]) -> None:
        with server.client(tokens["tenant"]) as client:
            me = client.get("/v1/whoami").json()
        assert (me["role"], me["tenant"], me["revoked_at"]) == ("tenant", "tenant-1", None)
        assert me["id"] == tokens["tenant"].split("_")[1]

    def test_what_is_created_is_listed_without_its_secret_and_can_be_revoked(self, server: HoldfastServer) -> None:
        with server.operator() as operator:
            response = operator.post("/v1/credentials", json={"role": "viewer", "note": "for a test"})
            assert response.status_code == 201
            assert response.headers["cache-control"] == "no-store", "the token is in it"
            created = response.json()
            listing = operator.get("/v1/credentials")
            assert created["credential"] in listing.json()
            assert created["token"].split("_")[2] not in listing.text
            revoked = operator.delete(f"/v1/credentials/{created['credential']['id']}")
            assert revoked.status_code == 200
            assert revoked.json()["revoked_at"] is not None
            assert operator.delete(f"/v1/credentials/{created['credential']['id']}").json() == revoked.json()

    def test_a_stream_of_events_says_that_it_is_live(self, server: HoldfastServer, tokens: dict[str, str]) -> None:
        with server.client(tokens["viewer"]) as client, client.stream("GET", "/v1/events") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.iter_lines()
            retry, blank, number, *hello = (next(lines) for _ in range(5))
            assert (retry.partition(":")[0], blank, number.partition(":")[0]) == ("retry", "", "id")
            assert hello == ["event: hello", "data: {}"]


class TestWhoIsLetIn:
    @pytest.mark.parametrize("who", ["operator", "viewer", "tenant", "sender", "tracker"])
    @by_route
    def test_every_route_lets_its_roles_through_and_no_other(
        self, server: HoldfastServer, tokens: dict[str, str], method: str, path: str, allowed: set[str], who: str
    ) -> None:
        with server.client(tokens[who]) as client:
            status = status_of(client, method, path)
        if who in allowed:
            assert status in (200, 202, 400, 404)  # the request that was let through may still be wrong
        else:
            assert status == 403

    @pytest.mark.parametrize("who", ["nobody", "revoked", "stranger", "malformed", "bare"])
    @by_route
    def test_no_route_lets_anybody_else_through(
        self, server: HoldfastServer, tokens: dict[str, str], method: str, path: str, allowed: set[str], who: str
    ) -> None:
        headers = {
            "nobody": {},
            "revoked": {"Authorization": f"Bearer {tokens['revoked']}"},
            "stranger": {"Authorization": f"Bearer hf_000000000000_{'0' * 64}"},
            "malformed": {"Authorization": "Bearer nonsense"},
            "bare": {"Authorization": tokens["operator"]},
        }[who]
        with server.client(**headers) as client:
            response = client.request(method, path)
        problem_of(response, 401, "credential-refused")
        assert response.headers["www-authenticate"] == 'Bearer realm="holdfast"'

    def test_every_route_that_asks_for_a_credential_is_in_this_test(self, server: HoldfastServer) -> None:
        with server.client() as client:
            paths = client.get("/openapi.json").json()["paths"]
        described = {
            (method.upper(), path)
            for path, methods in paths.items()
            for method, operation in methods.items()
            if operation.get("security")
        }
        names = {"000000000000": "{credential_id}", "use1-az1": "{zone}", "shop": "{workload}"}
        names |= {"mail": "{queue}", "17": "{message}", "use1-az1-silent": "{name}", "verdict-1": "{verdict}"}
        tested = {
            (method, "/".join(names.get(part, part) for part in path.partition("?")[0].split("/")))
            for method, path, _ in GUARDED
        }
        assert described == tested

    def test_a_credential_that_the_command_line_revokes_is_refused_at_once(self, server: HoldfastServer) -> None:
        with server.operator() as operator:
            created = operator.post("/v1/credentials", json={"role": "viewer"}).json()
        with server.client(created["token"]) as client:
            assert client.get("/v1/whoami").status_code == 200
            finished = holdfast("credential", "revoke", created["credential"]["id"], directory=server.directory)
            assert finished.returncode == 0, finished.stderr
            problem = problem_of(client.get("/v1/whoami"), 401, "credential-refused")
        assert "has been revoked" in problem["detail"]

    def test_a_credential_that_the_command_line_creates_is_let_in_at_once(self, server: HoldfastServer) -> None:
        finished = holdfast("credential", "create", "--role", "viewer", directory=server.directory)
        with server.client(finished.stdout.strip()) as client:
            assert client.get("/v1/whoami").json()["role"] == "viewer"

    def test_the_last_operator_cannot_shut_itself_out_over_http(self, tmp_path: Path) -> None:
        with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
            own = operator.get("/v1/whoami").json()["id"]
            problem = problem_of(operator.delete(f"/v1/credentials/{own}"), 409, "conflict")
            assert f"`holdfast credential revoke {own}` on the server's machine" in problem["detail"]
            other = operator.post("/v1/credentials", json={"role": "operator"}).json()
            assert operator.delete(f"/v1/credentials/{own}").status_code == 200
            assert operator.get("/v1/whoami").status_code == 401
            finished = holdfast("credential", "revoke", other["credential"]["id"], directory=tmp_path)
            assert finished.returncode == 0, finished.stderr


class TestErrors:
    def test_an_unknown_path_is_not_found(self, server: HoldfastServer) -> None:
        with server.client() as client:
            problem_of(client.get("/nowhere"), 404)
            problem_of(client.get("/openapi"), 404)
            problem_of(client.get("/openapi/swagger"), 404)

    def test_a_wrong_method_is_told_the_right_ones(self, server: HoldfastServer) -> None:
        with server.client() as client:
            response = client.put("/v1/credentials")
        problem_of(response, 405)
        assert response.headers["allow"] == "GET, OPTIONS, POST"

    def test_a_role_that_is_not_enough_is_told_which_one_is(
        self, server: HoldfastServer, tokens: dict[str, str]
    ) -> None:
        with server.client(tokens["viewer"]) as client:
            problem = problem_of(client.get("/v1/credentials"), 403, "not-allowed")
        assert problem["detail"].endswith("has role viewer: this request needs role operator")

    @pytest.mark.parametrize(
        ("body", "name", "detail"),
        [
            ({"role": "king"}, "role", "Invalid value 'king'"),
            ({"role": "viewer", "note": 3}, "note", "Expected `str`, got `int`"),
            ({"role": "viewer", "note": "x" * 201}, "note", "Expected `str` of length <= 200"),
            ({"role": "tenant", "tenant": ""}, "tenant", "Expected `str` of length >= 1"),
            ({"role": "tenant"}, None, "Object missing required field `tenant`"),
            ({"role": "sender"}, None, "Object missing required field `workloads`"),
            ({"role": "sender", "workloads": []}, "workloads", "Expected `array` of length >= 1"),
            ({"role": "tracker", "workloads": ["shop"]}, None, "Object contains unknown field `workloads`"),
            ({"role": "viewer", "tenant": "tenant-1"}, None, "Object contains unknown field `tenant`"),
            ({"role": "viewer", "colour": "red"}, None, "Object contains unknown field `colour`"),
            ({}, None, "Object missing required field `role`"),
            ([], None, "Expected `object`, got `array`"),
        ],
    )
    def test_the_wrong_part_of_a_body_is_named(
        self, server: HoldfastServer, body: Any, name: str | None, detail: str
    ) -> None:
        with server.operator() as operator:
            problem = problem_of(operator.post("/v1/credentials", json=body), 400)
        assert problem["errors"] == [{"in": "body", "name": name, "detail": detail}]

    @pytest.mark.parametrize("content", [b"{bad", b"\xff", b'{"role": "viewer", "note": "\\ud800"}'])
    def test_a_body_that_is_not_json_is_refused(self, server: HoldfastServer, content: bytes) -> None:
        with server.operator() as operator:
            problem = problem_of(operator.post("/v1/credentials", content=content), 400)
        assert "traceback" not in problem["detail"].lower()

    def test_a_value_that_cannot_be_right_is_named_with_what_would_be(self, server: HoldfastServer) -> None:
        body = {"role": "tenant", "tenant": "ä" * 200}
        with server.operator() as operator:
            problem = problem_of(operator.post("/v1/credentials", json=body), 400, "invalid-value")
        assert problem["detail"].endswith("has 400 UTF-8 bytes: expected 1 to 256")

    def test_text_that_not_every_database_can_keep_is_refused(self, server: HoldfastServer) -> None:
        with server.operator() as operator:
            for body in (
                {"role": "viewer", "note": "a\0b"},
                {"role": "viewer", "note": "a\u202eb"},
                {"role": "tenant", "tenant": "a\0b"},
            ):
                problem = problem_of(operator.post("/v1/credentials", json=body), 400)
                assert problem["errors"][0]["name"] == list(body)[1]

    def test_a_path_that_is_asked_for_its_methods_names_all_of_them(self, server: HoldfastServer) -> None:
        with server.client() as client:
            response = client.options("/v1/credentials")
        assert (response.status_code, response.headers["allow"]) == (204, "GET, OPTIONS, POST")

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_body_that_is_too_large_is_refused(self, server: HoldfastServer, chunked: bool) -> None:
        body = b" " * (2 << 20)

        def chunks() -> Iterator[bytes]:
            yield from (body[start : start + 65_536] for start in range(0, len(body), 65_536))

        with server.operator() as operator:
            response = operator.post("/v1/credentials", content=chunks() if chunked else body)
        problem_of(response, 413)

    @pytest.mark.parametrize("unknown", ["000000000000", "nonsense", "%00", "%ff", "%2e%2e%2f"])
    def test_a_credential_that_does_not_exist_is_not_found(self, server: HoldfastServer, unknown: str) -> None:
        with server.operator() as operator:
            response = operator.delete(f"/v1/credentials/{unknown}")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"

    def test_a_malformed_host_header_does_no_harm(self, server: HoldfastServer) -> None:
        with server.client(Host="localhost:nonsense") as client:
            problem_of(client.get("/nowhere"), 404)

    def test_what_nobody_foresaw_is_logged_and_not_told(self, tmp_path: Path) -> None:
        with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
            with SqliteDatabase(tmp_path / "data" / "server.sqlite") as database:
                database.write(lambda transaction: transaction.execute("drop table holdfast_credential"))
            response = operator.get("/v1/whoami")
            problem = problem_of(response, 500, "engine")
            for secret in ("holdfast_credential", "sqlite", str(tmp_path), "Traceback"):
                assert secret not in response.text
            entry = server.entry(trace_id=problem["trace_id"], level="error")
            assert "no such table" in entry["message"]


class TestLogs:
    def test_a_token_where_an_id_belongs_is_neither_logged_nor_repeated(self, server: HoldfastServer) -> None:
        with server.operator() as operator:
            token = operator.post("/v1/credentials", json={"role": "viewer"}).json()["token"]
            answers = [operator.get(f"/v1/credentials/{token}"), operator.delete(f"/v1/credentials/{token}")]
        assert [answer.status_code for answer in answers] == [405, 200]
        secret = token.rpartition("_")[2]
        assert all(secret not in answer.text for answer in answers)
        assert secret not in json.dumps(server.entries())

    def test_every_request_is_one_json_line_under_its_trace(self, server: HoldfastServer) -> None:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        with server.client(traceparent=f"00-{trace}-00f067aa0ba902b7-01") as client:
            client.get("/v1/whoami")
        entry = server.entry(trace_id=trace)
        assert (entry["level"], entry["logger"], entry["message"]) == ("info", "holdfast.access", "GET /v1/whoami 401")
        assert entry["http.response.status_code"] == 401
        assert entry["client.address"] == "127.0.0.1"

    @pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("PUT", "/v1/whoami"), ("GET", "/v1/whoami")])
    def test_the_trace_of_a_problem_finds_its_request_in_the_log(
        self, server: HoldfastServer, method: str, path: str
    ) -> None:
        with server.client() as client:
            problem = client.request(method, path).json()
        entry = server.entry(trace_id=problem["trace_id"])
        assert entry["url.path"] == path
        assert entry["http.response.status_code"] == problem["status"]

    def test_no_token_is_ever_logged(self, server: HoldfastServer, tokens: dict[str, str]) -> None:
        with server.operator() as operator:
            operator.get("/v1/whoami", headers={"traceparent": f"00-{'a' * 32}-00f067aa0ba902b7-01"})
        server.entry(trace_id="a" * 32)
        log = server.log.read_text()
        for token in (server.token, *tokens.values()):
            assert token is not None
            assert token.split("_")[2] not in log


class TestLimits:
    def test_a_client_that_disconnects_in_its_request_is_no_error_of_the_server(self, server: HoldfastServer) -> None:
        trace = "d" * 32
        with closing(server.connect()) as client:
            head = request(
                server, "POST", "/v1/telemetry", "Content-Length: 100", f"traceparent: 00-{trace}-{'d' * 16}-01"
            )
            client.sendall(head + b'{"ro')
        entry = server.entry(trace_id=trace)
        assert entry["message"] == "POST /v1/telemetry disconnected"
        assert entry["http.response.status_code"] is None
        assert {each["level"] for each in server.entries() if each.get("trace_id") == trace} == {"info"}

    @pytest.mark.parametrize(
        ("more", "status", "reason"),
        [("Host: evil.test", 400, "malformed"), ("a: " + "b" * 40_000, 431, "head_too_large")],
    )
    def test_a_head_that_no_client_should_send_is_refused(
        self, server: HoldfastServer, more: str, status: int, reason: str
    ) -> None:
        with closing(server.connect()) as client:
            client.sendall(request(server, "GET", "/v1/whoami", more))
            answer = received(client)
        assert answer.startswith(f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode())
        assert server.entry(reason=reason)["message"].startswith("connection closed: ")

    def test_idle_connections_and_streams_leave_room_for_health_and_status_reads(self, tmp_path: Path) -> None:
        settings = "[server]\nmax_connections = 40\n"
        with HoldfastServer.start(tmp_path, settings=settings) as server, ExitStack() as opened:
            assert server.entry(message="starting")["max_connections"] == 40
            stream = request(server, "GET", "/v1/events")
            streams = [opened.enter_context(closing(server.connect())) for _ in range(38)]
            for connection in streams:
                connection.sendall(stream)
                assert b"event: hello" in received(connection, lambda data: b"hello" in data)
            idle = [opened.enter_context(closing(server.connect())) for _ in range(100)]
            with server.client() as client:
                for path in ("/health", "/status/use1-az1", "/v1/status"):
                    assert client.get(path).status_code == 200
                refused = client.get("/v1/whoami")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert received(idle[0]) == b""
            with server.operator() as operator:
                metrics = operator.get("/metrics").text
            assert 'holdfast_server_connections{state="busy"} 39\n' in metrics
            assert 'holdfast_server_refused_connections_total{reason="connection_limit"}' in metrics

    def test_streams_without_a_credential_leave_room_for_requests_with_one(self, tmp_path: Path) -> None:
        settings = "[server]\nmax_connections = 20\n"
        with HoldfastServer.start(tmp_path, settings=settings) as server, ExitStack() as opened:
            stream = b"GET /v1/status/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            streams = [opened.enter_context(closing(server.connect())) for _ in range(10)]
            for connection in streams:
                connection.sendall(stream)
                assert b"event: snapshot" in received(connection, lambda data: b"snapshot" in data)
            with server.client() as client:
                refused = client.get("/v1/status/events")
                assert "poll GET /v1/status" in problem_of(refused, 503)["detail"]
            with (
                connect(f"ws://127.0.0.1:{server.port}/v1/status/socket", proxy=None) as refused_socket,
                pytest.raises(ConnectionClosed, match=r"1013 .*poll GET /v1/status"),
            ):
                refused_socket.recv(STUCK)
            with server.operator() as operator:
                assert operator.get("/v1/whoami").status_code == 200
                assert status_of(operator, "GET", "/v1/events") == 200
            streams[0].close()
            with server.client() as client:
                assert eventually(lambda: status_of(client, "GET", "/v1/status/events") == 200)


class TestStarting:
    def test_a_credential_that_could_not_be_shown_is_not_the_first(self, tmp_path: Path) -> None:
        (tmp_path / "holdfast.toml").write_text("data_directory = 'data'\n")
        with Path("/dev/full").open("w") as nowhere:
            failed = subprocess.run(
                [*COMMAND, "up", "--port", "0"],
                cwd=tmp_path,
                env=environment(),
                stdout=nowhere,
                stderr=subprocess.PIPE,
                timeout=STUCK,
                check=False,
            )
        assert failed.returncode != 0
        with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
            listed = operator.get("/v1/credentials").json()
        assert [entry["revoked_at"] is None for entry in listed] == [False, True]

    def test_it_lives_however_many_wait_for_a_database_that_does_not_answer(self, tmp_path: Path) -> None:
        with HoldfastServer.start(tmp_path, settings="[database]\ntimeout = 20\n") as server, ExitStack() as opened:
            locked = opened.enter_context(closing(apsw.Connection(str(tmp_path / "data" / "server.sqlite"))))
            locked.execute("begin immediate")
            for _ in range(40):
                waiting = opened.enter_context(closing(server.connect()))
                body = b'{"role": "viewer"}'
                waiting.sendall(
                    request(
                        server,
                        "POST",
                        "/v1/credentials",
                        f"Content-Length: {len(body)}\r\nContent-Type: application/json",
                    )
                    + body
                )
            with server.client() as client:
                assert client.get("/health", timeout=10).status_code == 200
            locked.execute("rollback")

    def test_the_first_start_alone_prints_a_credential_and_what_was_created_outlives_a_kill(
        self, tmp_path: Path
    ) -> None:
        with HoldfastServer.start(tmp_path) as first:
            assert first.token is not None
            with first.operator() as operator:
                assert operator.get("/v1/whoami").json()["role"] == "operator"
            assert first.stop() == ""
        assert first.token not in first.log.read_text()
        with HoldfastServer.start(tmp_path) as second:
            assert second.token is None
            with second.client(first.token) as operator:
                viewer = operator.post("/v1/credentials", json={"role": "viewer"}).json()
            second.kill()
            assert second.process.returncode == -signal.SIGKILL
        with HoldfastServer.start(tmp_path) as third:
            assert third.token is None
            for token in (first.token, viewer["token"]):
                with third.client(token) as client:
                    assert client.get("/v1/whoami").status_code == 200

    def test_a_port_that_is_taken_is_a_clear_error_and_costs_no_credential(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            finished = holdfast("up", "--port", port, "--json", "--data-directory", "data", directory=tmp_path)
        error = refusal(finished, 3)
        assert error["error"] == "engine-unavailable"
        assert error["detail"].startswith(f"cannot listen on '127.0.0.1' port {port}: Address already in use; ")
        assert not list((tmp_path / "data").glob("*.sqlite"))
        with HoldfastServer.start(tmp_path) as server:
            assert server.token is not None

    def test_beyond_loopback_only_with_an_operator_and_never_open(self, tmp_path: Path) -> None:
        words = ("up", "--port", "0", "--json", "--host", "0.0.0.0", "--data-directory", "data")
        error = refusal(holdfast(*words, directory=tmp_path), 4)
        assert error["error"] == "not-allowed"
        assert "first run `holdfast credential create --role operator`" in error["detail"]

        variables = {"HOLDFAST_DATA_DIRECTORY": "data"}
        created = holdfast("credential", "create", "--role", "operator", directory=tmp_path, **variables)
        assert created.returncode == 0, created.stderr
        error = refusal(holdfast(*words, directory=tmp_path, HOLDFAST_SERVER__ALLOW_ANONYMOUS="true"), 4)
        assert "without credentials only loopback is allowed" in error["detail"]

        with HoldfastServer.start(tmp_path, "--host", "0.0.0.0") as server:
            assert server.address == f"http://0.0.0.0:{server.port}"
            assert server.token is None
            with server.client() as nobody, server.client(created.stdout.strip()) as operator:
                assert nobody.get("/v1/whoami").status_code == 401
                assert operator.get("/v1/whoami").status_code == 200

    def test_an_open_server_asks_for_nothing_and_answers_to_localhost_only(self, tmp_path: Path) -> None:
        with HoldfastServer.start(tmp_path, settings="[server]\nallow_anonymous = true\n") as server:
            assert server.token is None
            with server.client() as client:
                assert client.get("/v1/whoami").json()["id"] == "local"
                assert client.post("/v1/credentials", json={"role": "viewer"}).status_code == 201
                for name in (f"localhost:{server.port}", f"[::1]:{server.port}"):
                    assert client.get("/v1/whoami", headers={"Host": name}).status_code == 200
                for name in ("evil.test", f"evil.test:{server.port}", f"localhost.evil.test:{server.port}"):
                    problem_of(client.get("/v1/whoami", headers={"Host": name}), 403, "not-allowed")
                page = {"Origin": "http://evil.test"}
                problem_of(client.post("/v1/credentials", json={"role": "viewer"}, headers=page), 403, "not-allowed")
                for path in ("/v1/whoami", "/v1/status", "/v1/status/events", "/status/use1-az1"):
                    for header in ({"Host": "evil.test"}, page, {"Via": "1.1 proxy"}, {"X-Real-IP": "192.0.2.1"}):
                        problem_of(client.get(path, headers=header), 403, "not-allowed")
                assert client.get("/v1/status").status_code == client.get("/status/use1-az1").status_code == 200
            address = f"ws://127.0.0.1:{server.port}/v1/status/socket"
            with (
                pytest.raises(InvalidStatus) as refused,
                connect(address, origin=Origin("http://evil.test"), proxy=None),
            ):
                pass
            assert refused.value.response.status_code == 403
            with connect(address, origin=Origin(server.address), proxy=None) as listener:
                assert json.loads(listener.recv(STUCK))["event"] == "snapshot"


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_stops_it_in_time_with_open_streams_and_half_a_request(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        with HoldfastServer.start(tmp_path) as server, ExitStack() as opened:
            streams = [opened.enter_context(closing(server.connect())) for _ in range(20)]
            for stream in streams:
                stream.sendall(request(server, "GET", "/v1/events"))
            for stream in streams:
                assert b"event: hello" in received(stream, lambda data: b"hello" in data)
            half_head = opened.enter_context(closing(server.connect()))
            half_head.sendall(b"GET /heal")
            half_body = opened.enter_context(closing(server.connect()))
            half_body.sendall(request(server, "POST", "/v1/credentials", "Content-Length: 100") + b'{"ro')
            odd = opened.enter_context(closing(server.connect()))
            odd.sendall(
                request(server, "GET", "/v1/events", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 5")
            )
            with server.client() as client:  # answered after the odd request was read
                assert client.get("/health").status_code == 200
            assert server.signal(number) <= STOP_WITHIN + SLOW_MACHINE
            assert server.process.returncode == 0
            for stream in streams:
                assert received(stream).endswith(b"0\r\n\r\n")  # the end, and not a connection that was lost
        assert server.entries()[-1]["message"] == "stopped"
        # The databases were closed in order: nothing of them is left in a log beside them.
        files = sorted(file.name for file in (tmp_path / "data").iterdir() if not file.name.endswith("-created"))
        assert files == ["evacuation.sqlite", "server.sqlite", "status.sqlite", "watch.sqlite"]

    def test_a_database_that_does_not_answer_does_not_keep_it_from_stopping_in_time(self, tmp_path: Path) -> None:
        settings = "[server]\nshutdown_timeout = 1\n[database]\ntimeout = 20\n"
        with HoldfastServer.start(tmp_path, settings=settings) as server, ExitStack() as opened:
            holder = opened.enter_context(lock_holder(tmp_path / "data" / "server.sqlite"))
            opened.callback(holder.kill)
            stuck = opened.enter_context(closing(server.connect()))
            body = b'{"role": "viewer"}'
            stuck.sendall(request(server, "POST", "/v1/credentials", f"Content-Length: {len(body)}") + body)
            # AnsweredRequest after the request that is stuck was read: by then it waits for the database.
            with server.operator() as operator:
                assert operator.get("/v1/whoami").status_code == 200
            assert server.signal(signal.SIGTERM) <= 1 + SLOW_MACHINE
            assert server.process.returncode == 0
        assert server.entries()[-1]["message"] == "shutdown timed out: unfinished requests were abandoned"
        with HoldfastServer.start(tmp_path) as again, again.client(server.token) as operator:
            assert len(operator.get("/v1/credentials").json()) == 1

    def test_a_second_interrupt_stops_it_at_once(self, tmp_path: Path) -> None:
        settings = "[server]\nshutdown_timeout = 60\n"
        with HoldfastServer.start(tmp_path, settings=settings) as server, closing(server.connect()) as half:
            half.sendall(request(server, "POST", "/v1/credentials", "Content-Length: 100") + b'{"ro')
            with server.operator() as operator:
                assert operator.get("/v1/whoami").status_code == 200
            server.process.send_signal(signal.SIGINT)
            assert eventually(lambda: not listens(server.port))
            assert server.process.poll() is None
            server.signal(signal.SIGINT)
            assert server.process.returncode == 0
        assert "stopping immediately after a second interrupt" in [entry["message"] for entry in server.entries()]


class TestPostgres:
    def test_it_is_ready_while_the_database_is_there(
        self, tmp_path: Path, restartable_postgres: RestartablePostgres
    ) -> None:
        url = restartable_postgres.url.replace("postgres@", "postgres:hunter2@")
        settings = f"[database]\nurl = '{url}'\ntimeout = 1\n"
        with HoldfastServer.start(tmp_path, settings=settings) as server, server.operator() as operator:
            assert operator.get("/ready").status_code == 200
            restartable_postgres.stop()
            gone = operator.get("/ready")
            problem_of(gone, 503, "engine-unavailable")
            assert gone.headers["retry-after"] == "1"
            assert operator.get("/health").status_code == 200
            problem_of(operator.get("/v1/whoami"), 503, "engine-unavailable")
            restartable_postgres.start()
            assert operator.get("/ready").status_code == 200
            assert operator.get("/v1/whoami").json()["role"] == "operator"
            assert "hunter2" not in server.log.read_text()

    def test_a_database_that_is_not_there_is_a_clear_error_without_the_password(self, tmp_path: Path) -> None:
        url = f"postgresql://user:hunter2@127.0.0.1:{free_port()}/name"
        variables = {"HOLDFAST_DATABASE__URL": url, "HOLDFAST_DATABASE__TIMEOUT": "0.1"}
        finished = holdfast("up", "--port", "0", "--json", directory=tmp_path, **variables)
        error = refusal(finished, 3)
        assert error["error"] == "engine-unavailable"
        assert "hunter2" not in finished.stderr


def request(server: HoldfastServer, method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.token}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def received(connection: socket.socket, enough: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """What arrives until it is enough, or the other side has ended the connection."""
    data = b""
    while not enough(data) and (more := connection.recv(65_536)):
        data += more
    return data


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def eventually(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STUCK
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.02)
    return False


HOLD = """
    import sys
    import apsw

    connection = apsw.Connection(sys.argv[1])
    connection.execute("begin immediate")
    print("held", flush=True)
    sys.stdin.read()
"""


def lock_holder(path: Path) -> subprocess.Popen[bytes]:
    """A process that holds the write lock of a database until it is killed."""
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process

"""Queues over HTTP, on a real server: several who send at once, workers beside it, and an end without notice."""

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from holdfast.queue import Delivery, open_backend
from holdfast.queue.backend import Ack, Backend, LeaseRequest, Settlement
from tests.integration.server.process import STUCK, HoldfastServer

QUEUES = """
[[queue]]
name = "orders"
max_attempts = 3

[[queue]]
name = "mail"
"""
TENANTS = [f"tenant/{number}" for number in range(8)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("queues"), settings=QUEUES) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(server: HoldfastServer) -> Mapping[str, str]:
    """What each tenant sends with."""
    return tokens_of(server)


def tokens_of(server: HoldfastServer) -> dict[str, str]:
    with server.operator() as operator:
        return {
            tenant: operator.post("/v1/credentials", json={"role": "tenant", "tenant": tenant}).json()["token"]
            for tenant in TENANTS
        }


@contextmanager
def store_of(server: HoldfastServer) -> Iterator[Backend]:
    """The store of a server on SQLite, as workers of another process open it."""
    with open_backend(f"sqlite:{server.directory / 'data' / 'queue.sqlite'}") as backend:
        yield backend


def handled(backend: Backend, queue: str) -> list[Delivery]:
    """Everything that waits in a queue, handled."""
    found: list[Delivery] = []
    while deliveries := backend.lease(LeaseRequest(queue=queue, count=500, lease=STUCK)).deliveries:
        assert all(backend.settle([Settlement(each.receipt, Ack()) for each in deliveries]))
        found += deliveries
    return found


def send_all(server: HoldfastServer, tokens: Mapping[str, str], count: int) -> dict[int, tuple[str, bytes]]:
    """Every tenant sends, all at the same time, one by one and several at once; what was acknowledged, by id."""

    def send(tenant: str) -> dict[int, tuple[str, bytes]]:
        kept: dict[int, tuple[str, bytes]] = {}
        with server.client(tokens[tenant]) as client:
            for number in range(count):
                body = f"{tenant} {number}"
                answer = client.post("/v1/queues/orders/messages", content=body)
                assert answer.status_code == 202, answer.text
                kept[answer.json()["id"]] = (tenant, body.encode())
            bodies = [f"{tenant} more {number}" for number in range(count)]
            answer = client.post(
                "/v1/queues/orders/messages/batch", json={"messages": [{"body": body} for body in bodies]}
            )
            assert answer.status_code == 202, answer.text
            for body, result in zip(bodies, answer.json()["results"], strict=True):
                kept[result["id"]] = (tenant, body.encode())
        return kept

    with ThreadPoolExecutor(len(tokens)) as threads:
        return {id_: kept for some in threads.map(send, tokens) for id_, kept in some.items()}


def test_the_queues_of_the_settings_are_there_from_the_start(server: HoldfastServer) -> None:
    with server.operator() as operator:
        assert operator.get("/v1/queues").json() == ["mail", "orders"]
        assert operator.get("/v1/queues/orders/policy").json()["max_attempts"] == 3


def test_many_tenants_send_at_once_and_workers_of_another_process_get_all_of_it(
    server: HoldfastServer, tokens: Mapping[str, str]
) -> None:
    sent = send_all(server, tokens, 20)
    assert len(sent) == len(tokens) * 40
    with store_of(server) as backend:
        found = {each.id: (each.tenant, each.body) for each in handled(backend, "orders")}
    assert found == sent
    with server.operator() as operator:
        assert operator.get("/v1/queues/orders").json()["ready"] == 0


def test_one_request_sent_by_many_at_once_is_kept_once(server: HoldfastServer, tokens: Mapping[str, str]) -> None:
    def send(_: int) -> httpx.Response:
        with server.client(tokens[TENANTS[0]], **{"Idempotency-Key": "order-1"}) as client:
            return client.post("/v1/queues/mail/messages", content=b"once")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(16)))
    assert Counter(answer.json()["is_duplicate"] for answer in answers) == {False: 1, True: 15}
    assert len({answer.json()["id"] for answer in answers}) == 1
    with store_of(server) as backend:
        assert [each.body for each in handled(backend, "mail")] == [b"once"]


def test_a_tenant_follows_its_message_from_another_process(server: HoldfastServer, tokens: Mapping[str, str]) -> None:
    with server.client(tokens[TENANTS[0]]) as client, store_of(server) as backend:
        sent = client.post("/v1/queues/mail/messages", content=b"x").json()["id"]
        path = f"/v1/queues/mail/messages/{sent}"
        assert client.get(path).json()["state"] == "ready"
        [found] = backend.lease(LeaseRequest(queue="mail", count=1, lease=STUCK)).deliveries
        assert client.get(path).json()["state"] == "leased"
        backend.settle([Settlement(found.receipt, Ack())])
        assert client.get(path).status_code == 404
        with server.client(tokens[TENANTS[1]]) as other:
            assert other.get(path).status_code == 404


def test_who_is_refused_is_logged_without_what_was_sent(server: HoldfastServer, tokens: Mapping[str, str]) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    with server.client(tokens[TENANTS[0]], **headers) as client:
        answer = client.post("/v1/queues/mail/messages?tenant=somebody", content=b"the-secret-body")
    assert answer.status_code == 403
    entry = server.entry(trace_id=trace)
    assert (entry["url.path"], entry["http.response.status_code"]) == ("/v1/queues/mail/messages", 403)
    assert "the-secret-body" not in server.log.read_text()


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST /v1/queues/orders/messages?tenant=a HTTP/1.1\r\nContent-Length: 99999999999\r\n",
        b"POST /v1/queues/orders/messages?tenant=a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: a\0b\r\n",
        b"POST /v1/queues/" + b"x" * 50_000 + b"/messages?tenant=a HTTP/1.1\r\nContent-Length: 0\r\n",
        b"GET /v1/queues/orders/messages/" + b"9" * 50_000 + b" HTTP/1.1\r\n",
        b"GET /v1/queues/%00/usage?tenant=a HTTP/1.1\r\n",
        b"GET /v1/queues/orders/dead?" + b"ids=1&" * 10_000 + b" HTTP/1.1\r\n",
    ],
    ids=lambda line: line[:40].decode(),
)
def test_an_odd_request_is_refused_and_the_server_goes_on(server: HoldfastServer, request_line: bytes) -> None:
    with closing(server.connect()) as connection:
        credential = f"Authorization: Bearer {server.token}\r\n".encode()
        connection.sendall(request_line + b"Host: localhost\r\nConnection: close\r\n" + credential + b"\r\n")
        status = int(connection.recv(4096).split()[1])
    assert status in {400, 404, 413, 414, 431}
    with server.operator() as operator:
        assert operator.get("/v1/queues/orders").status_code == 200


def test_a_server_without_queues_opens_no_store_until_somebody_asks(tmp_path: Path) -> None:
    with HoldfastServer.start(tmp_path / "none") as server, server.operator() as operator:
        assert operator.get("/v1/whoami").status_code == 200
        assert "holdfast_queue" not in operator.get("/metrics").text
        file = server.directory / "data" / "queue.sqlite"
        assert not file.exists()
        assert operator.post("/v1/queues/orders/messages?tenant=anna", content=b"").status_code == 404
        assert operator.get("/v1/queues").json() == []
        assert file.exists()


def test_what_was_acknowledged_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    with HoldfastServer.start(tmp_path / "killed", settings=QUEUES) as server:
        sent = send_all(server, tokens_of(server), 5)
        server.kill()
        with HoldfastServer.start(server.directory, settings=QUEUES) as again, again.client(server.token) as operator:
            assert operator.get("/v1/queues/orders").json()["ready"] == len(sent)
            with store_of(again) as backend:
                assert {each.id: (each.tenant, each.body) for each in handled(backend, "orders")} == sent


def test_servers_and_workers_share_a_postgresql(tmp_path: Path, postgres_url: str) -> None:
    schema = f"queues_{uuid.uuid4().hex}"
    url = f"{postgres_url}?options=-csearch_path%3D{schema}"
    settings = f"[database]\nurl = '{url}'\nmax_connections = 4\n{QUEUES}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        with HoldfastServer.start(tmp_path / "one", settings=settings) as one:
            tokens = tokens_of(one)
            sent = send_all(one, tokens, 10)
            with (
                HoldfastServer.start(tmp_path / "two", settings=settings) as two,
                two.client(one.token) as operator,
                two.client(tokens[TENANTS[0]]) as tenant,
                open_backend(url) as backend,
            ):
                told = operator.get("/v1/queues/orders").json()
                assert (told["ready"], len(told["tenants"])) == (len(sent), len(TENANTS))
                key = {"Idempotency-Key": "1"}
                first = tenant.post("/v1/queues/mail/messages", content=b"\0\xff", headers=key).json()
                with one.client(tokens[TENANTS[0]]) as elsewhere:
                    again = elsewhere.post("/v1/queues/mail/messages", content=b"\0\xff", headers=key).json()
                assert (again["id"], again["is_duplicate"]) == (first["id"], True)
                assert tenant.get(f"/v1/queues/mail/messages/{first['id']}").json()["state"] == "ready"
                for text in ("%00", "%ff"):
                    assert operator.get(f"/v1/queues/mail/dead?reason={text}").status_code == 400
                    assert operator.get(f"/v1/queues/mail/usage?tenant={text}").status_code == 400
                assert tenant.get(f"/v1/queues/mail/messages/{1 << 62}").status_code == 404
                assert tenant.get(f"/v1/queues/mail/messages/{10**30}").status_code == 404
                limits = operator.put(
                    "/v1/queues/mail/limits?tenant=x", json={"max_rate": 0.001, "max_burst": 1}
                ).json()
                assert limits["is_own"] is True
                statuses = [
                    operator.post("/v1/queues/mail/messages?tenant=x", content=b"").status_code for _ in range(2)
                ]
                assert statuses == [202, 429]
                assert {each.id: (each.tenant, each.body) for each in handled(backend, "orders")} == sent
                assert operator.get("/v1/queues/orders").json()["ready"] == 0
                assert operator.post("/v1/queues/mail/sweep", json={"before": time.time()}).json() == {"dropped": 2}
        assert (one.process.returncode, two.process.returncode) == (0, 0)
        connection.execute(f"drop schema {schema} cascade".encode())


def test_a_damaged_store_of_queues_does_not_stop_the_zones(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "queue.sqlite").write_bytes(b"not a database" * 1000)
    with HoldfastServer.start(tmp_path, settings=QUEUES) as server, server.operator() as operator:
        answer = operator.get("/ready").json()
        assert answer["status"] == "degraded"
        assert answer["problems"] == {"queues": "DatabaseCorrupt"}
        assert operator.get("/v1/status").status_code == 200
        assert operator.get("/v1/queues").status_code == 500
        told = server.log.read_text()
        assert "queues are unavailable, other parts of the server are not affected" in told
        assert "queue.sqlite is damaged or not a database" in told
        (data / "queue.sqlite").unlink()
        assert operator.get("/v1/queues").json() == ["mail", "orders"]


def test_a_store_deleted_under_a_server_is_reported(tmp_path: Path) -> None:
    with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
        (tmp_path / "data" / "watch.sqlite").rename(tmp_path / "gone")
        answer = operator.get("/ready").json()
        assert answer["status"] == "degraded"
        assert answer["problems"] == {"watch": "EngineError"}
        assert "watch.sqlite was deleted or replaced" in server.log.read_text()
        (tmp_path / "data" / "server.sqlite").rename(tmp_path / "gone")
        assert operator.get("/ready").status_code == 503
        assert "server.sqlite was deleted or replaced" in server.log.read_text()

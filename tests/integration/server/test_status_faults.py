"""What becomes of zone statuses when servers are killed, stores go away, and several do the same thing at once."""

import json
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from holdfast import Zone, ZoneState, ZoneStatus
from holdfast._clock import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore, ZoneTracker
from holdfast.status.stores.dynamodb import DynamoStatusStore
from tests.integration.server.listen import Heard, events, until
from tests.integration.server.process import STUCK, HoldfastServer
from tests.support.proxy import LossyProxy

AZ1, AZ2 = "use1-az1", "use1-az2"
REGION = "us-east-1"
QUICK = "[status]\nrefresh_interval = 0.1\n"


def put(server: HoldfastServer, zone: str, token: str | None, *, out: bool, reason: str = "test") -> httpx.Response:
    with server.client(token) as client:
        return client.put(f"/v1/zones/{zone}", json={"state": "out" if out else "in", "reason": reason})


def code(server: HoldfastServer, path: str) -> int:
    with server.client() as client:
        return client.get(path).status_code


def status(zone: str, *, out: bool, reason: str = "test") -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(zone), state=ZoneState.OUT if out else ZoneState.IN, since=1.0, by="somebody", reason=reason
    )


def test_what_was_written_right_before_a_kill_is_known_to_all_after_the_restart(tmp_path: Path) -> None:
    with ExitStack() as opened:
        server = HoldfastServer.start(tmp_path, settings=QUICK)
        opened.callback(server.kill)
        put(server, AZ1, server.token, out=True).raise_for_status()
        tracker = opened.enter_context(ZoneTracker(server.address))
        until(lambda: tracker.zones_out() == {AZ1})
        with events(server) as stream:
            last = next(stream).id
            server.kill()
            with pytest.raises(httpx.HTTPError):
                list(stream)
        with SqliteDatabase(tmp_path / "data" / "status.sqlite") as database:
            store = SqlStatusStore(database)
            [known] = store.read()
            store.write(status(AZ1, out=False, reason="mended"), known.version)
            store.write(status(AZ2, out=True, reason="gray"), 0)
        assert tracker.zones_out() == {AZ1}, "last known good"
        again = opened.enter_context(HoldfastServer.start(tmp_path, settings=QUICK, port=server.port))
        assert (code(again, f"/status/{AZ1}"), code(again, f"/status/{AZ2}")) == (200, 500), "from its first answer"
        with events(again, last) as stream:
            snapshot = next(stream)
        assert snapshot.name == "snapshot"
        assert [each["zone"] for each in snapshot.data["statuses"] if each["state"] == "out"] == [AZ2]
        until(lambda: tracker.zones_out() == {AZ2})
        with again.client(server.token) as operator:
            history = operator.get("/v1/status/history").json()
        # Without provisional statuses, which alone have an end here: a server may read and record one, too.
        kept = [entry["status"] for entry in history if entry["status"]["expires"] is None]
        assert sorted(status["reason"] for status in kept) == ["gray", "mended", "test"]


def told(events: Iterator[Heard], written: dict[str, Any]) -> dict[str, Any]:
    """The next status; on a slow machine that a zone is about to be taken out is told before it is so."""
    status: dict[str, Any] = next(events).data["status"]
    is_provisional = status["expires"] is not None and status["version"] == written["version"] - 1
    return next(events).data["status"] if is_provisional else status


def test_what_is_written_on_one_server_is_told_by_another_on_the_same_database(
    tmp_path: Path, postgres_url: str
) -> None:
    schema = f"servers_{uuid.uuid4().hex}"
    settings = f"[database]\nurl = '{postgres_url}?options=-csearch_path%3D{schema}'\nmax_connections = 4\n"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        with (
            HoldfastServer.start(tmp_path / "one", settings=settings) as one,
            HoldfastServer.start(tmp_path / "two", settings=settings) as two,
            events(one) as told_by_one,
            events(two) as told_by_two,
        ):
            next(told_by_one)
            next(told_by_two)
            for number in range(6):
                server = (one, two)[number % 2]
                written = put(server, AZ1, one.token, out=number % 2 == 0, reason=f"number {number}").json()
                assert told(told_by_one, written) == written
                assert told(told_by_two, written) == written

            def history(server: HoldfastServer) -> list[str]:
                with server.client(one.token) as operator:
                    entries = operator.get("/v1/status/history").json()
                # Without provisional statuses, which alone have an end here: a server may read and record one, too.
                statuses = [entry["status"] for entry in reversed(entries)]
                return [status["reason"] for status in statuses if status["expires"] is None]

            expected = [f"number {number}" for number in range(6)]
            until(lambda: history(one) == history(two) == expected)
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def session(some_credentials: None, moto_url: str) -> Iterator[AwsSession]:
    with AwsSession(AwsOptions(region=REGION, endpoint_url=moto_url, max_attempts=1)) as session:
        yield session


@pytest.fixture
def proxy(moto_url: str) -> Iterator[LossyProxy]:
    """What stands between the server and AWS."""
    port = urlsplit(moto_url).port
    assert port is not None
    with LossyProxy("127.0.0.1", port) as proxy:
        yield proxy


def aws(proxy: LossyProxy) -> str:
    return f"[aws]\nregion = '{REGION}'\nendpoint_url = 'http://127.0.0.1:{proxy.port}'\n"


@pytest.mark.proof
def test_a_server_whose_store_goes_away_keeps_what_it_knows_also_over_a_restart(
    tmp_path: Path, session: AwsSession, proxy: LossyProxy
) -> None:
    table = f"status-{uuid.uuid4()}"
    store = DynamoStatusStore(session, table, SystemClock())
    store.create_table()
    settings = f"{aws(proxy)}{QUICK}store = 'dynamodb:{table}'\n"
    proxy.refuse()
    with ExitStack() as opened:
        server = HoldfastServer.start(tmp_path, settings=settings)
        opened.callback(server.kill)
        # Nothing is known, not even from before: nobody is sent away, and nobody is told that all is well.
        assert (code(server, f"/status/{AZ1}"), code(server, "/v1/status")) == (200, 503)
        assert code(server, "/v1/status/events") == 503
        with (
            connect(f"ws://127.0.0.1:{server.port}/v1/status/socket", proxy=None) as listener,
            pytest.raises(ConnectionClosed) as closed,
        ):
            listener.recv(STUCK)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        proxy.admit()
        until(lambda: code(server, "/v1/status") == 200)
        put(server, AZ1, server.token, out=True).raise_for_status()
        proxy.refuse()
        until(lambda: put(server, AZ1, server.token, out=False).status_code == 503)
        assert code(server, f"/status/{AZ1}") == 500
        until(lambda: age(server) > 0.5)
        server.kill()

        again = HoldfastServer.start(tmp_path, settings=settings)
        opened.callback(again.kill)
        with again.client() as client:
            assert client.get(f"/status/{AZ1}").status_code == 500
            known = client.get("/v1/status").json()
        assert (known["age"], [each["zone"] for each in known["statuses"] if each["state"] == "out"]) == (None, [AZ1])
        with events(again) as stream:
            assert next(stream).data["statuses"] == known["statuses"]
            [written] = store.read()
            store.write(status(AZ1, out=False, reason="mended"), written.version)
            proxy.admit()
            assert next(stream).data["status"]["reason"] == "mended"
        assert code(again, f"/status/{AZ1}") == 200


def age(server: HoldfastServer) -> float:
    with server.client() as client:
        found: float = client.get("/v1/status").json()["age"]
        return found


class Queue:
    """An SQS queue that is subscribed to an SNS topic."""

    def __init__(self, session: AwsSession) -> None:
        name = f"status-{uuid.uuid4()}"
        self._sqs = session.client("sqs")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.topic: str = session.client("sns").create_topic(Name=name)["TopicArn"]
        session.client("sns").subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def receive(self, count: int) -> list[Any]:
        """The next `count` published statuses, without repeated and provisional ones.

        A provisional status, which alone has an end here, is published if the server reads the store before the next.
        """
        found: list[Any] = []
        end = time.monotonic() + STUCK
        while len(found) < count:
            assert time.monotonic() < end, f"only {found} arrived"
            answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=1, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                status = json.loads(json.loads(message["Body"])["Message"])
                if status not in found and status["expires"] is None:
                    found.append(status)
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return found


def test_every_change_is_published_to_sns_whatever_comes_between(
    tmp_path: Path, session: AwsSession, proxy: LossyProxy
) -> None:
    queue = Queue(session)
    settings = f"{aws(proxy)}{QUICK}sns_topic = '{queue.topic}'\n"
    with ExitStack() as opened:
        server = HoldfastServer.start(tmp_path, settings=settings)
        opened.callback(server.kill)

        def change(server: HoldfastServer, number: int) -> Any:
            answer = put(server, AZ1, first_token, out=number % 2 == 0, reason=f"number {number}")
            return answer.raise_for_status().json()

        first_token = server.token
        written = [change(server, 0)]
        assert queue.receive(1) == written

        proxy.refuse()
        written = [change(server, number) for number in (1, 2)]
        server.kill()
        proxy.admit()
        again = opened.enter_context(HoldfastServer.start(tmp_path, settings=settings))
        assert queue.receive(2) == written, "recorded, and published after the restart"

        proxy.refuse()
        written = [change(again, number) for number in (3, 4, 5)]
        server_complains(again)
        proxy.admit()
        assert queue.receive(3) == written, "in order"

        # The topic has it, and the server never hears of it: it is published again, with the next ones after it.
        proxy.lose("reply", b"Action=Publish")
        written = [change(again, number) for number in (6, 7)]
        assert queue.receive(2) == written


def server_complains(server: HoldfastServer) -> None:
    until(lambda: any("cannot publish a change of a zone status" in entry["message"] for entry in server.entries()))


def test_a_store_that_hangs_holds_up_nothing_but_what_is_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with (
        socket.create_server(("127.0.0.1", 0), backlog=512) as hanging,  # takes connections, and never answers
        ThreadPoolExecutor(24) as operators,
        ExitStack() as opened,
    ):
        address = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        settings = f"[aws]\nregion = '{REGION}'\nendpoint_url = '{address}'\n"
        settings += "[status]\nstore = 'dynamodb:zones'\nallow_anonymous_reads = false\n"
        server = HoldfastServer.start(tmp_path, settings=settings)
        opened.callback(server.kill)
        writes = [operators.submit(put, server, AZ1, server.token, out=True) for _ in range(24)]
        refused = next(as_completed(writes, STUCK)).result()
        assert refused.status_code == 503
        for path in ("/v1/whoami", f"/status/{AZ1}", "/v1/verdicts"):
            with server.operator() as operator:
                assert operator.get(path).status_code == 200
        assert not all(write.done() for write in writes), "the others still wait for the store"

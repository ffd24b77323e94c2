"""What a stream of events looks like to whoever listens."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server import push, streams
from holdfast.server.credentials import Credential, CredentialStore, Role
from holdfast.server.push import EventHub, StreamEvent
from holdfast.server.streams import REVOCATION_SECONDS, EventStream, end_revoked_streams
from holdfast.testing import FakeClock


class Connection:
    """The other side: keeps what it is sent, until it takes nothing more."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.leaves = asyncio.Event()
        self.alive = asyncio.Event()

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        self.sent.append(message)
        if message.get("body") == push.KEEPALIVE_BYTES:
            self.alive.set()

    async def receive(self) -> Any:
        if not self.leaves.is_set() and not self.sent:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


async def listening(hub: EventHub, connection: Connection, credential: Credential | None = None) -> asyncio.Task[None]:
    stream = EventStream(hub, lambda: [StreamEvent(hub.last_id, "hello", b"{}")])
    scope = {} if credential is None else {"state": {"credential": credential}}
    before = hub.listener_count
    task = asyncio.create_task(stream.to_asgi_response()(scope, connection.receive, connection.send))
    for _ in range(3):
        await asyncio.sleep(0)
    assert hub.listener_count == before + 1
    return task


def test_a_stream_says_hello_then_what_happens_then_that_it_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> Connection:
        hub, connection = EventHub(), Connection()
        hub.start()
        task = await listening(hub, connection)
        hub.publish("zone", b'{"zone":"use1-az1"}')
        await connection.alive.wait()
        hub.close()
        await task
        return connection

    monkeypatch.setattr(push, "KEEPALIVE_SECONDS", 1)
    connection = asyncio.run(asyncio.wait_for(story(), 30))
    assert dict(connection.sent[0]["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    retry, hello, event, quiet, rest = connection.body.split(b"\n\n")
    [milliseconds] = re.findall(rb"^retry: (\d+)$", retry)
    assert 1000 <= int(milliseconds) <= 5000
    assert re.fullmatch(rb"id: [0-9a-f]{8}-0\nevent: hello\ndata: {}", hello)
    assert re.fullmatch(rb'id: [0-9a-f]{8}-1\nevent: zone\ndata: {"zone":"use1-az1"}', event)
    assert (quiet, rest) == (b": still here", b"")  # a comment: no browser makes an event of it
    assert [message["more_body"] for message in connection.sent[1:]] == [True] * 4 + [False]


def test_a_stream_ends_when_the_other_side_has_gone() -> None:
    async def story() -> None:
        hub, connection = EventHub(), Connection()
        hub.start()
        task = await listening(hub, connection)
        connection.leaves.set()
        await task
        assert hub.listener_count == 0

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_stream_that_is_too_slow_ends_also_if_not_even_its_end_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        hub, connection = EventHub(), Connection()
        hub.start()
        task = await listening(hub, connection)
        connection.takes.clear()
        hub.publish("zone", b"{}")
        await task
        assert hub.listener_count == 0
        assert all(message.get("more_body", True) for message in connection.sent)

    monkeypatch.setattr(streams, "_END_SECONDS", 0.01)
    asyncio.run(asyncio.wait_for(story(), 30))


def test_the_streams_of_a_credential_end_once_any_process_has_revoked_it(tmp_path: Path) -> None:
    async def story(store: CredentialStore, other_process: CredentialStore) -> None:
        hubs = EventHub(), EventHub()
        revoked, valid = (store.create(Role.VIEWER)[0] for _ in range(2))
        for hub in hubs:
            hub.start()
        ends = [await listening(hub, Connection(), revoked) for hub in hubs]
        stays = [await listening(hubs[0], Connection(), each) for each in (valid, None)]
        assert await asyncio.to_thread(end_revoked_streams, store, hubs) == REVOCATION_SECONDS < 1
        assert [hub.listener_count for hub in hubs] == [3, 1]
        other_process.revoke(revoked.id)
        await asyncio.to_thread(end_revoked_streams, store, hubs)
        await asyncio.gather(*ends)
        assert [hub.listener_count for hub in hubs] == [2, 0]
        for hub in hubs:
            hub.close()
        await asyncio.gather(*stays)

    path = tmp_path / "server.sqlite"
    with SqliteDatabase(path) as here, SqliteDatabase(path) as elsewhere:
        stores = [CredentialStore(database, FakeClock()) for database in (here, elsewhere)]
        asyncio.run(asyncio.wait_for(story(*stores), 30))


def test_nothing_is_asked_of_the_store_while_no_stream_has_a_credential() -> None:
    nowhere: Any = None
    assert end_revoked_streams(nowhere, [EventHub()]) == REVOCATION_SECONDS

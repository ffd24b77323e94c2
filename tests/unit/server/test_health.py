"""Whether the server is ready depends on what it needs; whether it lives does not."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import httpx
import pytest

from holdfast import EngineUnavailable
from holdfast.config import Settings
from holdfast.engines import Migration, Row, Transaction
from holdfast.engines.database import Result, Value
from holdfast.server.app import create_app
from holdfast.server.credentials import CredentialStore
from holdfast.server.detection.process import DetectionProcess
from holdfast.server.push import EventHub
from holdfast.server.queues import Queues
from holdfast.server.routes import health
from holdfast.server.state import Services
from holdfast.testing import FakeClock

STUCK = 30.0


class Answers:
    """A transaction in which everything is well."""

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        return [(1,)]

    def execute_many(self, sql: str, rows: object) -> None: ...


class Database:
    """Answers, or does what the test says instead."""

    def __init__(self, instead: Callable[[], object] = lambda: None) -> None:
        self._instead = instead

    @property
    def dialect(self) -> Literal["sqlite"]:
        return "sqlite"

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        self._instead()
        return work(Answers())

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        return work(Answers())

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:
        return self.write(lambda transaction: transaction.execute(sql, parameters))

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        return []

    def check(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...


def ask(
    database: Database, path: str, *, stopping: bool = False, afterwards: Callable[[], None] = lambda: None
) -> httpx.Response:
    nothing: Any = None  # what readiness does not ask about
    services = Services(
        database=database,
        credentials=CredentialStore(database, FakeClock()),
        status_cache=nothing,
        status_log=nothing,
        status_writer=nothing,
        watch_store=nothing,
        deploys=nothing,
        evacuations=nothing,
        detection=DetectionProcess(Settings(), nothing, nothing),
        queues=Queues(lambda: nothing),
        workloads=(),
        hub=EventHub(),
        status_hub=EventHub(),
    )
    app = create_app(services)
    app.state.stopping = stopping

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.get(path)
        afterwards()
        return response

    return asyncio.run(send())


def away() -> None:
    raise EngineUnavailable("the database is away")


def test_a_server_whose_database_answers_is_ready() -> None:
    response = ask(Database(), "/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


def test_a_server_whose_database_is_away_is_not_ready() -> None:
    response = ask(Database(away), "/ready")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["type"] == "urn:holdfast:problem:engine-unavailable"


def test_a_server_whose_database_takes_too_long_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PROBE_TIMEOUT", 0.01)
    answered = threading.Event()
    database = Database(lambda: answered.wait(STUCK))
    # The thread that waits outlives the answer; it must end before the event loop can.
    response = ask(database, "/ready", afterwards=answered.set)
    assert response.status_code == 503


def test_a_server_that_is_stopping_is_not_ready() -> None:
    response = ask(Database(), "/ready", stopping=True)
    assert response.status_code == 503


def test_a_server_lives_whatever_it_depends_on() -> None:
    for response in (ask(Database(away), "/health"), ask(Database(), "/health", stopping=True)):
        assert (response.status_code, response.json()) == (200, {"status": "ok"})

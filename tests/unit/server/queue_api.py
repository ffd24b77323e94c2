"""The application over a real store, and somebody of every role who speaks to it."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from litestar import Litestar

from holdfast.config import Settings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import QueuePolicy
from holdfast.queue.backend import Backend, QueueChange
from holdfast.server.app import create_app
from holdfast.server.credentials import CredentialStore, Role
from holdfast.server.detection.process import DetectionProcess
from holdfast.server.push import EventHub
from holdfast.server.queues import Queues
from holdfast.server.state import Services
from holdfast.testing import FakeClock

Result = TypeVar("Result")
QUEUE = "orders"
WHO = {
    "operator": (Role.OPERATOR, None),
    "viewer": (Role.VIEWER, None),
    "anna": (Role.TENANT, "anna"),
    "bert": (Role.TENANT, "bert/../x"),
}


@dataclass
class Api:
    """Requests to the application, by the name of who sends them; nobody without a name."""

    app: Litestar
    tokens: dict[str, str]
    backend: Backend
    """The store, which each test has one of its own of."""

    @contextmanager
    def over(self, backend: Backend, clock: FakeClock) -> Iterator[Self]:
        """Work on this store, with one queue."""
        backend.change(QUEUE, QueueChange(policy=QueuePolicy()), create=True)
        self.backend = backend
        queues: Queues = self.app.state.services.queues
        queues.clock = clock
        yield self
        queues.close()

    def __call__(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self.ask(who, method, path, **options))

    async def ask(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**options.pop("headers", {})}
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers, **options)

    def together(self, asked: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """The answers to requests that are sent at the same time."""

        async def ask() -> list[Result]:
            return await asyncio.gather(*asked)

        return asyncio.run(ask())

    def send(self, who: str, body: bytes = b"work", **options: Any) -> httpx.Response:
        return self(who, "POST", f"/v1/queues/{QUEUE}/messages", content=body, **options)

    def send_many(self, who: str, *messages: Any, **options: Any) -> httpx.Response:
        return self(who, "POST", f"/v1/queues/{QUEUE}/messages/batch", json={"messages": messages}, **options)

    def status(self, who: str, message: object) -> httpx.Response:
        return self(who, "GET", f"/v1/queues/{QUEUE}/messages/{message}")


@contextmanager
def running(directory: Path, backend: Backend, clock: FakeClock) -> Iterator[Api]:
    """The application over a store."""
    with serving(directory) as api, api.over(backend, clock):
        yield api


@contextmanager
def serving(directory: Path) -> Iterator[Api]:
    """The application, over whatever store it is given: making it takes longer than most tests."""
    nothing: Any = None  # what queues have nothing to do with
    with SqliteDatabase(directory / "server.sqlite") as database:
        credentials = CredentialStore(database, FakeClock())
        tokens = {name: credentials.create(role, tenant=tenant)[1] for name, (role, tenant) in WHO.items()}
        queues = Queues(lambda: api.backend)
        services = Services(
            database=database,
            credentials=credentials,
            status_cache=nothing,
            status_log=nothing,
            status_writer=nothing,
            watch_store=nothing,
            deploys=nothing,
            evacuations=nothing,
            detection=DetectionProcess(Settings(), nothing, nothing),
            queues=queues,
            workloads=(),
            hub=EventHub(),
            status_hub=EventHub(),
        )
        api = Api(create_app(services), tokens, nothing)
        yield api


def problem(response: httpx.Response, status: int, slug: str | None = None) -> dict[str, Any]:
    """The problem that was answered with."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    if slug is not None:
        assert found["type"] == f"urn:holdfast:problem:{slug}"
    return found

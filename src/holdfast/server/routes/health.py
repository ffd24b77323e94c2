"""Whether the server lives, and whether it can do its work; open to everybody, for balancers and orchestrators."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from litestar import get, head
from msgspec import Struct

from holdfast._errors import EngineUnavailable
from holdfast.engines import Database
from holdfast.server.problems import describe_errors
from holdfast.server.state import ServerState

_PROBE_TIMEOUT = 0.9
"""Shorter than the shortest timeout that orchestrators probe with by default (Kubernetes: 1 s)."""


class Health(Struct, frozen=True):
    """The server answers."""

    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True):
    """The server can do its work."""

    status: Literal["ready"] = "ready"


@head("/health", include_in_schema=False)
async def health_without_body() -> None:
    """The same for probes that ask for no body."""


@head("/ready", include_in_schema=False)
async def ready_without_body(state: ServerState) -> None:
    """The same for probes that ask for no body."""
    await _require_ready(state)


@get("/health", summary="Is the process alive?", tags=["health"])
async def health() -> Health:
    """Answer 200 as long as the process can answer at all, whatever it depends on."""
    return Health()


@get("/ready", responses=describe_errors(503), summary="Can it do its work?", tags=["health"])
async def ready(state: ServerState) -> Ready:
    """Answer 200 while the database answers and the server is not stopping, else 503."""
    await _require_ready(state)
    return Ready()


async def _require_ready(state: ServerState) -> None:
    if state.stopping:
        raise EngineUnavailable("the server is stopping: send requests elsewhere")
    try:
        await asyncio.wait_for(asyncio.shield(state.database_probe.check()), _PROBE_TIMEOUT)
    except TimeoutError as error:
        raise EngineUnavailable(f"the database did not answer within {_PROBE_TIMEOUT:g} s") from error


class DatabaseProbe:
    """Asks the database whether it answers, one question at a time, in a thread of its own.

    However many ask while it is away wait for the same answer, and nothing else waits for them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-probe")
        self._running: asyncio.Future[object] | None = None

    def check(self) -> "asyncio.Future[object]":
        """The answer to the question that is being asked, or to a new one."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._query)
        return self._running

    def _query(self) -> object:
        # A table that is always there: `select 1` would not even look at the file.
        return self._database.read(lambda transaction: transaction.execute("select count(*) from holdfast_migrations"))

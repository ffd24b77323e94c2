"""Health and readiness checks for balancers and orchestrators. They need no credential."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from litestar import get, head
from msgspec import Struct

from holdfast._errors import EngineError, EngineUnavailable
from holdfast.engines import Database
from holdfast.queue.backends.sql import schema as queue_schema
from holdfast.server.problems import describe_errors
from holdfast.server.state import ServerState, Services

logger = logging.getLogger("holdfast.server")

_PROBE_TIMEOUT = 0.9
"""Seconds: less than the shortest default timeout of an orchestrator's probe (Kubernetes: 1 s)."""


class Health(Struct, frozen=True):
    """The answer of a running server."""

    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True, omit_defaults=True):
    """The answer of a server that can process requests."""

    status: Literal["ready", "degraded"]
    problems: Mapping[str, str] = {}
    """The kind of error of each part that does not work: `queues`, `detection`, or the subsystem of a database.

    Everybody may read this, so that the message of the error, which may contain paths, is only in the log.
    """
    detection: Literal["active", "standby"] | None = None
    """Whether this server evaluates, or stands by for another one on the same database; None without workloads."""


@head("/health", include_in_schema=False)
async def health_without_body() -> None:
    """Answer like `health`, without a body."""


@head("/ready", include_in_schema=False)
async def ready_without_body(state: ServerState) -> None:
    """Answer like `ready`, without a body."""
    await _require_ready(state)


@get("/health", summary="Is the process alive?", tags=["health"])
async def health() -> Health:
    """Answer 200 while the process runs, even if its database is unavailable."""
    return Health()


@get("/ready", responses=describe_errors(503), summary="Can the server process requests?", tags=["health"])
async def ready(state: ServerState) -> Ready:
    """Answer 200 while the database answers and the server is not stopping, otherwise 503.

    If only a part fails, such as the queues, the answer is 200 with status `degraded` and the reason.
    """
    problems = await _require_ready(state)
    services = state.services
    role: Literal["active", "standby"] = "standby" if services.detection.is_standby else "active"
    return Ready("degraded" if problems else "ready", problems, role if services.workloads else None)


async def _require_ready(state: ServerState) -> Mapping[str, str]:
    if state.stopping:
        raise EngineUnavailable("the server is stopping: send requests to another server")
    try:
        return await asyncio.wait_for(asyncio.shield(state.database_probe.check()), _PROBE_TIMEOUT)
    except TimeoutError as error:
        raise EngineUnavailable(f"the database did not answer within {_PROBE_TIMEOUT:g} s") from error
    except EngineError as error:
        raise EngineUnavailable(str(error)) from error  # 503, whatever is wrong


class DatabaseProbe:
    """A probe that queries the database in its own thread. Concurrent callers share a query, and block nothing else."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._failing: frozenset[str] = frozenset()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-probe")
        self._running: asyncio.Future[Mapping[str, str]] | None = None

    def check(self) -> "asyncio.Future[Mapping[str, str]]":
        """Return the problems found by the query in progress, or start a new query."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._query)
        return self._running

    def _query(self) -> Mapping[str, str]:
        services = self._services
        _read(services.database)
        problems: dict[str, str] = {}
        for name, database in list(services.stores.items()):
            if name != queue_schema.SUBSYSTEM:  # its problems are those of the queues
                try:
                    _read(database)
                except EngineError as error:
                    problems[name] = type(error).__name__
                    if name not in self._failing:
                        logger.error("the store of %s fails: %s", name, error)  # noqa: TRY400
        self._failing = frozenset(problems)
        if services.queues.problem is not None:
            problems["queues"] = services.queues.problem
        if not services.detection.is_running:
            problems["detection"] = "TakingOver" if services.detection.is_standby else "Restarting"
        return problems


def _read(database: Database) -> None:
    # This table always exists, and `select 1` would not read the file.
    database.read(lambda transaction: transaction.execute("select count(*) from holdfast_migrations"))

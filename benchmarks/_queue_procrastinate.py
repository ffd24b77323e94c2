"""Procrastinate in the queue benchmark: many jobs deferred at once, asynchronous no-op jobs, on uvloop.

It fetches one job after the other, so that more concurrency helps little: `concurrency` and `connections` are options.
Jobs that sleep are synchronous, in threads, as for everybody. Jobs are deleted when they are done, as everybody else's
are; by default it would keep them. Options: `url`, `concurrency`, `connections`, `delete`, `uvloop`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks._queue_roles import Options, Tally

UNFINISHED = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"


def add(app: App, name: str, function: Callable[[float], None]) -> Any:
    async def awaited(number: float) -> None:
        function(number)

    def called(number: float) -> None:
        function(number)

    return app.task(name=name)(awaited if name in ("nothing", "fresh") else called)


class Sender:
    def __init__(self, options: Options) -> None:
        self._app = App(connector=SyncPsycopgConnector(conninfo=options["url"]))
        self._jobs = {name: add(self._app, name, function) for name, function in Tally().jobs.items()}
        self._app.open()
        self._app.schema_manager.apply_schema()

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:  # noqa: ARG002 - it knows none
        self._jobs[job].batch_defer(*({"number": number} for number in numbers))

    def send_one(self, job: str, number: float, tenant: str) -> None:  # noqa: ARG002
        self._jobs[job].defer(number=number)

    def close(self) -> None:
        self._app.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._options = options
        self._app = App(
            connector=PsycopgConnector(
                conninfo=options["url"], min_size=options["connections"], max_size=options["connections"]
            )
        )
        for name, function in tally.jobs.items():
            add(self._app, name, function)
        self._loop = (uvloop if options["uvloop"] else asyncio).new_event_loop()
        self._looping = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._looping.start()
        self._do(self._app.open_async().__aenter__())
        self._connection = psycopg.connect(options["url"], autocommit=True)
        self._working: Any = None

    def start(self) -> None:
        work = self._app.run_worker_async(
            concurrency=self._options["concurrency"],
            delete_jobs=self._options["delete"],
            install_signal_handlers=False,
        )
        self._working = asyncio.run_coroutine_threadsafe(work, self._loop)

    def is_settled(self) -> bool:
        [(count,)] = self._connection.execute(UNFINISHED).fetchall()
        return not count

    def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
        self._connection.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

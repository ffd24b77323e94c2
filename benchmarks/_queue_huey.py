"""Huey on SQLite in the queue benchmark, with the durability of the others: WAL and `fsync=True` (synchronous FULL).

What it can be told to leave out is left out: results, the scheduler of periodic tasks, health checks. It has two worker
threads: one is slower, and more wait for the same lock. It sends and takes one message at a time, each in a commit
of its own, and has no call for more. A message is deleted before it is handled, so that it is lost with a worker that
is killed; that saves Huey the second commit, which everybody else makes. Options: `path`, `workers`.
"""

from collections.abc import Callable, Sequence

from huey import SqliteHuey  # type: ignore[import-untyped]
from huey.api import TaskWrapper  # type: ignore[import-untyped]
from huey.consumer import Consumer  # type: ignore[import-untyped]

from benchmarks._queue_roles import Options, Tally


def opened(path: str) -> SqliteHuey:
    return SqliteHuey("work", filename=path, fsync=True, journal_mode="wal", timeout=30, results=False)


def add(huey: SqliteHuey, name: str, function: Callable[[float], None]) -> TaskWrapper:
    def job(number: float) -> None:
        function(number)

    return huey.task(name=name)(job)


class Unsignalled(Consumer):  # type: ignore[misc]
    """A consumer that may be started in any thread."""

    def _set_signal_handlers(self) -> None:
        pass


class Sender:
    def __init__(self, options: Options) -> None:
        self._huey = opened(options["path"])
        self._jobs = {name: add(self._huey, name, function) for name, function in Tally().jobs.items()}

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        for number in numbers:
            self.send_one(job, number, tenants[0])

    def send_one(self, job: str, number: float, tenant: str) -> None:  # noqa: ARG002 - it knows no tenants
        self._jobs[job](number)

    def close(self) -> None:
        self._huey.storage.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        self._huey = opened(options["path"])
        for name, function in tally.jobs.items():
            add(self._huey, name, function)
        self._consumer = Unsignalled(
            self._huey,
            workers=options.get("workers", 2),
            periodic=False,
            initial_delay=0.001,
            max_delay=0.001,
            check_worker_health=False,
        )

    def start(self) -> None:
        self._consumer.start()

    def is_settled(self) -> bool:
        return True  # it forgets a message before it handles it

    def stop(self) -> None:
        self._consumer.stop(graceful=True)
        self._huey.storage.close()

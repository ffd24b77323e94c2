"""Part `size`: memory of an idle worker, bytes that a message takes beyond its body, and seeing how deep a queue is.

The worker is a program of six lines with one no-op job, which has handled a hundred messages and is idle since. What
messages of 1,000 tenants take is the size of the SQLite file, when nothing is left beside it, less their bodies. A look
at the depth and age of a queue's lanes, and at its busiest tenants, is the median of some.
"""

import subprocess
import sys
import time
from pathlib import Path

import apsw

from benchmarks._harness import Goal
from benchmarks._queue_child import ROOT, Child, megabytes
from benchmarks._queue_servers import Engine, Servers
from benchmarks._report import Report, milliseconds
from holdfast.queue import OutgoingMessage, Queue

TENANTS = [f"tenant-{number}" for number in range(1000)]
BODY = b"x" * 100
WORKER = """
import sys
from holdfast.queue import Queue, Worker

queue = Queue("work", sys.argv[1])

@queue.job
def nothing(number: int) -> None:
    print(number, flush=True)

Worker(queue).run()
"""


def idle_worker(servers: Servers) -> float:
    """Megabytes of a worker that has nothing to do."""
    with servers.file() as path, Queue("work", f"sqlite:{path}") as queue:

        @queue.job
        def nothing(number: int) -> None: ...

        queue.send_many([nothing.to("tenant").message(number) for number in range(100)])
        words = [sys.executable, "-c", WORKER, f"sqlite:{path}"]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                for _ in range(100):
                    process.stdout.readline()
                time.sleep(2.0)
                return megabytes(process.pid)
            finally:
                process.kill()


def bytes_per_message(servers: Servers, count: int) -> float:
    """Bytes of the file for each message, without its body."""
    with servers.file() as path:
        with Queue("work", f"sqlite:{path}") as queue:
            for start in range(0, count, 1000):
                queue.send_many(
                    [OutgoingMessage(tenant=TENANTS[n % 1000], body=BODY) for n in range(start, start + 1000)]
                )
        return size_of(path) / count - len(BODY)


def size_of(path: str) -> int:
    with apsw.Connection(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    return Path(path).stat().st_size


def look_at(servers: Servers, engine: Engine, small: int, large: int) -> tuple[float, float]:
    """Seconds that a look takes, at few messages and at many."""
    with servers.store(engine) as url, Child("_queue_holdfast", "producer", url=url) as producer:
        producer.ask("load", job="nothing", count=small, tenants=TENANTS, at_once=small)
        few = producer.ask("inspect", times=51)
        producer.ask("load", job="nothing", count=large - small, tenants=TENANTS, at_once=10_000)
        return few, producer.ask("inspect", times=51)


def measure(servers: Servers, report: Report, *, quick: bool) -> None:
    report.hold(Goal("megabytes of an idle worker", idle_worker(servers), 45.0, "lower"))
    report.hold(Goal("bytes per message beyond its body", bytes_per_message(servers, 100_000), 80.0, "lower"))
    large = 100_000 if quick else 1_000_000
    places: tuple[tuple[Engine, int], ...] = (("sqlite", large), ("postgres", large // 10))
    for engine, many in places:
        few, much = look_at(servers, engine, 1000, many)
        report.say(f"a look on {engine}: {milliseconds(few)} at 1,000 messages, {milliseconds(much)} at {many:,}")
        report.keep(f"{engine}, seconds of a look at 1,000 messages", few)
        report.keep(f"{engine}, seconds of a look at {many} messages", much)
        report.hold(Goal(f"{engine}: a look at {many:,} messages, times one at 1,000", much / few, 3.0, "lower"))

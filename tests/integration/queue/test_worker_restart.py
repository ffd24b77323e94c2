"""PostgreSQL restarts under a worker: it goes on, everything is handled, and what was done is hardly done again."""

import threading
from queue import SimpleQueue

from holdfast._errors import EngineError
from holdfast.queue import Queue, QueuePolicy, Worker, WorkerOptions
from tests.services.postgres import RestartablePostgres

JOBS = 300
CONCURRENCY = 4


def test_a_worker_survives_a_restart_of_the_server(restartable_postgres: RestartablePostgres) -> None:
    done: SimpleQueue[int] = SimpleQueue()
    half, restarted = threading.Event(), threading.Event()
    with Queue("work", restartable_postgres.url, policy=QueuePolicy(lease=2.0, max_attempts=100)) as queue:

        @queue.job
        def work(number: int) -> None:
            done.put(number)
            if done.qsize() >= JOBS // 2 and not half.is_set():
                half.set()
                restarted.wait()

        queue.send_many([work.to(f"tenant-{number % 3}").message(number) for number in range(JOBS)])
        with Worker(queue, WorkerOptions(concurrency=CONCURRENCY)):
            assert half.wait(60)
            restartable_postgres.stop()
            restarted.set()  # handlers end while there is nobody to say it to
            restartable_postgres.start()
            seen = {done.get(timeout=60) for _ in range(JOBS)}
            while len(seen) < JOBS:  # those that were done twice
                seen.add(done.get(timeout=60))
            _send_when_back(queue, work.to("tenant-1").message(JOBS).body)
            while JOBS not in seen:
                seen.add(done.get(timeout=60))
        assert seen == set(range(JOBS + 1))
        assert not queue.backend.inspect("work").lanes


def _send_when_back(queue: Queue, body: bytes) -> None:
    for _ in range(20):
        try:
            queue.send(body, tenant="tenant-1", key="once")
        except EngineError:
            continue
        return
    raise AssertionError("the server is still away")

"""Handlers that hang, and messages that kill whoever handles them: what becomes of them, and of the others."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.queue import Delivery, Queue, QueuePolicy, current_message
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, Release, Settlement
from holdfast.queue.worker import Worker, WorkerOptions
from tests.integration.queue.places import depth, eventually
from tests.support.preloaded import Preloaded


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}", policy=QueuePolicy(lease=1.0)) as queue:
        yield queue


class TestHanging:
    def test_a_handler_that_hangs_keeps_its_own_slot_and_no_other(self, queue: Queue) -> None:
        """Its lease is kept, so nobody else runs into the same; the others are handled by what slots there are."""
        release, handled, hung = threading.Event(), set[bytes](), list[int]()

        @queue.handle()
        def handle(delivery: Delivery) -> None:
            if delivery.body == b"hangs":
                hung.append(delivery.attempt)
                release.wait()
            handled.add(delivery.body)

        with Worker(queue, WorkerOptions(concurrency=2, shutdown_timeout=5.0)):
            queue.send(b"hangs", tenant="a")
            eventually(lambda: hung)
            for number in range(50):
                queue.send(b"%d" % number, tenant="a")
            eventually(lambda: len(handled) == 50)
            assert list(queue.backend.lease(LeaseRequest(queue="work", count=1, lease=1.0)).deliveries) == []
            release.set()
            eventually(lambda: depth(queue.backend, "work") == (0, 0, 0, 0))
        assert hung == [1]

    def test_with_a_timeout_it_is_given_up_and_buried_and_its_slot_is_free(self, queue: Queue) -> None:
        release, handled = threading.Event(), threading.Event()

        @queue.handle(timeout=0.1, max_attempts=1)
        def handle(delivery: Delivery) -> None:
            if delivery.body == b"hangs":
                release.wait()
            else:
                handled.set()

        with Worker(queue, WorkerOptions(concurrency=2, shutdown_timeout=5.0)):
            queue.send(b"hangs", tenant="a")
            eventually(lambda: depth(queue.backend, "work") == (0, 0, 0, 1))
            queue.send(b"next", tenant="a")
            assert handled.wait(60.0)
            [letter] = queue.backend.list_dead_letters(DeadLetterQuery(queue="work"))
            assert letter.reason.startswith("TimeoutError")
            release.set()

    def test_when_all_slots_hang_nothing_more_is_taken_until_one_returns(self, queue: Queue) -> None:
        """Others may have it instead; a worker that took more would only have more that hangs."""
        release, handled = threading.Event(), threading.Event()

        @queue.handle(timeout=0.1, max_attempts=1)
        def handle(delivery: Delivery) -> None:
            if delivery.body == b"hangs":
                release.wait()
            else:
                handled.set()

        with Worker(queue, WorkerOptions(concurrency=1, shutdown_timeout=5.0)):
            queue.send(b"hangs", tenant="a")
            eventually(lambda: depth(queue.backend, "work") == (0, 0, 0, 1))
            queue.send(b"next", tenant="a")
            [other] = queue.backend.lease(LeaseRequest(queue="work", count=1, lease=30.0)).deliveries
            assert other.body == b"next"
            queue.backend.settle([Settlement(other.receipt, Release())])
            release.set()
            assert handled.wait(60.0)

    def test_a_handler_that_looks_is_told_when_it_is_given_up(self, queue: Queue) -> None:
        told = list[bool]()

        @queue.handle(timeout=0.1, max_attempts=1)
        def handle(_: Delivery) -> None:
            told.append(current_message().wait(60.0))

        with Worker(queue, WorkerOptions(concurrency=1, shutdown_timeout=5.0)):
            queue.send(b"waits", tenant="a")
            eventually(lambda: told)
        assert told == [True]


WORKER = """
    import os, signal, sys
    from holdfast.queue import Delivery, Queue
    from holdfast.queue.worker import Worker, WorkerOptions

    queue = Queue("work", sys.argv[1])
    journal = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @queue.handle()
    def handle(delivery: Delivery) -> None:
        os.write(journal, delivery.body + b"\\n")
        if delivery.body == b"poison":
            os.kill(os.getpid(), signal.SIGKILL)

    worker = Worker(queue, WorkerOptions(concurrency=1))
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.run()
"""


class TestPoison:
    def test_a_message_that_kills_its_worker_each_time_is_buried_and_the_others_are_handled(
        self, tmp_path: Path
    ) -> None:
        journal, attempts = tmp_path / "journal", 3
        url = f"sqlite:{tmp_path / 'work.sqlite'}"
        with Queue("work", url, policy=QueuePolicy(lease=0.3, max_attempts=attempts)) as queue:
            queue.send(b"poison", tenant="a")

            def start() -> "subprocess.Popen[bytes]":
                return Preloaded([sys.executable, "-c", textwrap.dedent(WORKER), url, str(journal)])

            process, deaths = start(), 0
            try:
                while depth(queue.backend, "work")[3] == 0:
                    if process.poll() is not None:
                        deaths += 1
                        assert deaths <= attempts
                        process = start()
                    threading.Event().wait(0.01)
                for number in range(5):
                    queue.send(b"%d" % number, tenant="a")
                eventually(lambda: depth(queue.backend, "work") == (0, 0, 0, 1))
            finally:
                process.terminate()
                process.wait()
            assert process.returncode == 0
            assert deaths == attempts
            [letter] = queue.backend.list_dead_letters(DeadLetterQuery(queue="work"))
        assert (letter.body, letter.attempts) == (b"poison", attempts)
        assert "the lease expired without settlement" in letter.reason
        assert sorted(journal.read_bytes().split()) == sorted([*[b"poison"] * attempts, b"0", b"1", b"2", b"3", b"4"])

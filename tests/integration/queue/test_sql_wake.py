"""A message that another process sends wakes whoever waits for it, on both engines, and after a server's restart."""

import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast import OutcomeUnknown
from holdfast.queue.backend import Backend, LeaseRequest, QueueChange
from holdfast.queue.message import Ack, Delivery, Settlement
from holdfast.queue.open import open_backend
from tests.services.postgres import RestartablePostgres
from tests.support.preloaded import Preloaded

STUCK = 60.0
FOR_EVER = 3600.0
SENDER = """
    import sys
    from holdfast.queue.message import OutgoingMessage
    from holdfast.queue.open import open_backend

    with open_backend(sys.argv[1]) as backend:
        print("ready", flush=True)
        for line in sys.stdin:
            backend.send("work", [OutgoingMessage(tenant="a", body=line.strip().encode())])
            print("sent", flush=True)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'queue.sqlite'}"
        return
    postgres_url: str = request.getfixturevalue("postgres_url")
    schema = f"wake_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        yield f"{postgres_url}?options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema {schema} cascade".encode())


@contextmanager
def sender(url: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that sends each line that it is told."""
    with Preloaded(
        [sys.executable, "-c", textwrap.dedent(SENDER), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def tell(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def receive(backend: Backend) -> Delivery:
    """The next message, by nothing but looking when one is woken."""
    while True:
        try:
            leased = backend.lease(LeaseRequest(queue="work", count=1, lease=60.0))
        except OutcomeUnknown:  # the server was stopped in the middle of it; a worker looks again, too
            continue
        if leased.deliveries:
            backend.settle([Settlement(leased.deliveries[0].receipt, Ack())])
            return leased.deliveries[0]
        backend.wait("work", FOR_EVER)


def test_a_message_of_another_process_wakes_whoever_waits(url: str) -> None:
    with open_backend(url) as backend:
        backend.change("work", QueueChange(), create=True)
        with sender(url) as process, ThreadPoolExecutor(1) as threads:
            for number in range(20):
                waiting = threads.submit(receive, backend)
                tell(process, f"{number}")
                assert waiting.result(STUCK).body == b"%d" % number


def test_several_who_wait_each_get_one(url: str) -> None:
    """No message lies there while somebody waits for one."""
    with open_backend(url) as backend:
        backend.change("work", QueueChange(), create=True)
        with sender(url) as process, ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(receive, backend) for _ in range(4)]
            for number in range(4):
                tell(process, f"{number}")
            assert sorted(future.result(STUCK).body for future in waiting) == [b"0", b"1", b"2", b"3"]


def test_after_a_restart_of_the_server_they_are_woken_again(restartable_postgres: RestartablePostgres) -> None:
    with open_backend(restartable_postgres.url, timeout=STUCK) as backend:
        backend.change("work", QueueChange(), create=True)
        with ThreadPoolExecutor(1) as threads:
            for number in range(2):
                waiting = threads.submit(receive, backend)
                with sender(restartable_postgres.url) as process:
                    tell(process, f"before {number}")
                assert waiting.result(STUCK).body == b"before %d" % number
                waiting = threads.submit(receive, backend)
                restartable_postgres.stop()
                restartable_postgres.start()
                with sender(restartable_postgres.url) as process:
                    tell(process, f"after {number}")
                assert waiting.result(STUCK).body == b"after %d" % number

"""Worker processes that are killed, or kill themselves: nothing is lost, and nothing waits for long."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import psycopg
import pytest

from holdfast.queue import OutgoingMessage, Queue
from holdfast.queue.backend import DeadLetterQuery
from tests.integration.queue.worker_process import ATTEMPTS, LEASE, make
from tests.support.preloaded import Preloaded

PROGRAM = Path(__file__).with_name("worker_process.py")
JOBS = 25


class Line(NamedTuple):
    at: float
    word: str
    number: int


class Process:
    """A worker process, and what it has said."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.lines: list[Line] = []

    def read(self, count: int, word: str) -> list[Line]:
        """The lines with a word, when there are so many, or the process has ended."""
        assert self.process.stdout is not None
        while len(found := [line for line in self.lines if line.word == word]) < count:
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                break
            at, what, number = line.split()
            self.lines.append(Line(float(at), what.decode(), int(number)))
        return found

    def kill(self) -> None:
        self.process.kill()
        self.read(sys.maxsize, "any")
        assert self.process.wait() == -9

    def numbers(self, word: str) -> list[int]:
        return [line.number for line in self.lines if line.word == word]


@contextmanager
def _worker(address: str, what: str = "work") -> Iterator[Process]:
    """A worker process, until the end of the block at the latest."""
    command = [sys.executable, str(PROGRAM), address, what]
    with Preloaded(command, stdout=subprocess.PIPE) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'work.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    schema = f"worker_kill_{abs(hash(tmp_path)):x}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
    return f"{url}?options=-csearch_path%3D{schema}"


def _send(queue: Queue, *numbers: int, job: str = "work") -> None:
    queue.send_many(
        [
            OutgoingMessage(tenant=f"tenant-{number % 5}", body=msgspec.msgpack.encode((job, {"number": number})))
            for number in numbers
        ]
    )


def test_the_messages_of_a_killed_worker_are_delivered_to_another_in_time(address: str) -> None:
    """The other worker is there all the time, and idle: the first has all that there is."""
    with make(address) as queue:
        _send(queue, *range(4))
        with _worker(address, "hang") as first:
            first.read(4, "began")
            with _worker(address) as second:
                _send(queue, 100)
                second.read(1, "ended")  # it is awake
                first.kill()
                killed = queue.backend.inspect("work").at  # the time by which the store goes: for both, this machine's
                second.read(5, "ended")
        assert sorted(second.numbers("ended")) == [0, 1, 2, 3, 100]
        again = [line.at for line in second.lines if line.word == "began" and line.number != 100]
        assert max(again) - killed <= 5 * LEASE, "when the lease was over, as soon as a busy machine could"
        assert not queue.backend.list_dead_letters(DeadLetterQuery(queue="work"))


def test_nothing_is_lost_over_many_kills(address: str) -> None:
    sent, ended = 0, set[int]()
    kills = 0
    with make(address, max_attempts=1000) as queue:
        while len(ended) < JOBS and kills < 100:
            if sent < JOBS:  # a few at a time: on a busy machine, a worker may end all that there are before its kill
                _send(queue, *range(sent, sent + 5))
                sent += 5
            with _worker(address) as worker:
                worker.read(min(3, sent - len(ended)), "ended")
                worker.kill()
            ended.update(worker.numbers("ended"))
            kills += 1
        assert kills >= JOBS // 5
        assert ended == set(range(JOBS))
        assert not queue.backend.list_dead_letters(DeadLetterQuery(queue="work"))


def test_a_message_that_kills_its_worker_is_buried_in_the_end(address: str) -> None:
    with make(address) as queue:
        _send(queue, -1)
        for _ in range(ATTEMPTS):
            with _worker(address) as worker:
                assert [line.number for line in worker.read(2, "began")] == [-1]
                assert worker.process.wait() == 7
        with _worker(address) as worker:
            worker.read(1, "buried")
            _send(queue, 0)
            worker.read(1, "ended")
            assert worker.numbers("began") == [0]
        [letter] = queue.backend.list_dead_letters(DeadLetterQuery(queue="work"))
        assert letter.attempts == ATTEMPTS
        assert "the lease expired without settlement" in letter.reason


def test_a_worker_that_is_asked_to_end_ends_its_work_first(address: str) -> None:
    with make(address) as queue:
        _send(queue, 1, job="wait_for_stop")
        with _worker(address) as worker:
            worker.read(1, "stopped")
            assert worker.process.wait() == 0
        assert [line.word for line in worker.lines] == ["began", "ended", "stopped"]
        assert not queue.backend.inspect("work").lanes

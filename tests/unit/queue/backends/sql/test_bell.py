"""Whoever waits is woken, by whoever sends, and by nobody else."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.engines.sqlite.connection import ChangeCounter
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.backends.sql.bell import PostgresBell, SqliteBell
from holdfast.queue.message import OutgoingMessage

STUCK = 30.0


class ScriptedCounter(ChangeCounter):
    """What a file's counter says, in the hands of the test; `looks` says how often it was asked."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.version: int | None = 1
        self.looked = threading.Semaphore(0)

    def read(self) -> int | None:
        self.looked.release()
        return self.version


class ScriptedListener:
    """Hears what the test says."""

    def __init__(self) -> None:
        self.said: SimpleQueue[list[str] | None] = SimpleQueue()
        self.is_closed = False

    def wait_for_notifications(self, seconds: float) -> list[str] | None:
        try:
            return self.said.get(timeout=0.001)
        except Exception:
            return []

    def close(self) -> None:
        self.is_closed = True


class TestSqliteBell:
    @pytest.fixture
    def counter(self) -> ScriptedCounter:
        return ScriptedCounter()

    def test_what_comes_from_another_process_is_seen_in_the_file(self, counter: ScriptedCounter) -> None:
        bell = SqliteBell(counter, lambda _: True)
        bell.mark("work", bell.heard("work"))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(bell.wait, "work", STUCK)
            _look(counter, 5)
            assert not waiting.done()
            counter.version = 2
            assert waiting.result(STUCK)

    def test_a_commit_that_does_not_concern_the_queue_wakes_nobody(self, counter: ScriptedCounter) -> None:
        asked: list[str] = []

        def has_something(queue: str) -> bool:
            asked.append(queue)
            return len(asked) > 2

        bell = SqliteBell(counter, has_something)
        bell.mark("work", bell.heard("work"))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(bell.wait, "work", STUCK)
            for version in (2, 3):
                _look(counter, 3)
                counter.version = version
                _look(counter, 3)
                assert not waiting.done()
            assert asked == ["work", "work"], "once for each commit"
            counter.version = 4
            assert waiting.result(STUCK)

    def test_what_comes_from_this_process_needs_no_look(self, counter: ScriptedCounter) -> None:
        bell = SqliteBell(counter, lambda _: False)
        bell.mark("work", bell.heard("work"))
        bell.ring(["other"])
        assert not bell.wait("work", 0.0)
        bell.ring(["work"])
        assert bell.wait("work", STUCK)
        assert bell.wait("work", STUCK), "until somebody has looked"

    def test_a_file_that_tells_nothing_is_looked_into(self, counter: ScriptedCounter) -> None:
        counter.version = None
        bell = SqliteBell(counter, lambda _: True)
        bell.mark("work", (0, 1))
        assert bell.wait("work", STUCK)

    def test_closing_lets_everybody_go(self, counter: ScriptedCounter) -> None:
        bell = SqliteBell(counter, lambda _: False)
        bell.mark("work", bell.heard("work"))
        with ThreadPoolExecutor(2) as threads:
            waiting: list[Future[bool]] = [threads.submit(bell.wait, "work", 3600.0) for _ in range(2)]
            _look(counter, 5)
            bell.close()
            for future in waiting:
                future.result(STUCK)


class TestPostgresBell:
    def test_what_is_notified_wakes_those_who_wait_for_it(self) -> None:
        listener = ScriptedListener()
        bell = PostgresBell(listener)  # type: ignore[arg-type]
        bell.mark("work", bell.heard("work"))
        bell.mark("other", bell.heard("other"))
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(bell.wait, "work", STUCK)
            other = threads.submit(bell.wait, "other", STUCK)
            listener.said.put(["work"])
            assert waiting.result(STUCK)
            assert not other.done()
            listener.said.put(["other"])
            assert other.result(STUCK)
        bell.close()
        assert listener.is_closed

    def test_after_a_time_without_a_connection_everybody_looks(self) -> None:
        listener = ScriptedListener()
        bell = PostgresBell(listener)  # type: ignore[arg-type]
        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(bell.wait, queue, STUCK) for queue in ("work", "other")]
            for future in waiting:
                listener.said.put(None)  # the first may come before the second waits
                assert future.result(STUCK)
        bell.close()

    def test_closing_lets_everybody_go_and_may_be_repeated(self) -> None:
        bell = PostgresBell(ScriptedListener())  # type: ignore[arg-type]
        bell.mark("work", bell.heard("work"))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(bell.wait, "work", 3600.0)
            bell.close()
            assert waiting.result(STUCK)
        bell.close()
        assert bell.wait("work", 3600.0), "there is nothing to wait for any more"

    def test_whoever_never_waits_needs_no_listener(self) -> None:
        listener = ScriptedListener()
        bell = PostgresBell(listener)  # type: ignore[arg-type]
        before = threading.active_count()
        bell.ring(["work"])
        assert threading.active_count() == before
        bell.close()


def _look(counter: ScriptedCounter, times: int) -> None:
    """Return when it was asked so many times more."""
    while counter.looked.acquire(blocking=False):
        pass
    for _ in range(times):
        assert counter.looked.acquire(timeout=STUCK)


class RecordingBell(SqliteBell):
    """Remembers whose looks were taken for the last word."""

    def __init__(self) -> None:
        super().__init__(ScriptedCounter(), lambda _: False)
        self.marks: list[str] = []

    def mark(self, queue: str, heard: object) -> None:
        self.marks.append(queue)
        super().mark(queue, heard)


def test_only_a_worker_that_left_nothing_behind_speaks_for_the_others(tmp_path: Path) -> None:
    """One that got all that it asked for has not seen what else there is: another that waits must look itself."""
    with SqlBackend(SqliteDatabase(tmp_path / "queue.sqlite")) as backend:
        backend.change("work", QueueChange(), create=True)
        backend._bell.close()
        bell = backend._bell = RecordingBell()
        backend.send("work", [OutgoingMessage(tenant="a", body=b"x")] * 3)
        assert len(backend.lease(LeaseRequest(queue="work", count=1, lease=60.0)).deliveries) == 1
        assert bell.marks == []
        assert bell.wait("work", STUCK)
        assert len(backend.lease(LeaseRequest(queue="work", count=5, lease=60.0)).deliveries) == 2
        assert bell.marks == ["work"]
        assert not bell.wait("work", 0.0)

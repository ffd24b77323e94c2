"""What group commit is worth on SQLite, and what Holdfast's writer costs above the bare driver.

Every contender writes the same rows of 100 bytes, durably (synchronous FULL), to a new file. `bare` loops use the
same driver (apsw) by hand. `one by one` commits each row; `in hundreds` commits 100 rows at a time, as a hand-written
loop would that can afford to wait for them; `threads` is the group commit one would write by hand, a queue and one
writing thread, for callers that each wait for their own row.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # finds `benchmarks`, and no file of it instead of a standard module

import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import apsw

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase

TABLE = "create table item (number integer primary key, tenant text, body blob)"
INSERT = "insert into item (tenant, body) values ($1, $2)"
ROW = ("tenant-1", b"x" * 100)
HUNDRED = [ROW] * 100
CALLERS = 64
IN_FLIGHT = 256


@contextmanager
def bare(write: Callable[[apsw.Connection, int], int]) -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(f"{folder}/bare.sqlite")
        for statement in ("pragma journal_mode = wal", "pragma synchronous = full", TABLE):
            connection.execute(statement).fetchall()
        yield partial(in_thread, partial(write, connection))
        connection.close()


@contextmanager
def holdfast(write: Callable[[SqliteDatabase, int], int]) -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder, SqliteDatabase(f"{folder}/holdfast.sqlite") as database:
        database.write(lambda transaction: transaction.execute(TABLE))
        yield partial(in_thread, partial(write, database))


@contextmanager
def holdfast_main(write: Callable[[SqliteDatabase, int], int]) -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder, SqliteDatabase(f"{folder}/holdfast.sqlite") as database:
        database.write(lambda transaction: transaction.execute(TABLE))
        yield partial(write, database)


def in_thread(work: Work, count: int) -> int:
    """Run it in a thread, as a server does: Holdfast's main thread never writes itself (see `sqlite/writer.py`)."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, count).result()


def bare_one_by_one(connection: apsw.Connection, count: int) -> int:
    for _ in range(count):
        connection.execute(INSERT, ROW)
    return count


def bare_in_hundreds(connection: apsw.Connection, count: int) -> int:
    for _ in range(count // 100):
        connection.execute("begin immediate")
        connection.executemany(INSERT, HUNDRED)
        connection.execute("commit")
    return count


def bare_threads(connection: apsw.Connection, count: int) -> int:
    waiting: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()

    def writer() -> None:
        while (first := waiting.get()) is not None:
            group = [first]
            while not waiting.empty() and (another := waiting.get()) is not None:
                group.append(another)
            connection.execute("begin immediate")
            for _ in group:
                connection.execute(INSERT, ROW)
            connection.execute("commit")
            for waiter in group:
                waiter.release()

    def write_one() -> None:
        done = threading.Lock()
        done.acquire()
        waiting.put(done)
        done.acquire()

    thread = threading.Thread(target=writer)
    thread.start()
    call_from_threads(write_one, count)
    waiting.put(None)
    thread.join()
    return count


def insert_one(transaction: Transaction) -> None:
    transaction.execute(INSERT, ROW)


def insert_hundred(transaction: Transaction) -> None:
    transaction.execute_many(INSERT, HUNDRED)


def holdfast_one_by_one(database: SqliteDatabase, count: int) -> int:
    for _ in range(count):
        database.write(insert_one)
    return count


def holdfast_in_hundreds(database: SqliteDatabase, count: int) -> int:
    for _ in range(count // 100):
        database.write(insert_hundred)
    return count


def holdfast_threads(database: SqliteDatabase, count: int) -> int:
    call_from_threads(lambda: database.write(insert_one), count)
    return count


def holdfast_in_flight(database: SqliteDatabase, count: int) -> int:
    futures: deque[Future[None]] = deque()
    for _ in range(count):
        if len(futures) == IN_FLIGHT:
            futures.popleft().result()
        futures.append(database.submit(insert_one))
    while futures:
        futures.popleft().result()
    return count


def call_from_threads(call: Callable[[], object], count: int) -> None:
    def calls() -> None:
        for _ in range(count // CALLERS):
            call()

    threads = [threading.Thread(target=calls) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def goals(results: Results) -> list[Goal]:
    def ratio(name: str, base: str) -> float:
        return paired_ratio(results.rates(name), results.rates(base))

    return [
        Goal("group_commit_over_single_commits", ratio("holdfast in flight", "bare one by one"), 5.0, "higher"),
        Goal("share_of_bare_loop_in_hundreds", ratio("holdfast in hundreds", "bare in hundreds"), 0.8, "higher"),
        Goal("share_of_bare_loop_one_by_one", ratio("holdfast one by one", "bare one by one"), 0.7, "higher"),
        Goal("share_of_bare_loop_threads", ratio("holdfast threads", "bare threads"), 0.8, "higher"),
    ]


def build(quick: bool) -> Benchmark:
    scale = 1 if quick else 4
    return Benchmark(
        contenders=[
            Contender("bare one by one", lambda: bare(bare_one_by_one), 1_000 * scale),
            Contender("holdfast one by one", lambda: holdfast(holdfast_one_by_one), 1_000 * scale),
            Contender("bare in hundreds", lambda: bare(bare_in_hundreds), 50_000 * scale),
            Contender("holdfast in hundreds", lambda: holdfast(holdfast_in_hundreds), 50_000 * scale),
            Contender("holdfast from main thread", lambda: holdfast_main(holdfast_in_hundreds), 50_000 * scale),
            Contender("bare threads", lambda: bare(bare_threads), 6_400 * scale),
            Contender("holdfast threads", lambda: holdfast(holdfast_threads), 6_400 * scale),
            Contender("holdfast in flight", lambda: holdfast(holdfast_in_flight), 20_000 * scale),
        ],
        goals=goals,
        rounds=5 if quick else 9,
        base="bare one by one",
    )


if __name__ == "__main__":
    sys.exit(main("engines", build))

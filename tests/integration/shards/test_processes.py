"""Several processes that share one registry, some of which are killed, never give a number to two tenants."""

import subprocess
import sys
import textwrap
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

import psycopg
import pytest

from holdfast.engines import Database, Transaction
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.shards.stores import SqlShardStore
from holdfast.testing import seeded
from tests.support.preloaded import Preloaded
from tests.table import sampled

OURS = [f"ours-{number}".encode() for number in range(40)]

# Each line is one system call: it is seen whole or not at all. What is said before an act is said in the present.
PROCESS = """
    import os, select, sys, time
    from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
    from holdfast.engines.sqlite import SqliteDatabase
    from holdfast.shards.stores import SqlShardStore
    from holdfast.testing import seeded

    database_url, me, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    is_postgres = database_url.startswith("postgres")
    database = (
        PostgresDatabase(PostgresOptions(url=database_url))
        if is_postgres
        else SqliteDatabase(database_url, timeout=60.0)
    )
    store = SqlShardStore(database, "shop")
    randomness = seeded("shards", me)

    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())

    say("ready")
    sys.stdin.buffer.readline()  # all begin together
    mine, turn = [], 0
    while turn < turns or not select.select([0], [], [], 0)[0]:
        names = [f"{me}-{turn}-{number}" for number in range(randomness.randint(1, 3))]
        ours = f"ours-{turn % 40}"
        numbers = store.assign([name.encode() for name in (*names, ours)], 1 << 40)
        now = time.monotonic()
        for name, number in zip((*names, ours), numbers):
            say("has", name, number, now)
        mine += names
        if len(mine) > 6:
            gone = [mine.pop(randomness.randrange(len(mine))) for _ in range(4)]
            now = time.monotonic()
            for name in gone:
                say("gives", name, now)
            assert store.remove([name.encode() for name in gone]) == 4
        loose = f"loose-{randomness.randint(0, 3)}".encode()  # many take and give these
        store.remove([loose])
        store.assign([loose], 1 << 40)
        turn += 1
    database.close()
"""


class Held(NamedTuple):
    """How long a tenant had a number, at the least: from when it was told so until it was going to give it back."""

    since: float
    until: float
    tenant: bytes


class Ledger:
    """What processes were told."""

    def __init__(self) -> None:
        self.ours: dict[bytes, set[int]] = defaultdict(set)
        self.kept: dict[bytes, int] = {}
        self.held: dict[int, list[Held]] = defaultdict(list)

    def read(self, lines: list[bytes]) -> None:
        taken: dict[bytes, tuple[int, float]] = {}
        for line in lines:
            match line.split():
                case [b"has", name, number, _] if name.startswith(b"ours-"):
                    self.ours[name].add(int(number))
                case [b"has", name, number, since]:
                    taken[name] = (int(number), float(since))
                case [b"gives", name, until]:
                    told, begun = taken.pop(name)
                    self.held[told].append(Held(begun, float(until), name))
        for name, (told, begun) in taken.items():
            self.kept[name] = told
            self.held[told].append(Held(begun, float("inf"), name))


@pytest.fixture
def sqlite_place(tmp_path: Path) -> str:
    return str(tmp_path / "shards.sqlite")


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[str]:
    schema = f"shards_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        yield f"{postgres_url}?options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture(params=sampled(["sqlite_place", "postgres_place"]))
def database_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def open_database(database_url: str) -> Database:
    return (
        PostgresDatabase(PostgresOptions(url=database_url))
        if database_url.startswith("postgres")
        else SqliteDatabase(database_url)
    )


class Process:
    """One that assigns and releases, and says so."""

    def __init__(self, database_url: str, name: str, turns: int) -> None:
        arguments = [sys.executable, "-c", textwrap.dedent(PROCESS), database_url, name, str(turns)]
        self._process = Preloaded(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        assert self._out.readline() == b"ready\n"

    def begin(self) -> None:
        self._in.write(b"\n")
        self._in.flush()

    def listen(self) -> list[bytes]:
        """All it says until it ends."""
        return self._out.readlines()

    def end(self) -> int:
        """Ask it to end, once it has done all its turns."""
        self._in.close()
        return self._process.wait(60)

    def kill_after(self, count: int) -> list[bytes]:
        """Kill it when it has said so many lines; returns those, and what it had said besides."""
        lines = [self._out.readline() for _ in range(count)]
        self._process.kill()
        assert self._process.wait(60) == -9
        return [line for line in [*lines, *self._out.readlines()] if line.endswith(b"\n")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()


@contextmanager
def running(database_url: str, count: int, turns: int) -> Iterator[Ledger]:
    """So many processes at once, for so many turns at least and as long as the block; then what they were told."""
    ledger = Ledger()
    with ThreadPoolExecutor(count) as threads, ExitStack() as started:
        processes = [started.enter_context(Process(database_url, f"p{number}", turns)) for number in range(count)]
        said = [threads.submit(process.listen) for process in processes]  # who is not listened to stops
        for process in processes:
            process.begin()
        yield ledger
        for process in processes:
            assert process.end() == 0
        for lines in said:
            ledger.read(lines.result())


def examine(database_url: str, ledger: Ledger) -> None:
    """What was acknowledged is there, no number was two tenants' at a time, and none was lost."""
    with open_database(database_url) as database:
        store = SqlShardStore(database, "shop")
        kept = dict(store.list_tenants(None, 1_000_000))

        def numbers(transaction: Transaction) -> tuple[list[int], int]:
            free = transaction.execute("select number from holdfast_shard_free")
            [(following,)] = transaction.execute("select next_number from holdfast_shard_registry")
            return [number for (number,) in free], following

        free, following = database.read(numbers)
    assert all(len(given) == 1 for given in ledger.ours.values()), "all were told the same of the same tenant"
    acknowledged = ledger.kept | {name: min(given) for name, given in ledger.ours.items()}
    assert acknowledged == {name: kept.get(name) for name in acknowledged}
    assert sorted([*kept.values(), *free]) == list(range(following))
    for held in ledger.held.values():
        held.sort()
        for one, other in pairwise(held):
            assert one.until <= other.since, f"{one} and {other}"
    assert not ledger.ours.keys() - set(OURS)


def test_processes_at_once_never_share_a_number(database_url: str) -> None:
    with running(database_url, 4, turns=60) as ledger:
        pass
    examine(database_url, ledger)
    assert set(ledger.ours) == set(OURS)
    owners = [{entry.tenant.split(b"-")[0] for entry in held} for held in ledger.held.values()]
    assert sum(len(some) > 1 for some in owners) > 5, "else nothing was reused, and this shows nothing"


@pytest.mark.parametrize("kills", sampled([3, 40]))
def test_killed_processes_lose_nothing_they_were_told_and_no_number_is_given_twice(
    database_url: str, kills: int
) -> None:
    randomness = seeded("kill", "shards")
    with running(database_url, 3, turns=20) as ledger:
        for number in range(kills):
            with Process(database_url, f"killed{number}", 1_000_000) as process:
                process.begin()
                ledger.read(process.kill_after(randomness.randint(1, 120)))
        killed = len(ledger.kept)
    examine(database_url, ledger)
    assert killed >= kills

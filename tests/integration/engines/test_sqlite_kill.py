"""kill -9 at any moment loses no acknowledged write."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing import seeded
from tests.table import sampled

WRITER = """
    import os, sys, threading
    from holdfast.engines.sqlite import SqliteDatabase

    database = SqliteDatabase(sys.argv[1])
    run = int(sys.argv[2])

    def work(worker):
        number = 0
        while True:
            row = (run, worker, number)
            database.write(lambda transaction: transaction.execute("insert into item values ($1, $2, $3)", row))
            os.write(1, b"%d %d %d\\n" % row)  # one system call: an acknowledgement is seen whole or not at all
            number += 1

    for worker in range(4):
        threading.Thread(target=work, args=(worker,)).start()
"""


@pytest.mark.parametrize("kills", sampled([15, 100]))
def test_no_acknowledged_write_is_lost_over_many_kills(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "test.sqlite"
    with SqliteDatabase(path) as database:
        database.write(
            lambda transaction: transaction.execute(
                "create table item (run bigint, worker bigint, number bigint, primary key (run, worker, number))"
            )
        )
    randomness = seeded("kill loop")
    acknowledged: set[tuple[int, ...]] = set()
    for run in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(run)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(randomness.randint(1, 200))]
            process.kill()
            lines += process.stdout.readlines()
        assert process.returncode == -9
        acknowledged.update(tuple(map(int, line.split())) for line in lines if line.endswith(b"\n"))

    with SqliteDatabase(path) as database:
        database.check()
        kept = set(database.read(lambda transaction: transaction.execute("select * from item")))
    assert len({run for run, *_ in acknowledged}) == kills
    assert acknowledged <= kept
    # What was written but not yet acknowledged may be there: at most one row for each worker of each run.
    assert len(kept - acknowledged) <= 4 * kills

"""The disk that fails on purpose fails in the ways it says."""

from pathlib import Path

import apsw
import pytest

from holdfast.engines.sqlite import SqliteDatabase
from tests.support.disk import FaultyDisk


def test_it_is_in_use_only_while_entered() -> None:
    before = apsw.vfs_names()
    with FaultyDisk():
        assert apsw.vfs_names()[0] not in before
    assert apsw.vfs_names() == before


def test_it_counts_syncs_and_lets_everything_else_through(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        before = disk.syncs
        database.write(lambda transaction: transaction.execute("insert into item values ('a')"))
        assert disk.syncs == before + 1, "one sync for one commit"


def test_a_power_cut_finds_the_files_also_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("after").mkdir()
    with FaultyDisk() as disk, SqliteDatabase("test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        copy = disk.cut_power(Path("test.sqlite"), Path("after"))
        with SqliteDatabase(copy) as found:
            assert found.read(lambda transaction: transaction.execute("select * from item")) == []

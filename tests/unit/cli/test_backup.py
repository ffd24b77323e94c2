"""`holdfast backup` copies what is there and overwrites nothing."""

from pathlib import Path

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from tests.unit.cli.conftest import Run, closed


@pytest.fixture
def filled(run: Run, here: Path) -> Path:
    """The data directory of a Holdfast with one credential."""
    assert run("credential", "create", "--role", "viewer").code == 0
    return here / "holdfast-data"


def test_every_database_is_copied_whole_into_a_new_folder(run: Run, here: Path, filled: Path) -> None:
    with SqliteDatabase(filled / "other.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (id bigint)"))
    copies = run("backup", "deep/er", "--json").result
    assert [copy["source"] for copy in copies] == ["holdfast-data/other.sqlite", "holdfast-data/server.sqlite"]
    assert [copy["copy"] for copy in copies] == ["deep/er/other.sqlite", "deep/er/server.sqlite"]
    for copy in copies:
        assert copy["bytes"] == (here / copy["copy"]).stat().st_size > 0
        with SqliteDatabase(here / copy["copy"]) as database:
            database.check()


def test_a_copy_can_take_the_place_of_the_original(run: Run, here: Path, filled: Path) -> None:
    before = run("credential", "list", "--json").result
    assert run("backup", "copies").code == 0
    (filled / "server.sqlite").unlink()
    (here / "copies" / "server.sqlite").rename(filled / "server.sqlite")
    assert run("credential", "list", "--json").result == before


def test_people_are_told_what_went_where(run: Run, filled: Path) -> None:
    ran = run("backup", "copies")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("holdfast-data/server.sqlite -> copies/server.sqlite (")
    assert ran.out.endswith(" bytes)\n")


def test_a_copy_that_exists_is_not_overwritten(run: Run, here: Path, filled: Path) -> None:
    assert run("backup", "copies").code == 0
    before = (here / "copies" / "server.sqlite").read_bytes()
    run("credential", "create", "--role", "viewer")
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (1, "conflict")
    assert "copies/server.sqlite exists already" in ran.error["detail"]
    assert (here / "copies" / "server.sqlite").read_bytes() == before


@pytest.mark.parametrize("exists", [False, True])
def test_where_there_is_nothing_nothing_is_made(run: Run, here: Path, exists: bool) -> None:
    if exists:
        (here / "holdfast-data").mkdir()
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == "there is nothing to back up in holdfast-data"
    assert [entry.name for entry in here.iterdir()] == ["holdfast-data"] * exists


def test_a_data_directory_of_another_user_is_told_with_that_user_and_never_looks_empty(run: Run, filled: Path) -> None:
    assert run("backup", "copies").code == 0  # imports what nobody else may
    with closed(filled) as owner:
        ran = run("backup", "more", "--json")
    assert (ran.code, ran.error["error"]) == (2, "settings")
    assert f"belongs to {owner}; do this as {owner}" in ran.error["detail"]


def test_a_target_that_cannot_be_made_is_named(run: Run, here: Path, filled: Path) -> None:
    (here / "file").write_text("")
    for target in ("file", "file/deeper"):
        ran = run("backup", target, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith(f"{target} cannot be made: ")


def test_what_is_no_database_is_named(run: Run, here: Path, filled: Path) -> None:
    (filled / "damaged.sqlite").write_bytes(b"not a database" * 100)
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (1, "database-corrupt")
    assert "damaged.sqlite" in ran.error["detail"]


def test_postgresql_is_left_to_its_own_tools_and_its_password_is_not_shown(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", "postgresql://user:hunter2@host/name")
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert "pg_dump" in ran.error["detail"]
    assert "hunter2" not in ran.err
    assert list(here.iterdir()) == []

"""From settings to objects."""

import os
from pathlib import Path

import pytest

from holdfast import Conflict, NotFound, SettingsError
from holdfast.compose import Databases, data_directory, existing_store, only_server, open_database
from holdfast.config import DatabaseSettings, DatabaseUrl, Settings


def settings(folder: Path, url: str = "sqlite:") -> Settings:
    return Settings(data_directory=folder / "data", database=DatabaseSettings(url=DatabaseUrl(url)))


def test_every_subsystem_has_a_file_of_its_own(tmp_path: Path) -> None:
    with Databases(settings(tmp_path)) as databases:
        assert databases.of("one") is databases.of("one")
        assert databases.of("one") is not databases.of("two")
        assert databases.of("one").dialect == "sqlite"
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"one.sqlite", "two.sqlite"}


def test_all_subsystems_share_one_pool_of_postgresql(tmp_path: Path, postgres_url: str) -> None:
    with Databases(settings(tmp_path, postgres_url)) as databases:
        assert databases.of("one") is databases.of("two")
        assert databases.of("one").dialect == "postgres"
    assert not (tmp_path / "data").exists()


def test_databases_may_be_closed_again(tmp_path: Path) -> None:
    databases = Databases(settings(tmp_path))
    databases.of("one")
    databases.close()
    databases.close()


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with pytest.raises(NotFound, match=r"there is no store at .*data/server\.sqlite"):
        existing_store(values, "server")
    assert not (tmp_path / "data").exists()
    open_database(values, "server").close()
    existing_store(values, "server")


def test_a_store_in_postgresql_is_looked_for_there(tmp_path: Path) -> None:
    existing_store(settings(tmp_path, "postgresql://localhost/x"), "server")


def test_the_data_directory_is_made_and_closed_to_others(tmp_path: Path) -> None:
    path = data_directory(settings(tmp_path / "below"))
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SettingsError, match="data cannot be made"):
        data_directory(settings(tmp_path))


def test_a_second_server_is_told_of_the_first_and_the_next_one_may_start(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with only_server(values), pytest.raises(Conflict, match=rf"process {os.getpid()}\)"), only_server(values):
        pass
    with only_server(values):
        pass


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "data" / "server.lock").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"server\.lock cannot be opened"), only_server(settings(tmp_path)):
        pass

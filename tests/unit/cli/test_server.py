"""`holdfast check` says which settings are in effect, and why."""

import re
from pathlib import Path

import pytest

from holdfast.config.load import list_setting_types
from holdfast.config.paths import ANY_INDEX, format_path
from holdfast.engines.sqlite import SqliteDatabase
from tests.unit.cli.conftest import Run, closed

URL = "postgresql://user:hunter2@host/name?sslpassword=hunter2"
MASKED = "postgresql://user:****@host/name?sslpassword=****"


def test_every_setting_is_shown_with_its_value_and_where_it_comes_from(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        "[server]\nport = 1\nallow_anonymous = true\n",
        "[[telemetry.emf]]\nnamespace = 'n'\nworkload = 'shop'\noperation = 'o'\n",
        "counts = { total = 'c' }\nlatency = { all = 'l' }\n",
        "[[telemetry.source]]\nkind = 'emf_file'\noptions = { paths = ['x'] }\n",
        "[[workload]]\nname = 'shop'\nregion = 'us-east-1'\nzones = ['use1-az1', 'use1-az2']\n",
        "resources = { tags = { Key = 'v' } }\n",
        "[[workload.alarms.resource]]\nname = 'orders'\noperations = ['a/b']\n",
        "[[workload.canary]]\noperation = 'a/b'\nendpoint = 'http://{zone}'\nheaders = { Key = 'hunter2' }\n",
        "[[evacuation.action]]\nname = 'zonal-shift'\noptions = { hours = 6 }\n",
        "[[evacuation.account]]\nprofile = 'p'\n",
        "[[alert]]\nname = 'chat'\nchannel = 'webhook'\noptions = { url = 'https://x.example/hunter2' }\n",
        "[[queue]]\nname = 'mail'\n[[queue.tenant]]\nname = 'tenant-a'\nlimits = {}\n",
    ]
    (here / "holdfast.toml").write_text("".join(parts))
    monkeypatch.setenv("HOLDFAST_SERVER__PORT", "2")
    result = run("check", "--json").result
    assert result["file"] == "holdfast.toml"
    shown = result["settings"]
    ending = re.compile(r"\.(Key|total|all|paths)$|(?<=options)\.(url|hours)$")
    fixed = [ending.sub("", name) for name in shown if ".detector." not in name]
    assert fixed == [format_path(path).replace("[]", "[0]") for path in list_setting_types() if path[-1] != "detector"]
    assert shown["workload[0].detector.name"] == {"value": "calibrated", "from": "default"}
    assert shown["workload[0].zones"] == {"value": ["use1-az1", "use1-az2"], "from": "holdfast.toml"}
    assert shown["workload[0].detector.false_isolations"] == {"value": 0.2, "from": "default"}
    assert shown["server.port"] == {"value": 2, "from": "environment variable HOLDFAST_SERVER__PORT"}
    assert shown["server.allow_anonymous"] == {"value": True, "from": "holdfast.toml"}
    assert shown["workload[0].canary[0].headers.Key"] == {"value": "****", "from": "holdfast.toml"}
    assert shown["alert[0].options.url"] == {"value": "https://x.example/****", "from": "holdfast.toml"}
    assert shown["server.host"] == {"value": "127.0.0.1", "from": "default"}


def test_a_server_whose_settings_contradict_each_other_does_not_start(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text("[server]\nallow_anonymous = true\n[status]\nallow_anonymous_reads = false\n")
    ran = run("up", "--port", "0", "--json")
    assert (ran.code, ran.error["error"]) == (2, "settings")
    assert "set server.allow_anonymous = false, or status.allow_anonymous_reads = true" in ran.error["detail"]


def test_without_a_file_there_is_none_to_name(run: Run) -> None:
    result = run("check", "--json").result
    assert result["file"] is None
    assert {entry["from"] for entry in result["settings"].values()} == {"default"}


def test_people_get_a_table_with_values_as_they_are_written_in_the_file(run: Run, here: Path) -> None:
    (here / "other.toml").write_text('data_directory = "[bold]here"\n')
    ran = run("check", "other.toml")
    assert (ran.code, ran.err) == (0, "")
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["setting", "value", "from"]
    assert ["data_directory", '"[bold]here"', "other.toml"] in lines
    assert ["server.allow_anonymous", "false", "default"] in lines
    assert ["server.port", "8470", "default"] in lines
    assert ["evacuation.action[0].name", '"status"', "default"] in lines
    assert len(lines) == len([path for path in list_setting_types() if ANY_INDEX not in path]) + 2


def test_secrets_are_masked_wherever_they_are_set(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "holdfast.toml").write_text(f"database.url = '{URL}'\n")
    from_file = [run("check"), run("check", "--json")]
    (here / "holdfast.toml").unlink()
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", URL)
    for ran in (*from_file, run("check"), run("check", "--json")):
        assert ran.code == 0
        assert MASKED in ran.out
        assert "hunter2" not in ran.out + ran.err


def test_a_wrong_file_is_told_with_file_line_and_place(run: Run, here: Path) -> None:
    (here / "wrong.toml").write_text("\n[log]\nlevel = 'loud'\n")
    ran = run("check", "wrong.toml")
    assert (ran.code, ran.out) == (2, "")
    expected = 'log.level: expected one of debug, info, warning, error, found "loud"'
    assert ran.err == f"holdfast: wrong.toml, line 3: {expected}\n"
    assert run("check", "wrong.toml", "--json").error == {"error": "settings", "detail": ran.err[10:-1]}


def test_nothing_is_made_by_a_check(run: Run, here: Path) -> None:
    run("check")
    assert list(here.iterdir()) == []


@pytest.fixture
def filled(run: Run, here: Path) -> Path:
    """The data directory of a Holdfast with one credential."""
    assert run("credential", "create", "--role", "operator").code == 0
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
    run("credential", "create", "--role", "operator")
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (1, "conflict")
    assert "copies/server.sqlite exists already" in ran.error["detail"]
    assert ran.error["detail"].endswith("; name another folder")
    assert (here / "copies" / "server.sqlite").read_bytes() == before


@pytest.mark.parametrize("exists", [False, True])
def test_where_there_is_nothing_nothing_is_made(run: Run, here: Path, exists: bool) -> None:
    if exists:
        (here / "holdfast-data").mkdir()
    ran = run("backup", "copies", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == "there is no database in holdfast-data: name another folder with --data-directory"
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
        assert ran.error["detail"].startswith(f"{target} cannot be created: ")


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

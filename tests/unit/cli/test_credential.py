"""`holdfast credential` manages the store directly."""

import re
from pathlib import Path

import pytest

from holdfast._clock import SystemClock
from holdfast.compose import open_database
from holdfast.config import Settings
from holdfast.server.credentials import SUBSYSTEM, CredentialStore
from tests.unit.cli.conftest import Run

TOKEN = r"hf_[0-9a-f]{12}_[0-9a-f]{64}"


@pytest.fixture
def here(here: Path) -> Path:
    """Where there is a store already, without credentials: only the first operator's would make one."""
    with open_database(Settings(), SUBSYSTEM) as database:
        CredentialStore(database, SystemClock())
    return here


def test_a_token_is_printed_alone_so_that_it_can_be_piped(run: Run) -> None:
    ran = run("credential", "create", "--role", "viewer")
    assert ran.code == 0
    assert re.fullmatch(rf"{TOKEN}\n", ran.out)


class TestTheStore:
    def test_it_is_named_with_its_whole_path(self, run: Run, here: Path) -> None:
        ran = run("credential", "create", "--role", "viewer")
        assert ran.err == f"holdfast: the credential is in {here}/holdfast-data/server.sqlite\n"
        created = run("credential", "create", "--role", "viewer", "--json").result
        assert created["store"] == f"{here}/holdfast-data/server.sqlite"

    def test_one_that_an_operator_creates_is_warned_of(self, run: Run, here: Path) -> None:
        for form in ([], ["--json"]):
            folder = f"other{len(form)}"
            ran = run("credential", "create", "--role", "operator", "--data-directory", folder, *form)
            assert ran.code == 0
            assert f"created the store {here}/{folder}/server.sqlite: a server that is running already" in ran.err
            assert run("credential", "list", "--data-directory", folder, "--json").result

    @pytest.mark.parametrize("words", [["viewer"], ["tenant", "--tenant", "t"], ["sender", "--workload", "shop"]])
    def test_no_other_role_creates_one(self, run: Run, here: Path, words: list[str]) -> None:
        ran = run("credential", "create", "--role", *words, "--data-directory", "other", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert "there is no store at other/server.sqlite: name the settings" in ran.error["detail"]
        assert "a new store begins with the credential of an operator" in ran.error["detail"]
        assert not (here / "other").exists()


def test_a_sender_has_workloads_and_no_other_role_does(run: Run) -> None:
    both = ("--workload", "shop", "--workload", "cart")
    credential = run("credential", "create", "--role", "sender", *both, "--json").result["credential"]
    assert (credential["role"], credential["workloads"]) == ("sender", ["shop", "cart"])
    assert "shop cart" in run("credential", "list").out
    for words in (["sender"], ["viewer", *both]):
        ran = run("credential", "create", "--role", *words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert "--workload" in ran.error["detail"]


def test_a_created_credential_is_listed_without_its_secret(run: Run) -> None:
    created = run(
        "credential", "create", "--role", "tenant", "--tenant", "tenant-1", "--note", "a note", "--json"
    ).result
    assert re.fullmatch(TOKEN, created["token"])
    credential = created["credential"]
    assert (credential["role"], credential["tenant"], credential["note"]) == ("tenant", "tenant-1", "a note")
    ran = run("credential", "list", "--json")
    assert ran.result == [credential]
    assert created["token"].split("_")[2] not in ran.out


def test_people_get_a_table_with_text_as_it_was_stored(run: Run) -> None:
    created = run("credential", "create", "--role", "viewer", "--note", "[/x] [bold]b :smile: ä", "--json").result
    ran = run("credential", "list")
    assert (ran.code, ran.err) == (0, "")
    header, row = ran.out.splitlines()
    assert header.split() == ["id", "role", "tenant", "workloads", "created", "revoked", "note"]
    assert row.startswith(f"{created['credential']['id']}  viewer")
    assert row.rstrip().endswith("[/x] [bold]b :smile: ä")
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", row)


def test_revoking_is_told_and_may_be_repeated(run: Run) -> None:
    credential = run("credential", "create", "--role", "operator", "--json").result["credential"]
    ran = run("credential", "revoke", credential["id"])
    assert (ran.code, ran.out, ran.err) == (0, f"{credential['id']} is revoked\n", "")
    revoked = run("credential", "revoke", credential["id"], "--json").result
    assert revoked["revoked_at"] is not None
    assert run("credential", "list", "--json").result == [revoked]
    assert run("credential", "list").out.count("Z") == 2


@pytest.mark.parametrize("unknown", ["000000000000", "nonsense", "\udcff", ""])
def test_what_does_not_exist_cannot_be_revoked(run: Run, unknown: str) -> None:
    run("credential", "create", "--role", "viewer")
    ran = run("credential", "revoke", unknown)
    assert ran.code == 1
    assert ran.err == f"holdfast: there is no credential {unknown!r}: `holdfast credential list` shows them\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--role", "tenant"],
        ["--role", "viewer", "--tenant", "tenant-1"],
        ["--role", "tenant", "--tenant", ""],
        ["--role", "tenant", "--tenant", "x" * 257],
        ["--role", "viewer", "--note", "\udcff"],
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_is_made(run: Run, words: list[str]) -> None:
    ran = run("credential", "create", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert run("credential", "list", "--json").result == []


def test_a_settings_file_says_where_the_store_is(run: Run, here: Path) -> None:
    (here / "one.toml").write_text("data_directory = 'one'\n")
    (here / "two.toml").write_text("data_directory = 'two'\n")
    run("credential", "create", "--role", "operator", "--settings", "one.toml")
    assert len(run("credential", "list", "--settings", "one.toml", "--json").result) == 1
    run("credential", "create", "--role", "viewer", "--data-directory", "one")
    assert len(run("credential", "list", "--data-directory", "one", "--json").result) == 2
    ran = run("credential", "list", "--settings", "two.toml", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert "there is no store at two/server.sqlite" in ran.error["detail"]
    assert not (here / "two").exists(), "looking for something makes nothing"


def test_a_token_stands_for_its_id_and_is_not_repeated(run: Run) -> None:
    created = run("credential", "create", "--role", "viewer", "--json").result
    ran = run("credential", "revoke", created["token"])
    assert ran.out == f"{created['credential']['id']} is revoked\n"
    assert created["token"] not in ran.out + ran.err


def test_the_data_directory_is_closed_to_other_users(run: Run, here: Path) -> None:
    run("credential", "create", "--role", "operator", "--data-directory", "new")
    assert (here / "new").stat().st_mode & 0o777 == 0o700
    assert (here / "new" / "server.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_data_directory_that_cannot_be_made_is_named(run: Run, here: Path) -> None:
    (here / "file").write_text("a file")
    ran = run("credential", "create", "--role", "operator", "--data-directory", "file", "--json")
    assert (ran.code, ran.error["error"]) == (2, "settings")
    assert "data_directory file cannot be created" in ran.error["detail"]


def test_credentials_are_managed_in_postgresql_too(
    run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uuid

    import psycopg

    schema = f"cli_{uuid.uuid4().hex}"
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", f"{postgres_url}?options=-csearch_path%3D{schema}")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        created = run("credential", "create", "--role", "viewer", "--json").result
        assert created["store"].startswith("postgresql://")
        assert run("credential", "list", "--json").result == [created["credential"]]
        assert run("credential", "revoke", created["credential"]["id"]).code == 0
        connection.execute(f"drop schema {schema} cascade".encode())

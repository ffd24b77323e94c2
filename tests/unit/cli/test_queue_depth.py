"""`holdfast queue list|depth` say what is there, and make nothing."""

import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.queue import Limits
from holdfast.queue.backend import QueueChange
from holdfast.queue.policy import QueuePolicy
from tests.support.preloaded import run_preloaded
from tests.unit.cli.conftest import Run, closed
from tests.unit.cli.queues import STORE, bury, fill, make, of, opened, taken
from tests.unit.queue.toy import LimitedBackend, installed


def table(text: str) -> list[list[str]]:
    """The cells of a table without its header; no cell has two spaces in a row."""
    _, *rows = text.strip().split("\n")
    return [re.split(r"  +", row.strip()) for row in rows]


class TestList:
    def test_queues_are_listed_by_name(self, run: Run) -> None:
        make("reports", "mail", "Z")
        assert run("queue", "list").out == "Z\nmail\nreports\n"
        assert run("queue", "list", "--json").result == ["Z", "mail", "reports"]

    def test_a_store_without_queues_is_told_as_such(self, run: Run) -> None:
        make()
        assert run("queue", "list").out == "there are no queues in holdfast-data/queue.sqlite yet\n"
        assert run("queue", "list", "--json").result == []
        assert run("queue", "depth").out == "there are no queues in holdfast-data/queue.sqlite yet\n"


COMMANDS = [
    ["list"],
    ["depth"],
    ["top", "--once"],
    ["dead-letters", "mail"],
    ["redrive", "mail", "--all"],
    ["limits", "mail"],
    ["resize", "mail", "8"],
    ["sweep", "mail", "--before", "1h"],
    ["send", "mail", "body", "--tenant", "t"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
class TestStores:
    """Every command, on stores that are not there or not ours."""

    @pytest.fixture(autouse=True)
    def _body(self, here: Path) -> None:
        (here / "body").write_text("x")

    def test_where_there_is_no_store_none_is_made(self, run: Run, here: Path, words: list[str]) -> None:
        ran = run("queue", *words, "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert ran.error["detail"] == (
            "there is no store at holdfast-data/queue.sqlite: name the settings or the directory that the server uses, "
            "with --settings, HOLDFAST_SETTINGS or --data-directory, or where the queues are with --backend"
        )
        assert [entry.name for entry in here.iterdir()] == ["body"]

    def test_a_file_that_is_not_there_is_not_made(self, run: Run, here: Path, words: list[str]) -> None:
        ran = run("queue", *words, "--backend", "sqlite:work.sqlite", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert ran.error["detail"].startswith("there is no file work.sqlite: ")
        assert [entry.name for entry in here.iterdir()] == ["body"]

    def test_a_store_can_be_named_by_its_address(self, run: Run, here: Path, words: list[str]) -> None:
        make("mail", path=here / "shop" / "queues.sqlite")
        for at in (
            "sqlite:shop/queues.sqlite",
            f"sqlite:{here}/shop/queues.sqlite",
            f"sqlite://{here}/shop/queues.sqlite",
        ):
            ran = run("queue", *words, "--backend", at)
            assert (ran.code, ran.err) == (0, "")
        assert not STORE.exists()

    def test_queues_of_the_settings_are_made_with_what_the_settings_say(
        self, run: Run, here: Path, words: list[str]
    ) -> None:
        (here / "holdfast.toml").write_text(
            'data_directory = "data"\n[[queue]]\nname = "mail"\nlanes = 7\n[[queue.tenant]]\nname = "t"\n'
            "limits = { spill_rate = 5 }\n"
        )
        if words[0] == "resize":
            words = ["list"]
        assert run("queue", *words).code == 0
        with opened(here / "data" / "queue.sqlite") as backend:
            look = backend.inspect("mail", tenants=["t"])
        assert look.policy == QueuePolicy(lanes=7)
        assert [one.limits for one in look.tenants] == [Limits(spill_rate=5.0)]

    def test_a_password_is_never_shown(self, run: Run, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_DATABASE__TIMEOUT", "0.01")
        for at in ("postgresql://user:hunter2@127.0.0.1:1/name", "mysql://user:hunter2@host/name"):
            ran = run("queue", *words, "--backend", at, "--json")
            assert ran.code == (3 if at.startswith("postgresql") else 2)
            assert "hunter2" not in ran.err

    def test_an_unknown_queue_is_told_with_those_there_are(self, run: Run, words: list[str]) -> None:
        make("reports")
        ran = run("queue", *words)
        if "mail" not in words:
            assert ran.code == 0
            return
        assert ran.code == 1
        assert ran.err.startswith(
            "holdfast: there is no queue mail in holdfast-data/queue.sqlite: existing queues: reports; "
        )


class TestOthers:
    """Databases that are not ours are left as they are, whatever is asked of them."""

    @pytest.fixture(autouse=True)
    def _body(self, here: Path) -> None:
        (here / "body").write_text("x")

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_a_file_without_queues_is_not_touched(self, run: Run, here: Path, words: list[str], mode: str) -> None:
        other = here / "other.sqlite"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute(f"pragma journal_mode = {mode}")
            connection.execute("create table theirs (x)")
        at = here / "at %41.sqlite"
        shutil.copy(other, at)
        data = here / "data"
        data.mkdir()
        shutil.copy(other, data / "queue.sqlite")
        for named in (["--backend", f"sqlite:{at.name}"], ["--data-directory", "data"]):
            ran = run("queue", *words, *named, "--json")
            assert (ran.code, ran.error["error"]) == (1, "not-found")
            assert ran.error["detail"].startswith("there are no queues in ")
        for file in (at, data / "queue.sqlite"):
            assert file.read_bytes() == other.read_bytes()
            assert [entry.name for entry in file.parent.glob(f"{file.name}-*")] == []

    def test_a_file_in_use_is_not_touched_either(self, run: Run, here: Path) -> None:
        with closing(sqlite3.connect(here / "other.sqlite")) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table theirs (x)")
            ran = run("queue", "list", "--backend", "sqlite:other.sqlite")
            assert (ran.code, ran.err.partition(": name")[0]) == (1, "holdfast: there are no queues in other.sqlite")
            assert connection.execute("select name from sqlite_master").fetchall() == [("theirs",)]

    def test_queues_that_are_in_the_log_alone_are_found(self, run: Run) -> None:
        with opened() as backend:
            backend.change("mail", QueueChange(), create=True)
            # In a process of its own, as it is: two libraries must not have a file open in one.
            ran = run_preloaded([sys.executable, "-m", "holdfast.cli", "queue", "list"], text=True, timeout=60.0)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "mail\n", "")

    def test_a_file_that_is_no_database_is_told_as_such(self, run: Run, here: Path) -> None:
        (here / "notes.txt").write_text("not a database" * 100)
        ran = run("queue", "list", "--backend", "sqlite:notes.txt", "--json")
        assert (ran.code, ran.error["error"]) == (1, "database-corrupt")
        assert (here / "notes.txt").read_text() == "not a database" * 100


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("sqlite:", "expected an address such as sqlite:work.sqlite"),
        ("sqlite:a?b", "expected an address such as sqlite:work.sqlite"),
        ("work.sqlite", "expected one of memory:, postgres:, postgresql:, sqlite:"),
        ("redis://host", "expected one of memory:, postgres:, postgresql:, sqlite:"),
    ],
)
def test_an_address_that_cannot_be_right_is_told_with_what_would_be(run: Run, at: str, expected: str) -> None:
    ran = run("queue", "list", "--backend", at, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert expected in ran.error["detail"]


def test_the_memory_of_another_process_cannot_be_reached(run: Run) -> None:
    ran = run("queue", "list", "--backend", "memory:", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"].startswith("there are no queues in memory: queues in the memory of another process")


class TestOtherBackends:
    """A backend that another distribution registers is as good as a built-in one."""

    @pytest.fixture
    def toy(self, monkeypatch: pytest.MonkeyPatch) -> LimitedBackend:
        return installed(monkeypatch)

    def test_it_is_found_by_its_scheme(self, run: Run, toy: LimitedBackend) -> None:
        toy.change("mail", QueueChange(), create=True)
        assert run("queue", "list", "--backend", "toy:box").out == "mail\n"

    def test_it_is_found_by_the_settings(self, run: Run, here: Path, toy: LimitedBackend) -> None:
        (here / "holdfast.toml").write_text("queue_backend = 'toy:box'\n[[queue]]\nname = 'mail'\nlanes = 7\n")
        assert run("queue", "list").out == "mail\n"
        assert toy.inspect("mail").policy == QueuePolicy(lanes=7)
        assert not STORE.exists()

    def test_where_it_has_no_queues_none_is_made(self, run: Run, toy: LimitedBackend) -> None:
        ran = run("queue", "list", "--backend", "toy:box", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert ran.error["detail"].startswith("there are no queues in toy:box: name the store that producers")

    def test_numbers_that_are_estimates_are_marked(self, run: Run, toy: LimitedBackend) -> None:
        toy.change("mail", QueueChange(), create=True)
        estimates = "toy:box: these numbers are estimates, and may be out of date"
        for words in (["depth"], ["top", "--once"]):
            ran = run("queue", *words, "--backend", "toy:box")
            assert (ran.code, ran.err) == (0, f"holdfast: {estimates}\n")
        assert run("queue", "depth", "--backend", "toy:box", "--json").result[0]["is_exact"] is False

    def test_limits_that_hold_for_each_process_alone_are_told_as_such(self, run: Run, toy: LimitedBackend) -> None:
        toy.change("mail", QueueChange(), create=True)
        ran = run("queue", "limits", "mail", "--backend", "toy:box")
        assert ran.err == "holdfast: toy:box: limits apply to each process separately, not to all together\n"

    def test_what_it_cannot_do_is_refused_before_anything_is_sent(self, run: Run, toy: LimitedBackend) -> None:
        toy.change("mail", QueueChange(), create=True)
        Path("body").write_text("x")
        ran = run("queue", "send", "mail", "body", "--tenant", "a", "--backend", "toy:box", "--group", "g", "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert "does not support groups" in ran.error["detail"]


def test_a_file_of_another_user_is_told(run: Run, here: Path) -> None:
    make("mail", path=here / "theirs" / "work.sqlite")
    assert run("queue", "list", "--backend", "sqlite:theirs/work.sqlite").code == 0  # imports what nobody else may
    with closed(here / "theirs"):
        ran = run("queue", "list", "--backend", "sqlite:theirs/work.sqlite", "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert ran.error["detail"] == "theirs/work.sqlite cannot be read: Permission denied"


def test_settings_leave_a_queue_alone_that_exists(run: Run, here: Path) -> None:
    make("mail")
    with opened() as backend:
        backend.change("mail", QueueChange(limits={"t": Limits(spill_rate=1.0)}))
    (here / "holdfast.toml").write_text(
        '[[queue]]\nname = "mail"\nlanes = 7\n[[queue.tenant]]\nname = "t"\nlimits = { spill_rate = 5 }\n'
        '[[queue]]\nname = "new"\n'
    )
    ran = run("queue", "list")
    assert (ran.out, ran.err) == ("mail\nnew\n", "")
    with opened() as backend:
        look = backend.inspect("mail", tenants=["t"])
    assert look.policy == QueuePolicy()
    assert [one.limits for one in look.tenants] == [Limits(spill_rate=1.0)]


class TestDepth:
    def test_it_is_what_waits_is_held_is_delayed_and_is_dead(self, run: Run) -> None:
        make("mail", "reports")
        bury("mail", *of("a", b"dead"))
        fill("mail", *of("a", b"1", b"2"), *of("b", b"3", b"4"))
        assert len(taken("mail", 1)) == 1
        with opened() as backend:
            backend.change("mail", QueueChange(limits={"noisy": Limits(spill_rate=1.0, spill_burst=1.0)}))
        fill("mail", *of("noisy", *[b"x"] * 5))
        mail, reports = run("queue", "depth", "--json").result
        assert (mail["queue"], mail["ready"], mail["leased"], mail["delayed"], mail["dead"]) == ("mail", 4, 1, 0, 1)
        assert mail["spilled"] == 4
        assert mail["oldest_age"] >= 0
        assert reports == {
            "queue": "reports",
            "ready": 0,
            "leased": 0,
            "delayed": 0,
            "dead": 0,
            "spilled": 0,
            "lanes_in_use": 0,
            "oldest_age": None,
            "at": reports["at"],
            "tenants": [],
            "topics": [],
            "lanes_left_out": 0,
            "policy": reports["policy"],
            "is_exact": True,
        }
        assert reports["policy"]["lanes"] == 128, "defaults are written out"
        noisy = mail["tenants"][0]
        assert (noisy["tenant"], noisy["ready"], noisy["spilled"]) == ("noisy", 1, 4)

    def test_people_get_tables_of_queues_tenants_and_lanes(self, run: Run) -> None:
        make("mail", "reports")
        with opened() as backend:
            backend.change("mail", QueueChange(limits={"[bold]b": Limits(spill_rate=1.5, spill_burst=1.0)}))
        fill("mail", *of("a", b"1"), *of("[bold]b", b"2", b"3"))
        ran = run("queue", "depth", "--lanes")
        assert (ran.code, ran.err) == (0, "")
        queues, tenants, lanes = ran.out.strip().split("\n\n")
        assert [row[:6] for row in table(queues)] == [["mail", "2", "1", "0", "0", "0"], ["reports", *["0"] * 5]]
        assert re.fullmatch(r"\d+\.\ds", table(queues)[0][6])
        assert table(tenants) == [
            ["mail", "[bold]b", "1", "1", "0", "0", "0", "spill_rate=1.5 spill_burst=1"],
            ["mail", "a", "1", "0", "0", "0", "0"],
        ]
        assert [row[0] for row in table(lanes)] == ["mail"] * 3
        assert [int(row[1]) < 0 for row in table(lanes)] == [True, False, False]
        assert {row[2] for row in table(lanes)} == {"2"}

    def test_one_queue_can_be_asked_for_and_how_many_tenants(self, run: Run) -> None:
        make("mail", "reports")
        fill("mail", *of("a", b"1"), *of("b", b"2"))
        (mail,) = run("queue", "depth", "mail", "--top", "1", "--json").result
        assert (mail["queue"], len(mail["tenants"])) == ("mail", 1)
        assert run("queue", "depth", "mail", "--top", "0", "--json").result[0]["tenants"] == []
        assert "lanes" not in mail
        (lanes,) = run("queue", "depth", "mail", "--lanes", "--json").result
        assert len(lanes["lanes"]) == lanes["lanes_in_use"] == 2

    def test_lanes_that_are_too_many_to_be_listed_are_told_and_counted(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.queue.backends.sql.look.LANES", 3)
        make("mail", policy=QueuePolicy(lanes_per_tenant=0))
        fill("mail", *(message for number in range(5) for message in of(f"t{number}", b"x")))
        assert run("queue", "depth").err == ""
        ran = run("queue", "depth", "--lanes")
        assert ran.code == 0
        assert ran.err.startswith("holdfast: mail: 2 lanes not listed")
        (mail,) = run("queue", "depth", "--json").result
        assert (mail["ready"], mail["lanes_in_use"], mail["lanes_left_out"]) == (5, 5, 2)


def test_a_backup_has_the_messages_too(run: Run, here: Path) -> None:
    make("mail")
    fill("mail", *of("a", b"1"))
    (copy,) = run("backup", "copies", "--json").result
    assert copy["copy"] == "copies/queue.sqlite"
    (mail,) = run("queue", "depth", "mail", "--backend", "sqlite:copies/queue.sqlite", "--json").result
    assert mail["ready"] == 1

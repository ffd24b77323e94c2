"""`holdfast deploy`: announcements in the store of the settings."""

from pathlib import Path

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.watch import WatchStore
from tests.unit.cli.conftest import Run

SETTINGS = """
data_directory = "data"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


@pytest.fixture
def stored(here: Path) -> None:
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    with SqliteDatabase(here / "data" / "watch.sqlite") as database:
        WatchStore(database)


@pytest.mark.usefixtures("stored")
def test_a_deploy_begins_is_listed_and_ends(run: Run) -> None:
    assert run("deploy", "list").out == "no deploy was announced in the last day\n"
    begun = run("deploy", "begin", "--workload", "shop", "--zone", "use1-az1", "--for", "30m", "--json").result
    assert begun["expires_at"] - begun["started_at"] == 1800
    assert "@" in begun["by"]
    everywhere = run("deploy", "begin", "--workload", "shop", "--by", "ci", "--note", "version 42")
    assert "of shop, all zones, is announced until 20" in everywhere.out
    ended = run("deploy", "end", begun["id"])
    assert ended.out.startswith(f"deploy {begun['id']} of shop, use1-az1, ended at 20")
    rows = run("deploy", "list", "--workload", "shop").out.splitlines()
    assert [row.split()[1:4] for row in rows[1:]] == [["shop", "(all)", "running"], ["shop", "use1-az1", "ended"]]
    assert "version 42" in rows[1]
    assert run("deploy", "end", "--workload", "shop").code == 0


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("begin", "--workload", "cart"), 1, "no workload cart is configured: expected one of shop"),
        (("begin", "--workload", "shop", "--zone", "use1-az9"), 1, "no zone use1-az9 is configured for shop"),
        (("begin", "--workload", "shop", "--for", "2h"), 2, "a deploy of 7200 s: expected 1 s to 1 hour"),
        (("begin", "--workload", "shop", "--for", "-5m"), 2, "duration '-5m'"),
        (("end",), 2, "expected either the ID of a deploy, or --workload"),
        (("end", "one", "--zone", "use1-az1"), 2, "expected either the ID of a deploy, or --workload"),
        (("end", "one"), 1, "there is no deploy one"),
        (("end", "--workload", "cart"), 1, "no workload cart is configured"),
        (("list", "--workload", "cart"), 1, "no workload cart is configured"),
    ],
)
def test_a_wrong_command_is_refused_with_the_reason(run: Run, words: tuple[str, ...], code: int, problem: str) -> None:
    ran = run("deploy", *words)
    assert (ran.code, problem in ran.err) == (code, True), ran.err


def test_without_workloads_or_a_store_nothing_can_be_announced(run: Run, here: Path) -> None:
    assert "there is no store at" in run("deploy", "begin", "--workload", "shop").err
    with SqliteDatabase(here / "watch.sqlite") as database:
        WatchStore(database)
    ran = run("deploy", "begin", "--workload", "shop", "--data-directory", str(here))
    assert "no workload is configured; add a [[workload]]" in ran.err

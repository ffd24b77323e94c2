"""`holdfast shards assign|remove|suspects|isolate|release|forget`: tenants keep what they have until they are moved."""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.output import format_time
from holdfast.cli.shards.store import PROGRESS_INTERVAL, show_progress
from holdfast.shards import Assignments
from holdfast.testing import FakeClock
from tests.table import every_row
from tests.unit.cli.conftest import Run
from tests.unit.cli.shards.files import (
    FIRST,
    NO_LAYOUT,
    NO_STORE,
    TENANTS,
    cells,
    establish,
    having,
    kept,
    shards_of,
    write_fleet,
)

SPARE = ("az1-6", "az2-6", "az3-6", "az1-7")


def test_who_has_no_shard_gets_one_and_keeps_it(run: Run) -> None:
    establish(run, tenants=["x"])
    first = run("shards", "assign", "tenant-1", "tenant-2", "--json").result
    with kept() as assignments:
        wanted = [
            {"tenant": name, "workers": list(assignments.find(name).workers)} for name in ("tenant-1", "tenant-2")
        ]
    assert first == wanted
    assert run("shards", "assign", "tenant-2", "tenant-1", "--json").result == first[::-1]
    assert run("shards", "plan", "--json").result["tenants"] == 3


def test_people_see_a_table(run: Run) -> None:
    shards = establish(run)
    ran = run("shards", "assign", "tenant-01", "tenant-02")
    assert (ran.code, ran.err) == (0, "")
    assert [cells(line) for line in ran.out.splitlines()] == [
        ["tenant", "workers"],
        *([name, " ".join(shards[name])] for name in ("tenant-01", "tenant-02")),
    ]


@pytest.mark.parametrize(
    "text", ["a\nb\n", "tenant\na\nb\n", '{"tenant": "a"}\n{"tenant": "b"}\n', "\n\na\r\nb\r\n"], ids=repr
)
def test_tenants_come_from_a_file_or_standard_input(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    establish(run)
    (here / "tenants").write_text(text)
    found = run("shards", "assign", "--file", "tenants", "--json").result
    assert [entry["tenant"] for entry in found] == ["a", "b"]
    monkeypatch.setattr(sys, "stdin", StringIO(text))
    assert run("shards", "assign", "--file", "-", "--json").result == found
    assert run("shards", "assign", "a", "b", "--existing", "--json").result == found


def test_names_are_any_bytes(run: Run, here: Path) -> None:
    establish(run, tenants=["x"])
    names = [b"\xff\xfe", "grün".encode(), b"two words", b"a\nb", b"-x", b"[bold]b[/bold]", b"\x1b[31m"]
    typed = run("shards", "assign", "--json", "--", *map(os.fsdecode, names)).result
    assert [entry["tenant"] for entry in typed] == [
        "\\xff\\xfe",
        "grün",
        "two words",
        "a\nb",
        "-x",
        "[bold]b[/bold]",
        "\x1b[31m",
    ]
    lines = [json.dumps({"tenant": name.decode("utf-8", "surrogateescape")}) for name in names]
    (here / "tenants").write_text("\n".join(lines))
    assert run("shards", "assign", "--file", "tenants", "--json").result == typed
    with kept() as assignments:
        assert {*names} <= {tenant.name for tenant in assignments.iter_tenants()}
        assert [list(assignments.find(name).workers) for name in names] == [entry["workers"] for entry in typed]
    shown = run("shards", "assign", "--", *map(os.fsdecode, names)).out.splitlines()[1:]
    assert [cells(line)[0] for line in shown] == [
        "\\xff\\xfe",
        "grün",
        "two words",
        "a\\nb",
        "-x",
        "[bold]b[/bold]",
        "\\x1b[31m",
    ]


def test_only_those_who_are_known_are_shown_if_that_is_wanted(run: Run) -> None:
    shards = establish(run)
    found = run("shards", "assign", "tenant-01", "--existing", "--json").result
    assert found == [{"tenant": "tenant-01", "workers": shards["tenant-01"]}]
    ran = run("shards", "assign", "tenant-01", "nobody", "--existing", "--json")
    assert (ran.code, ran.error) == (1, {"error": "not-found", "detail": "tenant nobody has no shard yet"})
    assert run("shards", "plan", "--json").result["tenants"] == 20, "and nobody got one"


def test_where_tenants_were_before_is_shown_as_well(run: Run) -> None:
    before = establish(run, *SPARE)
    mover = having(before, "az1-1")[0]
    stayer = next(tenant for tenant in TENANTS if "az1-1" not in before[tenant])
    assert run("shards", "change", "--replace", "az1-1=az1-x", "--apply").code == 0
    assert run("shards", "isolate", mover).code == 0
    after = shards_of(run)
    once = [("az1-x" if worker == "az1-1" else worker) for worker in before[mover]]
    found = run("shards", "assign", mover, stayer, "--lookback", "2h", "--json").result
    assert found == [
        {"tenant": mover, "workers": after[mover], "previous": [once, before[mover]]},
        {"tenant": stayer, "workers": before[stayer], "previous": []},
    ]
    ran = run("shards", "assign", mover, stayer, "--lookback", "2h")
    assert [cells(line) for line in ran.out.splitlines()] == [
        ["tenant", "workers", "previous"],
        [mover, " ".join(after[mover]), f"{' '.join(once)}; {' '.join(before[mover])}"],
        [stayer, " ".join(before[stayer])],
    ]


def test_workers_that_are_drained_are_beside_those_that_serve(run: Run) -> None:
    before = establish(run)
    first, second, third = before["tenant-07"]
    other = next(tenant for tenant in TENANTS if not {first, third} & {*before[tenant]})
    assert run("shards", "change", "--drain", first, "--drain", third, "--apply").code == 0
    whole = {"tenant": other, "workers": before[other]}
    found = run("shards", "assign", "tenant-07", other, "--json").result
    assert found == [{"tenant": "tenant-07", "workers": [second], "drained_workers": [first, third]}, whole]
    found = run("shards", "assign", "tenant-07", other, "--lookback", "1h", "--json").result
    assert [entry["previous"] for entry in found] == [[], []], "nobody moved"
    ran = run("shards", "assign", "tenant-07", other)
    assert [cells(line) for line in ran.out.splitlines()] == [
        ["tenant", "workers", "drained"],
        ["tenant-07", second, f"{first} {third}"],
        [other, " ".join(before[other])],
    ]
    ran = run("shards", "assign", "tenant-07", "--lookback", "1h")
    assert [cells(line) for line in ran.out.splitlines()] == [
        ["tenant", "workers", "drained", "previous"],
        ["tenant-07", second, f"{first} {third}"],
    ]
    ran = run("shards", "assign", other)
    assert cells(ran.out.splitlines()[0]) == ["tenant", "workers"], "no column that would be empty"


def test_an_isolated_tenants_worker_that_is_drained_is_told_at_its_release_no_more(run: Run) -> None:
    before = establish(run, *SPARE)
    assert run("shards", "isolate", "tenant-07").code == 0
    assert run("shards", "change", "--drain", "az2-6", "--apply").code == 0
    found = run("shards", "assign", "tenant-07", "--json").result
    assert found == [{"tenant": "tenant-07", "workers": ["az1-6", "az3-6"], "drained_workers": ["az2-6"]}]
    found = run("shards", "release", "tenant-07", "--json").result
    assert found == {"tenant": "tenant-07", "workers": before["tenant-07"], "spare_left": 3}


def test_an_empty_name_comes_from_files_alone(run: Run, here: Path) -> None:
    """At the command line it is a variable that is not set; in a file somebody wrote it."""
    establish(run)
    (here / "tenants").write_text('{"tenant": ""}\n')
    [found] = run("shards", "assign", "--file", "tenants", "--json").result
    assert (found["tenant"], len(found["workers"])) == ("", 3)
    assert run("shards", "remove", "").code == 2
    assert run("shards", "remove", "--file", "tenants", "--json").result == {"removed": 1}


@pytest.mark.parametrize("name", ["tenants.csv", "tenants.CSV", "tenants.json", "tenants.jsonl", "tenants.ndjson"])
def test_a_file_whose_name_says_what_is_in_it_holds_no_bare_names(run: Run, here: Path, name: str) -> None:
    """Its header, or whatever it is that was written wrong, would be a tenant."""
    establish(run)
    (here / name).write_text("Tenant,Plan\na,free\n")
    for command in ("assign", "remove"):
        ran = run("shards", command, "--file", name, "--json")
        told = f"{name}: expected JSON lines, or CSV whose first line has a column `tenant`"
        assert (ran.code, ran.error["detail"]) == (2, told)
    assert run("shards", "plan", "--json").result["tenants"] == 20
    (here / "tenants.txt").write_text("Tenant,Plan\n")
    assert [one["tenant"] for one in run("shards", "assign", "--file", "tenants.txt", "--json").result] == [
        "Tenant,Plan"
    ]


def test_when_there_are_no_more_shards_nobody_of_the_call_gets_one(run: Run) -> None:
    establish(run)
    ran = run("shards", "assign", *(f"more-{number}" for number in range(6)), "--json")
    assert (ran.code, ran.error["error"]) == (1, "capacity-exhausted")
    told = (
        "too few shards for 6 more tenants, 5 of 25 are left: remove tenants that are gone, or make a design with more "
        "shards: allow an overlap of 2, or add workers"
    )
    assert ran.error["detail"] == told
    assert run("shards", "plan", "--json").result["tenants"] == 20
    assert run("shards", "assign", *(f"more-{number}" for number in range(5))).code == 0


def test_whoever_is_removed_leaves_a_shard_to_whoever_comes_next(run: Run, here: Path) -> None:
    before = establish(run)
    ran = run("shards", "remove", "tenant-03", "tenant-04", "nobody")
    assert (ran.code, ran.out, ran.err) == (0, "2 removed\n", "")
    assert run("shards", "remove", "tenant-03", "--json").result == {"removed": 0}
    assert shards_of(run, "new") == {"new": before["tenant-03"]}
    (here / "gone").write_text("tenant-05\ntenant-06\n")
    assert run("shards", "remove", "--file", "gone", "--json").result == {"removed": 2}
    left = [tenant for tenant in TENANTS if tenant not in ("tenant-03", "tenant-04", "tenant-05", "tenant-06")]
    assert shards_of(run, *left) == {tenant: before[tenant] for tenant in left}


def test_the_one_whose_workers_fail_is_found(run: Run) -> None:
    shards = establish(run)
    workers = shards["tenant-07"]
    found = run("shards", "suspects", *workers, "--json").result
    assert found[0] == {
        "tenant": "tenant-07",
        "failing": sorted(workers),
        "healthy": [],
        "score": 1.0,
        "is_likely": True,
    }
    assert [one["is_likely"] for one in found[1:]] == [False] * (len(found) - 1)
    assert all(one["score"] < 0.5 and len(one["failing"]) == 1 and len(one["healthy"]) == 2 for one in found[1:])
    assert len(found) == 10
    assert run("shards", "suspects", *workers, "--limit", "1", "--json").result == found[:1]
    with kept() as assignments:
        library = assignments.find_suspects(workers)
    assert [(one.tenant.decode(), one.score) for one in library] == [(one["tenant"], one["score"]) for one in found]


def test_two_who_fail_at_once_are_found_together(run: Run) -> None:
    shards = establish(run)
    first = TENANTS[0]
    second = next(tenant for tenant in TENANTS if not {*shards[tenant]} & {*shards[first]})
    found = run("shards", "suspects", *shards[first], *shards[second], "--json").result
    assert {one["tenant"] for one in found if one["is_likely"]} == {first, second}


def test_people_see_suspects_as_a_table(run: Run) -> None:
    workers = establish(run)["tenant-07"]
    lines = [cells(line) for line in run("shards", "suspects", *workers).out.splitlines()]
    assert lines[0] == ["tenant", "score", "likely", "failing", "healthy"]
    assert lines[1] == ["tenant-07", "1.00", "yes", " ".join(sorted(workers))]
    assert len(lines) == 11


def test_a_tenant_is_isolated_and_released_and_nobody_else_moves(run: Run) -> None:
    before = establish(run, *SPARE)
    others = {tenant: workers for tenant, workers in before.items() if tenant != "tenant-07"}
    alone = ["az1-6", "az2-6", "az3-6"]
    found = run("shards", "isolate", "tenant-07", "--json").result
    assert found == {"tenant": "tenant-07", "workers": alone, "spare_left": 1}
    assert shards_of(run) == {**before, "tenant-07": alone}
    assert all(not {*alone} & {*workers} for workers in others.values())
    found = run("shards", "release", "tenant-07", "--json").result
    assert found == {"tenant": "tenant-07", "workers": before["tenant-07"], "spare_left": 4}
    assert shards_of(run) == before


def test_people_see_where_it_went(run: Run) -> None:
    before = establish(run, *SPARE)
    lines = run("shards", "isolate", "tenant-07", "--workers", "2").out.splitlines()
    assert [cells(line) for line in lines] == [["tenant", "workers", "spare left"], ["tenant-07", "az1-6 az2-6", "2"]]
    lines = run("shards", "release", "tenant-07").out.splitlines()
    assert cells(lines[1]) == ["tenant-07", " ".join(before["tenant-07"]), "4"]


def test_spare_workers_that_are_drained_are_not_left(run: Run) -> None:
    establish(run, *SPARE)
    assert run("shards", "change", "--drain", "az1-7", "--apply").code == 0
    assert run("shards", "isolate", "tenant-07", "--workers", "2", "--json").result["spare_left"] == 1
    ran = run("shards", "isolate", "tenant-08", "--workers", "2", "--json")
    assert (ran.code, ran.error["error"]) == (1, "capacity-exhausted")
    assert ran.error["detail"].startswith("1 spare worker for tenant tenant-08, and 2 are wanted")


WHICH = "expected the names of tenants, or --file with a file of them, not both"
EMPTY = "an empty name: expected the name of a tenant; is a variable of the shell not set?"


REFUSED: list[tuple[list[str], int, str, str]] = [
    (["assign"], 2, "invalid-value", WHICH),
    (["assign", "a", "--file", "tenants"], 2, "invalid-value", WHICH),
    (["assign", ""], 2, "invalid-value", EMPTY),
    (["assign", "tenant-01", "", "--existing"], 2, "invalid-value", EMPTY),
    (["remove", "tenant-01", ""], 2, "invalid-value", EMPTY),
    (["assign", "", "--file", "tenants"], 2, "invalid-value", WHICH),
    (["remove"], 2, "invalid-value", WHICH),
    (["remove", "a", "--file", "-"], 2, "invalid-value", WHICH),
    (["assign", "--file", "nowhere"], 2, "invalid-value", "nowhere cannot be read: No such file or directory"),
    (["assign", "a", "--lookback", "soon"], 2, "invalid-value", "duration 'soon': expected a duration such as 90s"),
    (["suspects"], 2, "invalid-value", "no worker: name the failing workers"),
    (["suspects", "az1-1", "--limit", "0"], 2, "invalid-value", "0 suspects: expected 1 or more"),
    (["suspects", "az1-1", "nobody"], 1, "not-found", "there is no worker nobody in this fleet"),
    (["isolate", "nobody"], 1, "not-found", "tenant nobody has no shard yet"),
    (["isolate", "tenant-07"], 1, "conflict", "tenant tenant-07 is isolated already: release it before"),
    (["isolate", "tenant-08", "--workers", "4"], 1, "capacity-exhausted", "3 spare workers for tenant tenant-08"),
    (["isolate", "tenant-08", "--workers", "0"], 2, "invalid-value", "0 workers for an isolated tenant"),
    (["release", "tenant-08"], 1, "not-found", "tenant tenant-08 is not isolated: there is nothing to release"),
    (["release", "nobody"], 1, "not-found", "tenant nobody is not isolated: there is nothing to release"),
    (["remove", "tenant-07"], 1, "conflict", "tenant tenant-07 is isolated: release it before it is removed"),
]


def test_what_cannot_be_is_refused_with_a_reason(run: Run) -> None:
    establish(run, *SPARE)
    assert run("shards", "isolate", "tenant-07", "--workers", "1").code == 0

    def check(row: tuple[list[str], int, str, str]) -> None:
        words, code, error, detail = row
        ran = run("shards", *words, "--json")
        assert (ran.code, ran.error["error"]) == (code, error)
        assert ran.error["detail"].startswith(detail)
        told = run("shards", *words)
        assert (told.code, told.out) == (code, "")
        assert told.err.startswith(f"holdfast: {detail}")
        kept_still = run("shards", "plan", "--json").result
        assert (kept_still["version"], kept_still["tenants"]) == (3, 20), "and nobody came or went"

    every_row(REFUSED, check)


@pytest.mark.parametrize(
    "words",
    [
        ["assign", "a"],
        ["remove", "a"],
        ["suspects", "w"],
        ["isolate", "a"],
        ["release", "a"],
        ["forget", "--lookback", "1h"],
        ["fleet"],
    ],
    ids=" ".join,
)
def test_without_a_store_or_a_first_plan_there_is_nothing_to_work_on(run: Run, here: Path, words: list[str]) -> None:
    ran = run("shards", *words, "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == NO_STORE
    assert list(here.iterdir()) == [], "and looking makes none"
    establish(run)
    for given in (["--name", "other"], ["--settings", "other.toml"], ["--data-directory", "elsewhere"]):
        (here / "other.toml").write_text("data_directory = 'elsewhere'\n")
        ran = run("shards", *words, *given, "--json")
        # Who has no shard can be removed, and what never was can be forgotten.
        if words[0] not in ("remove", "forget") or given[0] != "--name":
            assert (ran.code, ran.error["error"]) == (1, "not-found")


def test_a_file_of_nobody_is_an_empty_list(run: Run, here: Path) -> None:
    establish(run)
    (here / "tenants").write_text("\n\n")
    assert run("shards", "assign", "--file", "tenants", "--json").result == []
    assert run("shards", "remove", "--file", "tenants", "--json").result == {"removed": 0}


def test_many_tenants_are_assigned_in_several_transactions(run: Run, here: Path) -> None:
    workers = [f"{zone}-{number}" for zone in ("az1", "az2", "az3") for number in range(128)]
    write_fleet(workers)
    assert run("shards", "plan", "fleet.csv", "--size", "3", "--overlap", "1", "--apply").code == 0
    names = [f"t{number}" for number in range(12_001)]
    (here / "tenants").write_text("\n".join(names))
    found = run("shards", "assign", "--file", "tenants", "--json").result
    assert [entry["tenant"] for entry in found] == names
    assert len({tuple(entry["workers"]) for entry in found}) == len(names)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def counted(number: int) -> Iterator[int]:
    return iter(range(number))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, ""),
        (PROGRESS_INTERVAL - 1, ""),
        (PROGRESS_INTERVAL, "\r50,000 tenants\n"),
        (PROGRESS_INTERVAL * 2 + 1, "\r50,000 tenants\r100,000 tenants\n"),
    ],
)
def test_progress_is_told_at_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert sum(1 for _ in show_progress(counted(number), "tenants")) == number
    assert terminal.getvalue() == said
    monkeypatch.setattr(sys, "stderr", silent := StringIO())
    assert sum(1 for _ in show_progress(counted(number), "tenants")) == number
    assert silent.getvalue() == ""


def test_what_was_before_can_be_forgotten(run: Run) -> None:
    establish(run, *SPARE)
    run("shards", "isolate", "tenant-01")
    assert run("shards", "assign", "tenant-01", "--lookback", "1h", "--json").result[0]["previous"]
    assert run("shards", "forget", "--lookback", "1h", "--json").result == {"forgotten": 0}
    with kept() as assignments:
        assert assignments.delete_old_layouts(0) > 0
    assert run("shards", "assign", "tenant-01", "--lookback", "1h", "--json").result[0]["previous"] == []
    ran = run("shards", "forget", "--lookback", "7d")
    assert (ran.code, ran.out) == (0, "0 forgotten\n")
    assert run("shards", "forget", "--json").code == 2, "how far back is to be said"
    assert "expected a duration such as" in run("shards", "forget", "--lookback", "soon").err


def test_what_was_before_a_time_is_forgotten_and_what_was_later_is_not(run: Run) -> None:
    """Four versions, two hours apart, the first six hours ago: each but the last held until the next one came."""
    establish(run)
    clock = FakeClock(wall=time.time() - 6 * 3600)
    with kept() as today, kept("old") as opened:
        past = Assignments(opened._store, clock=clock)
        past.apply(past.plan(replace(today.layout, version=0)))
        past.assign("a")
        for name in ("one", "two", "three"):
            clock.advance(2 * 3600)
            layout = past.layout
            past.apply(past.plan(layout.with_fleet(layout.fleet.replace(past.find("a").slot_indexes[0], name))))

    def before() -> list[str]:
        [found] = run("shards", "assign", "a", "--lookback", "1d", "--name", "old", "--json").result
        return [shard[0] for shard in found["previous"]]

    first = before()[-1]
    assert before() == ["two", "one", first]
    assert run("shards", "forget", "--lookback", "5h", "--name", "old", "--json").result == {"forgotten": 0}
    assert run("shards", "forget", "--lookback", "3h", "--name", "old").out == "1 forgotten\n"
    assert before() == ["two", "one"]
    assert run("shards", "forget", "--lookback", "1h", "--json").result == {"forgotten": 0}, "of others nothing"
    assert run("shards", "forget", "--lookback", "1h", "--name", "old", "--json").result == {"forgotten": 1}
    assert before() == ["two"], "which ended just now"
    [found] = run("shards", "assign", "a", "--name", "old", "--json").result
    assert found["workers"][0] == "three"


def test_a_tenant_whose_name_has_blanks_is_another_in_csv_as_well(run: Run) -> None:
    establish(run, tenants=["a", "a "])
    Path("gone.csv").write_text('tenant\n"a "\n')
    assert run("shards", "remove", "--file", "gone.csv", "--json").result == {"removed": 1}
    assert run("shards", "assign", "a", "--existing").code == 0
    assert run("shards", "assign", "a ", "--existing").code == 1


def test_what_assign_prints_is_read_again(run: Run) -> None:
    establish(run)
    printed = run("shards", "assign", *TENANTS, "--json").out
    Path("shards.json").write_text(printed)
    again = run("shards", "report", "shards.json", "--json").result
    assert again["tenants"] == len(TENANTS)
    assert again["overlaps"]["max_shared"] <= 1


def test_a_tenant_that_was_removed_while_it_was_isolated_has_no_workers_after_its_release(run: Run) -> None:
    establish(run, *SPARE)
    run("shards", "isolate", "tenant-01")
    with kept() as assignments:
        assignments._store.remove([b"tenant-01"])
    assert run("shards", "release", "tenant-01", "--json").result == {
        "tenant": "tenant-01",
        "workers": [],
        "spare_left": 4,
    }


USES = dict.fromkeys(FIRST, "shards") | {
    "az1-6": "isolated for tenant-07",
    "az2-6": "isolated for tenant-07",
    "az3-6": "spare",
    "az1-7": "spare",
    "az1-8": "spare",
    "az3-8": "spare",
    "az1-x": "shared with az1-2",
    "az1-y": "shared with az1-2",
}
DRAINED = {"az1-1", "az1-7", "az2-6", "az1-y"}


@pytest.fixture
def mix_bits(run: Run) -> Run:
    """A worker of every use there is, and of each one that is drained."""
    establish(run, "az1-6", "az2-6", "az3-6")
    assert run("shards", "isolate", "tenant-07", "--workers", "2").code == 0
    more = write_fleet(["az1-7", "az1-8", "az3-8"], path="more.csv", az1_8="h8")
    words = ["--add", more, "--share-slot", "az1-2=az1-x", "--share-slot", "az1-2=az1-y"]
    words += [word for worker in sorted(DRAINED) for word in ("--drain", worker)]
    assert run("shards", "change", *words, "--apply").code == 0
    return run


def test_machines_see_what_each_worker_is_there_for(mix_bits: Run) -> None:
    with kept() as assignments:
        version = assignments.current
    assert mix_bits("shards", "fleet", "--json").result == {
        "version": 4,
        "at": version.at,
        "size": 3,
        "overlap": 1,
        "workers": [
            {
                "slot": index,
                "worker": worker,
                "group": [worker[:3]],
                "weight": 1.0,
                "host": "h8" if worker == "az1-8" else None,
                "use": use,
                "is_drained": worker in DRAINED,
                "shares_slot_of": "az1-2" if worker in ("az1-x", "az1-y") else None,
            }
            for index, (worker, use) in enumerate(USES.items())
        ],
        "isolated": [{"tenant": "tenant-07", "workers": ["az1-6", "az2-6"]}],
    }


def test_people_see_the_same_and_how_many_of_each_there_are_in_every_group(mix_bits: Run) -> None:
    ran = mix_bits("shards", "fleet")
    assert (ran.code, ran.err) == (0, "")
    first, second, third = ran.out.split("\n\n")
    with kept() as assignments:
        since = format_time(assignments.current.at)
    assert first == f"version 4, since {since}: shards of 3, overlap 1"
    assert [cells(line) for line in second.splitlines()] == [
        ["worker", "group", "host", "use"],
        *(
            [
                worker,
                worker[:3],
                *(["h8"] if worker == "az1-8" else []),
                f"{use} (drained)" if worker in DRAINED else use,
            ]
            for worker, use in USES.items()
        ),
    ]
    assert sorted(cells(line) for line in third.splitlines()) == sorted(
        [
            ["group", "use", "workers"],
            ["az1", "shards", "4"],
            ["az2", "shards", "5"],
            ["az3", "shards", "5"],
            ["az1", "spare", "1"],
            ["az3", "spare", "2"],
            ["az1", "isolated", "1"],
            ["az1", "shared", "1"],
            ["az1", "drained", "3"],
            ["az2", "drained", "1"],
        ]
    ), "who is drained is no longer one of the others: so many are there to be used"


def test_what_is_counted_as_spare_is_what_plans_say(mix_bits: Run) -> None:
    found: dict[str, Any] = mix_bits("shards", "fleet", "--json").result
    spare = [one for one in found["workers"] if one["use"] == "spare" and not one["is_drained"]]
    live = [one for one in found["workers"] if not one["is_drained"]]
    planned = mix_bits("shards", "plan", "--json").result
    assert (len(spare), len(live)) == (planned["spare"], planned["workers"]) == (3, 19)


def test_whatever_changes_is_seen_at_once(run: Run) -> None:
    establish(run, "az1-6")

    def use(worker: str) -> str:
        [found] = [one for one in run("shards", "fleet", "--json").result["workers"] if one["worker"] == worker]
        return str(found["use"])

    assert use("az1-6") == "spare"
    assert run("shards", "isolate", "tenant-01", "--workers", "1").code == 0
    assert use("az1-6") == "isolated for tenant-01"
    assert run("shards", "release", "tenant-01").code == 0
    assert use("az1-6") == "spare"
    assert run("shards", "change", "--replace-with-spare", "az1-1=az1-6", "--apply").code == 0
    assert (use("az1-6"), use("az1-1")) == ("shards", "spare")
    assert run("shards", "fleet", "--json").result["version"] == 5


def test_a_fleet_of_several_dimensions_or_none_is_shown_as_it_is(run: Run, here: Path) -> None:
    lines = [
        f"{zone}-{version}-{one},{zone},{version},{one + 1}" for zone in "ab" for version in "12" for one in (0, 1)
    ]
    (here / "lattice.csv").write_text("worker,zone,version,weight\n" + "\n".join(lines))
    assert (
        run("shards", "plan", "lattice.csv", "--size", "2", "--overlap", "1", "--apply", "--name", "lattice").code == 0
    )
    found = run("shards", "fleet", "--name", "lattice", "--json").result
    assert [(one["group"], one["weight"]) for one in found["workers"][:3]] == [
        (["a", "1"], 1.0),
        (["a", "1"], 2.0),
        (["a", "2"], 1.0),
    ]
    assert found["isolated"] == []
    table = run("shards", "fleet", "--name", "lattice").out.split("\n\n")[1]
    assert cells(table.splitlines()[1]) == ["a-1-0", "a / 1", "shards"]
    (here / "plain.csv").write_text("worker\n" + "".join(f"two words {one}\n" for one in range(9)))
    words = ["--size", "4", "--overlap", "2", "--apply", "--name", "plain"]
    assert run("shards", "plan", "plain.csv", *words).code == 0
    _, table, counted = run("shards", "fleet", "--name", "plain").out.split("\n\n")
    assert cells(table.splitlines()[1]) == ["two words 0", "shards"]
    assert [cells(line) for line in counted.splitlines()[1:]] == [["shards", "8"], ["spare", "1"]]


def test_an_isolated_tenant_of_any_name_is_shown(run: Run) -> None:
    establish(run, "az1-6", tenants=["x"])
    name = b"\xff [bold]\n" + b"x" * 100
    with kept() as assignments:
        assignments.assign(name)
        assignments.isolate(name, 1)
    found = run("shards", "fleet", "--json").result
    assert found["isolated"] == [{"tenant": "\\xff [bold]\n" + "x" * 100, "workers": ["az1-6"]}]
    told = run("shards", "fleet").out.split("\n\n")[1].splitlines()[-1]
    assert cells(told)[-1].startswith("isolated for \\xff [bold]\\nxxx")


def test_it_is_asked_for_without_more_words_and_only_where_there_is_one(run: Run) -> None:
    establish(run)
    assert run("shards", "fleet", "worker").code == 2
    ran = run("shards", "fleet", "--name", "other", "--json")
    assert (ran.code, ran.error["detail"]) == (1, NO_LAYOUT)

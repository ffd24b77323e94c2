"""`holdfast shards report|blast` say what the library says, of what is kept and of files, and draw it."""

import json
import os
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from holdfast.shards import Fleet, Slot, report
from holdfast.shards.report import Report, build_table
from tests.table import every_row
from tests.unit.cli.conftest import Run
from tests.unit.cli.shards.files import FIRST, NO_LAYOUT, NO_STORE, TENANTS, cells, establish, kept, rows, write_fleet

ARTICLE = {"rainbow": ("1", "4"), "rose": ("1", "8"), "sunflower": ("4", "6")}
EIGHT = Fleet.from_workers(str(number) for number in range(1, 9))
ZONED = Fleet(slots=tuple(Slot(worker=str(one), group=(f"az{one % 2}",), weight=float(one)) for one in range(1, 9)))


@pytest.fixture(autouse=True)
def _files(here: Path) -> None:
    """The article's tenants in both formats; its workers, and the same in two zones and of different weights."""
    (here / "article.csv").write_text(
        "tenant,first,second\n" + "".join(f"{tenant},{','.join(some)}\n" for tenant, some in ARTICLE.items())
    )
    (here / "article.jsonl").write_text(
        "".join(json.dumps({"tenant": tenant, "workers": some}) + "\n" for tenant, some in ARTICLE.items())
    )
    (here / "eight.csv").write_text("worker\n" + "".join(f"{slot.worker}\n" for slot in EIGHT.slots))
    (here / "zoned.jsonl").write_text(
        "".join(
            json.dumps({"worker": slot.worker, "zone": slot.group[0], "weight": slot.weight}) + "\n"
            for slot in ZONED.slots
        )
    )


FILES = pytest.mark.parametrize("file", ["article.csv", "article.jsonl"])
OCCURRING = Fleet.from_workers("1486")
FLEETS = pytest.mark.parametrize(
    ("words", "fleet"),
    [([], OCCURRING), (["--fleet", "eight.csv"], EIGHT), (["--fleet", "zoned.jsonl"], ZONED)],
    ids=["as it occurs", "eight", "zones"],
)


def table(fleet: Fleet) -> Any:
    return build_table([[fleet.find_index(worker) for worker in some] for some in ARTICLE.values()])


def written(found: Report, fleet: Fleet, names: Sequence[str]) -> dict[str, Any]:
    """The report of the library with names, as JSON has it."""
    plain: dict[str, Any] = json.loads(msgspec.json.encode(found))
    plain["neighbours"] = [
        {
            "tenant": names[pair.row],
            "other": names[pair.other_row],
            "workers": [fleet.slots[index].worker for index in pair.slot_indexes],
        }
        for pair in found.neighbours
    ]
    for kind in ("fully_hit_by_tenant", "partly_hit_by_tenant"):
        by = plain["worst_cases"][kind]["cause"]
        plain["worst_cases"][kind]["cause"] = None if by is None else names[by]
    return plain


@FILES
@FLEETS
def test_a_report_of_a_file_is_that_of_the_library(run: Run, file: str, words: list[str], fleet: Fleet) -> None:
    names = list(ARTICLE)
    found = run("shards", "report", file, *words, "--json").result
    assert found == written(report.build_report(fleet, table(fleet)), fleet, names)
    assert found["neighbours"] == [
        {"tenant": "rainbow", "other": "rose", "workers": ["1"]},
        {"tenant": "rainbow", "other": "sunflower", "workers": ["4"]},
    ]
    assert found["worst_cases"]["partly_hit_by_tenant"]["cause"] == "rainbow"
    found = run("shards", "report", file, *words, "--overlap", "0", "--json").result
    assert found == written(report.build_report(fleet, table(fleet), overlap=0), fleet, names)
    assert (found["promised_overlap"], found["pairs_above_promise"]) == (0, 2)


@FILES
@FLEETS
def test_a_blast_of_a_file_is_that_of_the_library(run: Run, file: str, words: list[str], fleet: Fleet) -> None:
    for given, wanted in (
        (["--tenant", "rainbow"], report.compute_blast_radius(fleet, table(fleet), tenants=[0])),
        (
            ["--tenant", "rose", "--tenant", "sunflower"],
            report.compute_blast_radius(fleet, table(fleet), tenants=[1, 2]),
        ),
        (["--worker", "6", "--worker", "8"], report.compute_blast_radius(fleet, table(fleet), workers=["6", "8"])),
        (
            ["--tenant", "sunflower", "--worker", "8"],
            report.compute_blast_radius(fleet, table(fleet), tenants=[2], workers=["8"]),
        ),
    ):
        found = run("shards", "blast-radius", file, *words, *given, "--json").result
        assert found == json.loads(msgspec.json.encode(wanted))


def test_the_picture_of_the_article(run: Run, here: Path) -> None:
    """Rainbow takes workers 1 and 4 down; rose is served by 8, sunflower by 6; a quarter of the capacity is lost."""
    words = ["shards", "blast-radius", "article.csv", "--fleet", "eight.csv", "--tenant", "rainbow"]
    found = run(*words, "--svg", "blast.svg", "--json").result
    assert found == {
        "workers_out": ["1", "4"],
        "capacity_lost": 0.25,
        "attackers": 1,
        "tenants_by_workers_lost": [0, 2, 1],
        "fully_hit": 0,
        "partly_hit": 2,
        "unaffected": 0,
        "already_down": 0,
        "fully_hit_share": 0.0,
        "partly_hit_share": 1.0,
        "unaffected_share": 0.0,
        "down_share": 1 / 3,
        "max_load_increase": 1.0,
    }
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    assert rows(ran.out) == {
        "workers out": "2 (25.00% of the fleet)",
        "tenants fully hit": "0 others (0.000%)",
        "tenants partly hit": "2 others (100.000%)",
        "tenants unaffected": "0 others (0.000%)",
        "lost 1": "2",
        "lost 2": "1",
        "max load increase": "100.0% on a remaining worker",
    }
    text = (here / "blast.svg").read_text()
    assert text == report.draw_matrix(EIGHT, table(EIGHT), list(ARTICLE), tenants=[0])
    served = [
        element.text
        for group in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}g")
        if group.get("class") == "after"
        for element in group.iter()
        if "word" in (element.get("class") or "").split()
    ]
    assert served == ["✕ down, attacker", "served", "served"]


def test_a_zone_fails(run: Run) -> None:
    found = run("shards", "blast-radius", "article.csv", "--fleet", "zoned.jsonl", "--zone", "az0", "--json").result
    assert found == json.loads(msgspec.json.encode(report.compute_blast_radius(ZONED, table(ZONED), zones=["az0"])))
    assert (found["workers_out"], found["fully_hit"]) == (["2", "4", "6", "8"], 1)
    found = run(
        "shards", "blast-radius", "article.csv", "--fleet", "zoned.jsonl", "--zone", "az0", "--zone", "az1", "--json"
    )
    assert found.result["fully_hit"] == 3


def test_people_see_the_report_as_tables(run: Run) -> None:
    ran = run("shards", "report", "article.csv", "--fleet", "eight.csv", "--overlap", "1")
    assert (ran.code, ran.err) == (0, "")
    first, second, third = ran.out.split("\n\n")
    assert rows(first) == {
        "tenants": "3",
        "workers": "8, 4 without tenants",
        "shards": "3 different",
        "most workers two tenants share": "1",
        "pairs that share more than 1": "0",
        "tenants per worker": "1 to 2",
        "attackers survived": "1, if each takes down all its workers",
        "capacity lost to an attacker": "25.00% of the fleet",
        "extra load if a worker fails": "up to 100.0%",
        "worst tenant": "fully hits no others, partly hits 2 others (100.00%, rainbow)",
        "worst worker": "fully hits no tenants, partly hits 2 tenants (66.67%, 1)",
    }
    assert [cells(line) for line in second.splitlines()] == [
        ["shared workers", "pairs of tenants", "tenants with this maximum overlap"],
        ["0", "1", "0"],
        ["1", "2", "3"],
        ["2", "0", "0"],
    ]
    assert [cells(line) for line in third.splitlines()] == [
        ["tenant", "worst neighbour", "shared workers"],
        ["rainbow", "rose", "1"],
        ["rainbow", "sunflower", "4"],
    ]
    zoned = rows(run("shards", "report", "article.csv", "--fleet", "zoned.jsonl").out)
    assert zoned["worst zone"] == "fully hits 1 tenant (33.33%, az0), partly hits 2 tenants (66.67%, az1)"
    assert "pairs that share more than 1" not in zoned


def test_people_see_nobody_where_nobody_is_hit_or_takes_over(run: Run, here: Path) -> None:
    (here / "single.csv").write_text("tenant,worker\na,1\nb,2\nc,2\n")
    found = rows(run("shards", "report", "single.csv").out)
    assert found["extra load if a worker fails"] == "no worker takes over"
    assert found["worst tenant"] == "fully hits 1 other (50.00%, b), partly hits no others"
    (here / "apart.csv").write_text("tenant,worker,other\na,1,2\nb,3,4\n")
    out = run("shards", "report", "apart.csv").out
    assert rows(out)["worst tenant"] == "fully hits no others, partly hits no others"
    assert out.count("\n\n") == 1, "nobody has a neighbour"


def test_machines_that_are_shared_are_in_the_report(run: Run, here: Path) -> None:
    (here / "hosts.csv").write_text("worker,host\n" + "".join(f"{one},h{one % 3}\n" for one in range(1, 9)))
    found = run("shards", "report", "article.csv", "--fleet", "hosts.csv", "--json").result
    assert found["shared_hosts"] == [
        {"host": "h1", "workers": ["1", "4", "7"]},
        {"host": "h2", "workers": ["2", "5", "8"]},
        {"host": "h0", "workers": ["3", "6"]},
    ]
    assert found["overlaps_by_host"]["max_shared"] == 1
    told = rows(run("shards", "report", "article.csv", "--fleet", "hosts.csv").out)
    assert told["hosts with several workers"] == "3: tenants share up to 1 host"


def test_a_zone_that_takes_everybody_down_is_told(run: Run, here: Path) -> None:
    (here / "one.csv").write_text("worker,zone\n" + "".join(f"{one},az1\n" for one in (1, 4, 6, 8)))
    found = rows(run("shards", "report", "article.csv", "--fleet", "one.csv").out)
    assert found["worst zone"] == "fully hits 3 tenants (100.00%, az1), partly hits no tenants"


def test_what_is_kept_is_reported_with_what_it_promised(run: Run) -> None:
    establish(run)
    assert run("shards", "change", "--drain", "az1-1", "--share-slot", "az2-1=az2-help", "--apply").code == 0
    with kept() as assignments:
        layout, tenants = assignments.layout, list(assignments.iter_tenants())
    indexes = build_table([layout.shard(tenant).slot_indexes for tenant in tenants])
    wanted = report.build_report(layout.fleet, indexes, shards_possible=25, overlap=1)
    found = run("shards", "report", "--json").result
    assert found == written(wanted, layout.fleet, TENANTS)
    assert (found["tenants"], found["promised_overlap"], found["pairs_above_promise"], found["shards_left"]) == (
        20,
        1,
        0,
        5,
    )
    for words, failing in (
        (["--tenant", "tenant-07"], report.compute_blast_radius(layout.fleet, indexes, tenants=[6])),
        (
            ["--zone", "az2", "--worker", "az1-2"],
            report.compute_blast_radius(layout.fleet, indexes, workers=["az1-2"], zones=["az2"]),
        ),
    ):
        assert run("shards", "blast-radius", *words, "--json").result == json.loads(msgspec.json.encode(failing))


def test_people_see_how_many_shards_are_left_of_what_is_kept(run: Run) -> None:
    establish(run)
    found = rows(run("shards", "report").out)
    assert found["shards"] == "20 used, 5 left of 25"
    assert found["pairs that share more than 1"] == "0"
    assert "tenants already down" not in found
    assert "tenants already down" not in rows(run("shards", "blast-radius", "--worker", "az1-1").out)


def test_of_a_file_nobody_knows_how_many_shards_there_could_be(run: Run, here: Path) -> None:
    (here / "alike.csv").write_text("tenant,first,second\na,1,2\nb,2,1\nc,1,3\n")
    assert rows(run("shards", "report", "alike.csv").out)["shards"] == "2 different"
    found = run("shards", "report", "alike.csv", "--json").result
    assert found["shards_used"] == 2


def test_who_has_no_worker_left_is_told_apart_from_who_is_hit(run: Run) -> None:
    lost = establish(run)["tenant-07"]
    drained = [word for worker in lost for word in ("--drain", worker)]
    assert run("shards", "change", *drained, "--apply", "--force").code == 0
    assert rows(run("shards", "report").out)["tenants already down"] == "1: all of their workers are drained"
    assert run("shards", "report", "--json").result["already_down"] == 1
    other = next(worker for worker in FIRST if worker not in lost)
    found = rows(run("shards", "blast-radius", "--worker", other).out)
    assert found["tenants already down"] == "1 tenant: all of their workers are drained"
    counts = run("shards", "blast-radius", "--worker", other, "--json").result
    assert counts["already_down"] == 1
    assert counts["fully_hit"] + counts["partly_hit"] + counts["unaffected"] == 19


def test_an_isolated_tenant_is_reported_where_it_is(run: Run) -> None:
    establish(run, "az1-6", "az2-6", "az3-6")
    assert run("shards", "isolate", "tenant-07", "--workers", "2").code == 0
    found = run("shards", "blast-radius", "--tenant", "tenant-07", "--json").result
    assert (found["workers_out"], found["partly_hit"], found["fully_hit"]) == (["az1-6", "az2-6"], 0, 0)
    assert run("shards", "report", "--json").result["min_shard_size"] == 2


def test_nobody_is_reported_too(run: Run, here: Path) -> None:
    establish(run, tenants=["x"])
    assert run("shards", "remove", "x").code == 0
    found = run("shards", "report", "--svg", "kept.svg", "--json").result
    assert (found["tenants"], found["workers"], found["worst_cases"]["fully_hit_by_tenant"]["cause"]) == (0, 15, None)
    (here / "empty.csv").write_text("")
    assert run("shards", "report", "empty.csv", "--json").result["tenants"] == 0
    assert run("shards", "blast-radius", "--worker", "az1-1", "--json").result["unaffected"] == 0


def test_names_are_any_bytes(run: Run, here: Path) -> None:
    (here / "bytes.jsonl").write_bytes(
        b'{"tenant": "\xff", "workers": ["1", "2"]}\n{"tenant": "gr\xc3\xbcn\\n", "workers": ["2", "3"]}\n'
    )
    found = run("shards", "report", "bytes.jsonl", "--json").result
    assert found["neighbours"] == [{"tenant": "\\xff", "other": "grün\n", "workers": ["2"]}]
    out = run("shards", "report", "bytes.jsonl").out
    assert cells(out.splitlines()[-1]) == ["\\xff", "grün\\n", "2"]
    found = run(
        "shards", "blast-radius", "bytes.jsonl", "--tenant", os.fsdecode(b"\xff"), "--svg", "b.svg", "--json"
    ).result
    assert found["workers_out"] == ["1", "2"]
    assert ElementTree.parse(here / "b.svg").getroot().tag.endswith("svg")


def test_standard_input_is_a_file_too(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, words in (("report", []), ("blast-radius", ["--tenant", "rose"])):
        wanted = run("shards", command, "article.csv", *words, "--json").result
        monkeypatch.setattr(sys, "stdin", StringIO((here / "article.csv").read_text()))
        assert run("shards", command, "-", *words, "--json").result == wanted
    monkeypatch.setattr(sys, "stdin", StringIO((here / "eight.csv").read_text()))
    assert run("shards", "report", "article.csv", "--fleet", "-", "--json").result["workers"] == 8


@pytest.mark.parametrize("command", ["report", "blast-radius"])
def test_a_picture_is_written_once_and_overwritten_only_by_force(run: Run, here: Path, command: str) -> None:
    fails = [] if command == "report" else ["--worker", "1"]
    words = ["shards", command, "article.csv", *fails, "--svg", "picture.svg"]
    assert run(*words).code == 0
    drawn = (here / "picture.svg").read_text()
    found = report.build_report(OCCURRING, table(OCCURRING))
    if command == "report":
        assert drawn == report.draw_histogram(found.overlaps)
    else:
        assert drawn == report.draw_matrix(OCCURRING, table(OCCURRING), list(ARTICLE), workers=["1"])
    (here / "picture.svg").write_text("mine")
    ran = run(*words, "--json")
    assert ran.code == 1
    assert ran.error == {
        "error": "conflict",
        "detail": "picture.svg exists already: remove it, or overwrite it with --force",
    }
    assert (here / "picture.svg").read_text() == "mine"
    assert run(*words, "--force").code == 0
    assert (here / "picture.svg").read_text() == drawn
    ran = run("shards", command, "article.csv", *fails, "--svg", "nowhere/picture.svg")
    assert ran.code == 2
    assert "nowhere/picture.svg cannot be written" in ran.err


TWICE = "; expected each once"


REFUSED: list[tuple[list[str], int, str]] = [
    (["blast-radius", "article.csv"], 2, "nothing fails: use --tenant, --worker or --zone"),
    (["blast-radius", "article.csv", "--tenant", "daisy"], 1, "there is no tenant daisy among 3 tenants"),
    (["blast-radius", "article.csv", "--worker", "9"], 1, "there is no worker 9 in this fleet"),
    (["blast-radius", "article.csv", "--zone", "az9"], 1, "there is no worker in zone az9 in this fleet"),
    (["report", "article.csv", "--force"], 2, "--force is for the file of --svg"),
    (["report", "--fleet", "eight.csv"], 2, "--fleet is for FILE: shards in the store have a fleet of their own"),
    (["report", "--overlap", "1"], 2, "--overlap is for FILE: shards in the store have an overlap of their own"),
    (["report", "article.csv", "--overlap", "-1"], 2, "overlap -1: expected 0 or more"),
    (["report", "article.csv", "--fleet", "few.csv"], 1, "there is no worker 4 in this fleet"),
    (["report", "twice.csv"], 2, f"twice.csv: tenant a occurs twice{TWICE}"),
    (["report", "worker.csv"], 2, f"worker.csv: tenant a has a worker twice{TWICE}"),
    (["report", "nowhere.csv"], 2, "nowhere.csv cannot be read: No such file or directory"),
    (["report", "eight.csv"], 2, "eight.csv: expected JSON lines, or CSV whose first line has a column `tenant`"),
    (["report", "--svgg"], 2, "--svgg: expected a file, and not an option"),
]


def test_what_cannot_be_is_refused_with_a_reason(run: Run, here: Path) -> None:
    establish(run)
    (here / "few.csv").write_text("worker\n1\n8\n")
    (here / "twice.csv").write_text("tenant,worker\na,1\na,2\n")
    (here / "worker.csv").write_text("tenant,worker,other\na,1,1\n")

    def check(row: tuple[list[str], int, str]) -> None:
        words, code, told = row
        ran = run("shards", *words, "--json")
        assert (ran.code, ran.error["detail"][: len(told)]) == (code, told)

    every_row(REFUSED, check)


@pytest.mark.parametrize("words", [["report"], ["blast-radius", "--worker", "1"]], ids=" ".join)
def test_without_a_store_or_a_first_plan_there_is_nothing_to_report(run: Run, here: Path, words: list[str]) -> None:
    ran = run("shards", *words, "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == NO_STORE
    assert not (here / "holdfast-data").exists()
    write_fleet()
    assert run("shards", "plan", "fleet.csv", "--size", "3", "--overlap", "1", "--apply").code == 0
    ran = run("shards", *words, "--name", "other", "--json")
    assert (ran.code, ran.error["detail"]) == (1, NO_LAYOUT)

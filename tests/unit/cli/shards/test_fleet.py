"""`holdfast shards fleet` shows who is kept, where, and what for."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.output import moment
from tests.unit.cli.conftest import Run
from tests.unit.cli.shards.files import FIRST, cells, establish, kept, write_fleet

USES = dict.fromkeys(FIRST, "shards") | {
    "az1-6": "isolated for tenant-07",
    "az2-6": "isolated for tenant-07",
    "az3-6": "spare",
    "az1-7": "spare",
    "az1-8": "spare",
    "az3-8": "spare",
    "az1-x": "relieves az1-2",
    "az1-y": "relieves az1-2",
}
DRAINED = {"az1-1", "az1-7", "az2-6", "az1-y"}


@pytest.fixture
def mixed(run: Run) -> Run:
    """A worker of every use there is, and of each one that is drained."""
    establish(run, "az1-6", "az2-6", "az3-6")
    assert run("shards", "isolate", "tenant-07", "--workers", "2").code == 0
    more = write_fleet(["az1-7", "az1-8", "az3-8"], path="more.csv", az1_8="h8")
    words = ["--add", more, "--relieve", "az1-2=az1-x", "--relieve", "az1-2=az1-y"]
    words += [word for worker in sorted(DRAINED) for word in ("--drain", worker)]
    assert run("shards", "grow", *words, "--apply").code == 0
    return run


def test_machines_see_what_each_worker_is_there_for(mixed: Run) -> None:
    with kept() as assignments:
        version = assignments.current
    assert mixed("shards", "fleet", "--json").result == {
        "version": 4,
        "at": version.at,
        "size": 3,
        "overlap": 1,
        "workers": [
            {
                "slot": place,
                "worker": worker,
                "group": [worker[:3]],
                "weight": 1.0,
                "host": "h8" if worker == "az1-8" else None,
                "use": use,
                "is_drained": worker in DRAINED,
                "relieves": "az1-2" if worker in ("az1-x", "az1-y") else None,
            }
            for place, (worker, use) in enumerate(USES.items())
        ],
        "isolated": [{"tenant": "tenant-07", "workers": ["az1-6", "az2-6"]}],
    }


def test_people_see_the_same_and_how_many_of_each_there_are_in_every_group(mixed: Run) -> None:
    ran = mixed("shards", "fleet")
    assert (ran.code, ran.err) == (0, "")
    first, second, third = ran.out.split("\n\n")
    with kept() as assignments:
        since = moment(assignments.current.at)
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
            ["az1", "relieves", "1"],
            ["az1", "drained", "3"],
            ["az2", "drained", "1"],
        ]
    ), "who is drained is no longer one of the others: so many are there to be used"


def test_what_is_counted_as_spare_is_what_plans_say(mixed: Run) -> None:
    found: dict[str, Any] = mixed("shards", "fleet", "--json").result
    spare = [one for one in found["workers"] if one["use"] == "spare" and not one["is_drained"]]
    live = [one for one in found["workers"] if not one["is_drained"]]
    planned = mixed("shards", "plan", "--json").result
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
    assert run("shards", "grow", "--substitute", "az1-1=az1-6", "--apply").code == 0
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
        assignments.shard(name)
        assignments.isolate(name, 1)
    found = run("shards", "fleet", "--json").result
    assert found["isolated"] == [{"tenant": "\\xff [bold]\n" + "x" * 100, "workers": ["az1-6"]}]
    told = run("shards", "fleet").out.split("\n\n")[1].splitlines()[-1]
    assert cells(told)[-1].startswith("isolated for \\xff [bold]\\nxxx")


def test_it_is_asked_for_without_more_words_and_only_where_there_is_one(run: Run) -> None:
    establish(run)
    assert run("shards", "fleet", "worker").code == 2
    ran = run("shards", "fleet", "--name", "other", "--json")
    assert (ran.code, ran.error["detail"]) == (1, "there is no layout of shards yet: make one, and apply it")

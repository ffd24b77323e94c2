"""`holdfast shards change` changes the fleet that is kept, and moves nobody but whom it says."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.shards import Fleet, Layout, Slot
from tests.table import every_row
from tests.unit.cli.conftest import Run
from tests.unit.cli.shards.files import (
    FACTS,
    FIRST,
    NO_LAYOUT,
    NO_STORE,
    TENANTS,
    Meanwhile,
    cells,
    establish,
    having,
    kept,
    members_of,
    rows,
    shards_of,
    without,
    write_fleet,
)


def grow(run: Run, *words: str) -> dict[str, object]:
    """Look first, then do it, which gives the same."""
    looked: dict[str, object] = run("shards", "change", *words, "--json").result
    done: dict[str, object] = run("shards", "change", *words, "--apply", "--json").result
    assert looked["is_applied"] is False
    assert done == looked | {"version": looked["version"] + 1, "is_applied": True}  # type: ignore[operator]
    return done


def current() -> Layout:
    with kept() as assignments:
        return assignments.layout


def swapped(shards: dict[str, list[str]], old: str, new: str) -> dict[str, list[str]]:
    return {tenant: [(new if worker == old else worker) for worker in some] for tenant, some in shards.items()}


def test_workers_that_are_added_are_spare_and_nobody_moves(run: Run) -> None:
    before = establish(run)
    found = grow(run, "--add", write_fleet(["az1-6", "az2-6"], path="more.csv", az1_6="h6"))
    assert found == FACTS | {
        "workers": 17,
        "spare": 2,
        "capacity_lost": 3 / 17,
        "empty_slots": 0,
        "tenants": 20,
        "moving": 0,
        "moving_share": 0.0,
        "tenants_by_workers_changed": [20],
        "degraded": 0,
        "down": 0,
        "first_moves": [],
        "version": 2,
        "is_applied": True,
    }
    assert shards_of(run) == before
    assert current().fleet.slots[15:] == (
        Slot(worker="az1-6", group=("az1",), host="h6"),
        Slot(worker="az2-6", group=("az2",)),
    )


def test_a_worker_is_relieved_of_the_tenants_that_the_library_says(run: Run) -> None:
    before = establish(run)
    old = current()
    found = grow(run, "--share-slot", "az1-1=az1-help")
    new = old.with_fleet(old.fleet.share_slot("az1-1", "az1-help"))
    assert current() == new
    with kept() as assignments:
        tenants = list(assignments.iter_tenants())
    wanted = {tenant.name.decode(): list(new.shard(tenant).workers) for tenant in tenants}
    after = shards_of(run)
    assert after == wanted
    moving_tenants = having(after, "az1-help")
    assert {*moving_tenants} <= {*having(before, "az1-1")}
    assert found["moving"] == len(moving_tenants)
    assert {tenant: some for tenant, some in after.items() if tenant not in moving_tenants} == {
        tenant: some for tenant, some in before.items() if tenant not in moving_tenants
    }


def test_a_worker_is_replaced_and_its_tenants_go_with_it(run: Run) -> None:
    before = establish(run)
    found = grow(run, "--replace", "az1-1=az1-new")
    moving_tenants = having(before, "az1-1")
    assert (found["moving"], found["tenants_by_workers_changed"]) == (
        len(moving_tenants),
        [20 - len(moving_tenants), len(moving_tenants)],
    )
    assert found["first_moves"] == [
        {"tenant": one, "leaves": ["az1-1"], "joins": ["az1-new"]} for one in moving_tenants
    ]
    assert shards_of(run) == swapped(before, "az1-1", "az1-new")


def test_a_spare_worker_takes_the_place_of_another_which_is_drained(run: Run) -> None:
    before = establish(run, "az1-6")
    found = grow(run, "--replace-with-spare", "az1-1=az1-6")
    assert (found["moving"], found["degraded"], found["workers"]) == (len(having(before, "az1-1")), 0, 15)
    assert shards_of(run) == swapped(before, "az1-1", "az1-6")
    assert [slot.worker for slot in current().fleet.slots if slot.is_drained] == ["az1-1"]


def test_a_drained_worker_stays_with_its_tenants_and_they_are_short_of_it(run: Run) -> None:
    before = establish(run)
    found = grow(run, "--drain", "az1-1")
    assert (found["moving"], found["degraded"], found["workers"]) == (0, len(having(before, "az1-1")), 14)
    assert found["capacity_lost"] == 3 / 14
    assert members_of() == before
    assert shards_of(run) == without(before, "az1-1"), "who is drained is not shown as one that serves"
    assert run("shards", "assign", *TENANTS, "--json").result == [
        {"tenant": tenant, "workers": [worker for worker in some if worker != "az1-1"]}
        | ({"drained_workers": ["az1-1"]} if "az1-1" in some else {})
        for tenant, some in before.items()
    ]


def test_the_last_worker_of_a_tenant_is_drained_only_by_force(run: Run) -> None:
    before = establish(run)
    first, second, last = before["tenant-07"]
    assert grow(run, "--drain", first, "--drain", second)["down"] == 0
    ran = run("shards", "change", "--drain", last, "--apply")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("holdfast: 1 of 20 tenants would be left without a worker, such as tenant-07: ")
    assert run("shards", "change", "--drain", last, "--json").result["down"] == 1
    assert not current().fleet.slots[current().fleet.find_index(last)].is_drained
    assert run("shards", "change", "--drain", last, "--apply", "--force", "--json").result["down"] == 1
    assert shards_of(run) == without(before, first, second, last)


def test_a_worker_that_shares_the_slot_of_the_last_one_serves_its_tenants(run: Run) -> None:
    first, second, last = establish(run)["tenant-07"]
    found = grow(run, "--drain", first, "--drain", second, "--share-slot", f"{last}=helper", "--drain", last)
    assert found["down"] == 0
    assert shards_of(run, "tenant-07") == {"tenant-07": ["helper"]}


def test_twice_as_many_workers_give_more_shards_and_nobody_moves(run: Run) -> None:
    before = establish(run)
    twins = [f"{name}-twin" for name in FIRST]
    path = write_fleet(reversed(twins), path="twins.csv", az1_1_twin="h1", az3_5_twin="h2")
    found = grow(run, "--double", path)
    assert (found["workers"], found["shards"], found["moving"], found["spare"]) == (30, 100, 0, 0)
    assert shards_of(run) == before
    layout = current()
    assert layout.doubling_starts == (15,)
    slots = layout.fleet.slots[15:]
    assert [slot.group for slot in slots] == [(name[:3],) for name in FIRST]
    assert {slot.worker for slot in slots} == {*twins}
    assert {slot.worker: slot.host for slot in slots if slot.host} == {"az1-1-twin": "h1", "az3-5-twin": "h2"}


def test_several_changes_are_one(run: Run) -> None:
    before = establish(run, "az1-6")
    found = grow(
        run,
        *("--replace", "az1-1=az1-x", "--replace", "az2-1=az2-x"),
        *("--replace-with-spare", "az1-2=az1-6", "--drain", "az3-1", "--drain", "az3-2"),
        *("--share-slot", "az3-3=az3-x", "--add", write_fleet(["az1-7"], path="more.csv")),
    )
    after = members_of()
    assert shards_of(run) == without(after, "az3-1", "az3-2")
    moved = [tenant for tenant in TENANTS if {*before[tenant]} != {*after[tenant]}]
    assert (found["moving"], found["version"]) == (len(moved), 3)
    wanted = swapped(swapped(swapped(before, "az1-1", "az1-x"), "az2-1", "az2-x"), "az1-2", "az1-6")
    assert swapped(after, "az3-x", "az3-3") == wanted
    assert found["degraded"] == len({*having(after, "az3-1"), *having(after, "az3-2")})
    assert [slot.worker for slot in current().fleet.slots][-2:] == ["az1-7", "az3-x"]


def test_a_worker_that_was_just_added_can_be_the_spare_one(run: Run) -> None:
    before = establish(run)
    grow(run, "--add", write_fleet(["az1-6"], path="more.csv"), "--replace-with-spare", "az1-1=az1-6")
    assert shards_of(run) == swapped(before, "az1-1", "az1-6")


def test_people_see_the_same(run: Run) -> None:
    moving_tenants = having(establish(run), "az1-1")
    ran = run("shards", "change", "--replace", "az1-1=az1-new", "--drain", "az2-1")
    assert (ran.code, ran.err) == (0, "")
    found = rows(ran.out)
    assert found["workers"] == "14, 0 of them spare"
    assert found["tenants"] == f"20, of which {len(moving_tenants)} move ({len(moving_tenants) / 20:.3%})"
    assert found["1 of their workers"] == str(len(moving_tenants))
    assert "degraded" in found
    lines = ran.out.partition("\n\n")[2].splitlines()
    assert cells(lines[1]) == [moving_tenants[0], "az1-1", "az1-new"]
    assert lines[-1] == "nothing changed: repeat the command with --apply"


def test_moves_go_to_a_file(run: Run, here: Path) -> None:
    moving_tenants = having(establish(run), "az1-1")
    words = ["shards", "change", "--replace", "az1-1=az1-new", "--moves", "moves.jsonl"]
    assert run(*words).code == 0
    assert (here / "moves.jsonl").read_text() == "".join(
        f'{{"tenant":"{tenant}","leaves":["az1-1"],"joins":["az1-new"]}}\n' for tenant in moving_tenants
    )
    assert run(*words, "--apply").code == 1
    assert "moves.jsonl exists already: remove it, or name another file for --moves" in run(*words).err


def test_machines_that_are_shared_with_those_that_are_there_are_refused_or_noted(run: Run) -> None:
    establish(run)
    grow(run, "--add", write_fleet(["az1-6"], path="more.csv", az1_6="h1"))
    twins = [f"{name}-twin" for name in [*FIRST, "az1-6"]]
    for words in (
        ["--add", write_fleet(["az2-6"], path="other.csv", az2_6="h1")],
        ["--double", write_fleet(twins, path="twins.csv", az2_1_twin="h1")],
    ):
        ran = run("shards", "change", *words, "--apply", "--json")
        assert ran.code == 2
        assert " are both on h1" in ran.error["detail"]
        ran = run("shards", "change", *words, "--allow-shared-hosts", "--json")
        assert ran.code == 0
        (note,) = ran.err.splitlines()
        assert json.loads(note)["note"].startswith("az1-6, az2-")
    assert run("shards", "change", *words, "--allow-shared-hosts", "--apply").code == 0
    assert current().fleet.shared_host_policy == "allow"
    again = ["--add", write_fleet(["az3-9"], path="again.csv", az3_9="h1")]
    ran = run("shards", "change", *again, "--json")
    assert ran.code == 2
    assert "az3-9 are on h1: they would fail together" in ran.error["detail"], "what passed once was only that"
    assert run("shards", "change", "--drain", "az1-1", "--apply").code == 0, "what is there may stay"


WRONG = "expected OLD=NEW, the names of two workers"
ALREADY = "is in the fleet already: expected a new one; use `replace_with_spare` for a spare one"


REFUSED: list[tuple[list[str], int, str]] = [
    ([], 2, "nothing to change: use --add, --share-slot, --replace, --replace-with-spare, --drain or --double"),
    (["--share-slot", "az1-1"], 2, f"--share-slot az1-1: {WRONG}"),
    (["--replace", "az1-1="], 2, f"--replace az1-1=: {WRONG}"),
    (["--replace", "=x"], 2, f"--replace =x: {WRONG}"),
    (["--replace-with-spare", "="], 2, f"--replace-with-spare =: {WRONG}"),
    (["--share-slot", "nobody=x"], 1, "there is no worker nobody in this fleet"),
    (["--replace", "nobody=x"], 1, "there is no worker nobody in this fleet"),
    (["--replace", "az1-1=az1-2"], 2, f"worker az1-2 {ALREADY}"),
    (["--replace", "az1-1=az1-6"], 2, f"worker az1-6 {ALREADY}"),
    (["--share-slot", "az1-1=az1-2"], 2, f"worker az1-2 {ALREADY}"),
    (["--share-slot", "az1-6=x"], 2, "--share-slot az1-6=x: az1-6 is spare; expected a worker that has tenants"),
    (["--replace-with-spare", "az1-1=nobody"], 1, "there is no worker nobody in this fleet"),
    (["--replace-with-spare", "nobody=az1-6"], 1, "there is no worker nobody in this fleet"),
    (
        ["--replace-with-spare", "az1-1=az1-2"],
        2,
        "--replace-with-spare az1-1=az1-2: az1-2 has tenants; expected a spare worker",
    ),
    (["--replace-with-spare", "az1-1=az2-6"], 2, "az2-6 cannot replace az1-1: expected a worker of the same group"),
    (["--drain", "nobody"], 1, "there is no worker nobody in this fleet"),
    (["--add", "fleet.csv"], 2, "worker az1-1 is in two slots: expected each worker once"),
    (["--add", "nowhere.csv"], 2, "nowhere.csv cannot be read: No such file or directory"),
    (["--double", "few.csv"], 2, "--double: no new worker in az1 for az1-2"),
    (["--double", "many.csv"], 2, "--double: 2 workers too many: expected one for each worker"),
    (["--double", "fleet.csv"], 2, "--double: no new worker in az1 for az1-6"),
    (["--add", "--moves"], 2, "--moves: expected a file, and not an option"),
]


def test_what_cannot_be_is_refused_and_nothing_is_changed(run: Run) -> None:
    establish(run, "az1-6", "az2-6")
    twins = [f"{name}-twin" for name in [*FIRST, "az1-6", "az2-6"]]
    write_fleet(twins[:1], path="few.csv")
    write_fleet([*twins, "az1-x", "az9-x"], path="many.csv")

    def check(row: tuple[list[str], int, str]) -> None:
        words, code, told = row
        ran = run("shards", "change", *words, "--apply")
        assert (ran.code, ran.out) == (code, "")
        assert ran.err.startswith("holdfast: ")
        assert told in ran.err
        assert run("shards", "plan", "--json").result["version"] == 2

    every_row(REFUSED, check)


def test_a_fleet_without_groups_is_told_as_it_is(run: Run, here: Path) -> None:
    (here / "fleet.csv").write_text("worker\n" + "".join(f"w{number}\n" for number in range(8)))
    assert run("shards", "plan", "fleet.csv", "--size", "4", "--overlap", "2", "--apply").code == 0
    (here / "twins.csv").write_text("worker\nx\n")
    assert "--double: no new worker in the file for w1" in run("shards", "change", "--double", "twins.csv").err


def test_a_design_that_cannot_be_doubled_says_so(run: Run, here: Path) -> None:
    (here / "fleet.csv").write_text("worker\n" + "".join(f"w{number}\n" for number in range(8)))
    (here / "twins.csv").write_text("worker\n" + "".join(f"x{number}\n" for number in range(8)))
    assert run("shards", "plan", "fleet.csv", "--size", "2", "--overlap", "1", "--apply").code == 0
    ran = run("shards", "change", "--double", "twins.csv", "--json")
    assert ran.code == 2
    assert "cannot be doubled in place" in ran.error["detail"]


def test_an_isolated_tenants_worker_is_not_spare(run: Run) -> None:
    establish(run, "az1-6")
    assert run("shards", "isolate", "tenant-01", "--workers", "1").code == 0
    assert (
        "az1-6 has tenants; expected a spare worker"
        in run("shards", "change", "--replace-with-spare", "az1-1=az1-6").err
    )
    ran = run("shards", "change", "--share-slot", "az1-6=x", "--json")
    told = "--share-slot az1-6=x: az1-6 has one isolated tenant; expected a worker with several"
    assert (ran.code, ran.error["detail"]) == (2, told)


def test_a_worker_that_was_just_added_is_not_relieved(run: Run) -> None:
    establish(run)
    ran = run("shards", "change", "--add", write_fleet(["az1-6"], path="more.csv"), "--share-slot", "az1-6=x", "--json")
    assert (ran.code, ran.error["detail"].partition(": ")[2][:14]) == (2, "az1-6 is spare")


def test_a_slot_that_two_share_is_shared_by_a_third(run: Run) -> None:
    """Whichever of the two is named: the one that shares_slot_of is not spare."""
    establish(run)
    grow(run, "--share-slot", "az1-1=az1-x", "--share-slot", "az1-x=az1-y")
    assert {slot.worker: slot.shares_slot_of for slot in current().fleet.slots[15:]} == {
        "az1-x": "az1-1",
        "az1-y": "az1-1",
    }


def test_there_must_be_something_to_change(run: Run, here: Path) -> None:
    ran = run("shards", "change", "--drain", "az1-1", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == NO_STORE
    assert list(here.iterdir()) == []
    establish(run)
    ran = run("shards", "change", "--drain", "az1-1", "--name", "other", "--json")
    assert (ran.code, ran.error["detail"]) == (1, NO_LAYOUT)


def elsewhere(change: Callable[[Fleet], Fleet]) -> Callable[[], None]:
    """Somebody else, who changes the fleet."""

    def happens() -> None:
        with kept() as assignments:
            layout = assignments.layout
            assignments.apply(assignments.plan(layout.with_fleet(change(layout.fleet))))

    return happens


@pytest.mark.parametrize("apply", [["--apply"], []], ids=["applied", "looked at"])
def test_a_change_that_somebody_else_came_before_is_refused(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, apply: list[str]
) -> None:
    """The file is read from a pipe; until it is there, somebody else drains a worker."""
    establish(run)
    other = elsewhere(lambda fleet: fleet.drain("az1-1"))
    monkeypatch.setattr(sys, "stdin", Meanwhile("worker,zone\naz1-6,az1\n", other))
    ran = run("shards", "change", "--add", "-", "--moves", "moves.jsonl", *apply, "--json")
    assert (ran.code, ran.error) == (
        1,
        {
            "error": "conflict",
            "detail": "the layout of shards is at version 2, and 1 was expected: another process changed "
            "it; plan again from the current layout",
        },
    )
    assert not (here / "moves.jsonl").exists()
    assert [slot.worker for slot in current().fleet.slots if slot.is_drained] == ["az1-1"], "what came first holds"
    assert len(current().fleet) == 15


def test_twins_have_the_weights_of_their_file(run: Run) -> None:
    establish(run)
    lines = [f"{worker}-twin,{worker.partition('-')[0]},5\n" for worker in FIRST]
    Path("twins.csv").write_text("worker,zone,weight\n" + "".join(lines))
    assert run("shards", "change", "--double", "twins.csv", "--apply").code == 0
    with kept() as assignments:
        assert [slot.weight for slot in assignments.layout.fleet.slots] == [1.0] * 15 + [5.0] * 15

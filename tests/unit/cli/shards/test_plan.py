"""`holdfast shards plan` shows what a fleet gives and who moves, and changes nothing unless it is told to."""

import json
import sys
from pathlib import Path

import pytest

from holdfast import InvalidValue
from holdfast.shards import DesignedSharding, Fleet
from holdfast.shards.schemes import compare_schemes
from tests.services.start import free_port
from tests.table import every_row
from tests.unit.cli.conftest import Run
from tests.unit.cli.shards.files import (
    FACTS,
    FIRST,
    NO_LAYOUT,
    TENANTS,
    ZONES,
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

UNMOVED = {
    "tenants": 20,
    "moving": 0,
    "moving_share": 0.0,
    "tenants_by_workers_changed": [20],
    "degraded": 0,
    "down": 0,
    "first_moves": [],
}
SIZES = ["--size", "3", "--overlap", "1"]


def can_double(sharding: DesignedSharding) -> bool:
    """By trying it."""
    try:
        sharding.double([f"{slot.worker}-twin" for slot in sharding.fleet.slots])
    except InvalidValue:
        return False
    return True


def choices(fleet: Fleet) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for size in range(2, 7):
        for overlap in range(size):
            try:
                one = DesignedSharding(fleet, size, overlap, key=b"")
            except InvalidValue:
                continue
            found.append(
                {
                    "size": size,
                    "overlap": overlap,
                    "shards": one.capacity,
                    "attackers_survived": one.attackers_survived,
                    "spare": len(one.spare_slots),
                    "capacity_lost": size / len(fleet),
                    "can_double": can_double(one),
                }
            )
    return found


def zoned(*sizes: int) -> Fleet:
    """So many workers in each zone, dealt out to one zone after the other."""
    names = iter(range(1, sum(sizes) + 1))
    dealt: dict[str, list[str]] = {f"zone-{zone + 1}": [] for zone in range(len(sizes))}
    for turn in range(max(sizes)):
        for zone, size in enumerate(sizes):
            if turn < size:
                dealt[f"zone-{zone + 1}"].append(f"worker-{next(names)}")
    return Fleet.from_groups(dealt)


def test_without_a_size_all_that_the_fleet_allows_are_listed(run: Run, here: Path) -> None:
    found = run("shards", "plan", write_fleet(), "--json").result
    assert found == choices(
        Fleet.from_groups({zone: [name for name in FIRST if name.startswith(zone)] for zone in ZONES})
    )
    wanted = {"size": 3, "overlap": 1, "shards": 25, "attackers_survived": 2, "spare": 0, "capacity_lost": 0.2}
    assert wanted | {"can_double": True} in found
    assert [one["can_double"] for one in found if (one["size"], one["overlap"]) == (3, 2)] == [False]
    assert [path.name for path in here.iterdir()] == ["fleet.csv"], "and no store was made"


def test_people_see_them_beside_no_sharding_and_plain_shards(run: Run) -> None:
    ran = run("shards", "plan", write_fleet())
    assert (ran.code, ran.err) == (0, "")
    first, _, second = ran.out.partition("\n\n")
    lines = [cells(line) for line in first.splitlines()]
    assert lines[0] == ["size", "overlap", "shards", "attackers survived", "spare", "capacity lost", "can be doubled"]
    assert ["3", "1", "25", "2", "0", "20.0%", "yes"] in lines
    assert ["3", "2", "125", "1", "0", "20.0%"] in lines
    compared = compare_schemes(15, 4)
    assert [cells(line) for line in second.splitlines()] == [
        ["shards of 4", "how many", "an attacker takes down", "extra load if a worker fails"],
        ["no sharding", "1", "100.000% of tenants", "7.1%"],
        ["plain shards", "3", "33.333% of tenants", "33.3%"],
        ["shuffle shards", f"{compared.shuffle.shards:,}", "0.073% of tenants", "7.1%"],
    ]


@pytest.mark.parametrize(
    ("words", "fleet"),
    [
        (["--workers", "8"], Fleet.from_workers(f"worker-{number}" for number in range(1, 9))),
        (["--workers", "15", "--zones", "3"], zoned(5, 5, 5)),
        (["--workers", "10", "--zones", "3"], zoned(4, 3, 3)),
        (["--workers", "2"], Fleet.from_workers(["worker-1", "worker-2"])),
    ],
)
def test_a_number_of_workers_is_enough_to_see_what_they_give(run: Run, words: list[str], fleet: Fleet) -> None:
    assert run("shards", "plan", *words, "--json").result == choices(fleet)


def test_a_number_of_workers_is_looked_at_apart_from_what_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    establish(run)
    assert run("shards", "plan", "--workers", "15", "--zones", "3", *SIZES, "--json").result == FACTS
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", f"postgresql://127.0.0.1:{free_port()}/name")
    assert run("shards", "plan", "--workers", "15", "--zones", "3", *SIZES, "--json").result == FACTS, "asks no store"


def test_two_workers_are_compared_in_shards_of_two(run: Run) -> None:
    lines = [cells(line) for line in run("shards", "plan", "--workers", "2").out.partition("\n\n")[2].splitlines()]
    assert lines[0][0] == "shards of 2"
    assert lines[1:] == [
        [name, "1", "100.000% of tenants", "100.0%"] for name in ("no sharding", "plain shards", "shuffle shards")
    ]


LATTICE = "worker,zone,version\na,az1,v1\nb,az1,v2\nc,az2,v1\nd,az2,v1\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "1"], "a fleet of one worker has no shards: expected at least two workers"),
        (["one.csv"], "a fleet of one worker has no shards: expected at least two workers"),
        (["lattice.csv"], "no worker in az2 / v2: shards that spread over each dimension need workers in every"),
    ],
)
def test_where_no_shards_fit_the_reason_is_told_instead_of_an_empty_list(
    run: Run, here: Path, words: list[str], told: str
) -> None:
    (here / "one.csv").write_text("worker\na\n")
    (here / "lattice.csv").write_text(LATTICE)
    ran = run("shards", "plan", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert ran.error["detail"].startswith(told)
    assert run("shards", "plan", *words).err.startswith(f"holdfast: {told}")


def test_sizes_are_looked_at_without_a_store_and_none_is_made(run: Run, here: Path) -> None:
    assert run("shards", "plan", write_fleet(), *SIZES, "--json").result == FACTS
    ran = run("shards", "plan", "fleet.csv", *SIZES)
    assert (ran.code, ran.err) == (0, "")
    assert rows(ran.out) == {
        "workers": "15, 0 of them spare",
        "shards": "25 of 3, any two share at most 1; design: parity",
        "attackers survived": "2, if each takes down all its workers",
        "capacity lost to an attacker": "20.00% of the fleet",
    }
    assert [path.name for path in here.iterdir()] == ["fleet.csv"]


def test_a_plan_that_is_applied_is_a_version_and_tenants_have_shards_by_it(run: Run) -> None:
    nobody = UNMOVED | {"tenants": 0, "tenants_by_workers_changed": [0]}
    found = run("shards", "plan", write_fleet(), *SIZES, "--apply", "--json").result
    assert found == FACTS | nobody | {"version": 1, "is_applied": True}
    before = shards_of(run)
    assert run("shards", "plan", "--json").result == FACTS | UNMOVED | {"version": 1, "is_applied": False}
    assert run("shards", "plan", "fleet.csv", "--json").result["version"] == 1
    found = run("shards", "plan", "fleet.csv", *SIZES, "--apply", "--json").result
    assert found == FACTS | UNMOVED | {"version": 2, "is_applied": True}
    assert shards_of(run) == before


def test_every_first_plan_has_a_key_of_its_own(run: Run) -> None:
    for name in ("one", "other"):
        assert run("shards", "plan", write_fleet(), *SIZES, "--apply", "--name", name).code == 0
    with kept("one") as one, kept("other") as other:
        assert one.layout.key != other.layout.key
        assert len(one.layout.key) == 32


def test_several_services_have_shards_of_their_own_in_one_store(run: Run) -> None:
    establish(run)
    ran = run("shards", "assign", "x", "--name", "other", "--json")
    assert (ran.code, ran.error["detail"]) == (1, NO_LAYOUT)
    assert run("shards", "plan", "fleet.csv", *SIZES, "--apply", "--name", "other", "--json").result["tenants"] == 0


def test_the_store_is_where_options_and_settings_say(run: Run, here: Path) -> None:
    write_fleet()
    assert run("shards", "plan", "fleet.csv", *SIZES, "--apply", "--data-directory", "there").code == 0
    assert (here / "there" / "shards.sqlite").exists()
    (here / "other.toml").write_text("data_directory = 'there'\n")
    assert run("shards", "plan", "--settings", "other.toml", "--json").result["version"] == 1
    assert run("shards", "plan", "--json").code == 2, "here is none"


GONE = [name for name in FIRST if name != "az2-3"]


def test_a_worker_that_is_gone_is_replaced_and_only_its_tenants_move(run: Run) -> None:
    before = establish(run)
    moving_tenants = having(before, "az2-3")
    assert moving_tenants
    found = run("shards", "plan", write_fleet([*GONE, "az2-new"]), "--json").result
    moves = [{"tenant": tenant, "leaves": ["az2-3"], "joins": ["az2-new"]} for tenant in moving_tenants]
    assert found == FACTS | {
        "tenants": 20,
        "moving": len(moving_tenants),
        "moving_share": len(moving_tenants) / 20,
        "tenants_by_workers_changed": [20 - len(moving_tenants), len(moving_tenants)],
        "degraded": 0,
        "down": 0,
        "first_moves": moves,
        "version": 1,
        "is_applied": False,
    }
    assert shards_of(run) == before, "nothing was done yet"
    assert run("shards", "plan", "fleet.csv", "--apply", "--json").result == found | {"version": 2, "is_applied": True}
    after = shards_of(run)
    assert after == {
        tenant: [("az2-new" if worker == "az2-3" else worker) for worker in workers]
        for tenant, workers in before.items()
    }


def test_a_new_worker_of_another_zone_is_spare_and_the_slot_stays_empty(run: Run) -> None:
    before = establish(run)
    found = run("shards", "plan", write_fleet([*GONE, "az1-new"]), "--apply", "--json").result
    short = having(before, "az2-3")
    assert (found["moving"], found["degraded"], found["workers"], found["spare"]) == (0, len(short), 15, 1)
    assert found["empty_slots"] == 1
    assert members_of() == before, "nobody moved"
    assert shards_of(run) == without(before, "az2-3"), "and nobody is sent to who is gone"


def test_a_spare_worker_takes_the_slot_of_one_that_is_gone(run: Run) -> None:
    before = establish(run, "az2-spare")
    found = run("shards", "plan", write_fleet([*GONE, "az2-spare"]), "--apply", "--json").result
    assert (found["moving"], found["degraded"], found["spare"]) == (len(having(before, "az2-3")), 0, 0)
    assert having(shards_of(run), "az2-spare") == having(before, "az2-3")


def test_people_see_who_moves_and_how_to_go_on(run: Run) -> None:
    moving_tenants = having(establish(run), "az2-3")
    ran = run("shards", "plan", write_fleet([*GONE, "az2-new"]))
    assert rows(ran.out) == {
        "workers": "15, 0 of them spare",
        "shards": "25 of 3, any two share at most 1; design: parity",
        "attackers survived": "2, if each takes down all its workers",
        "capacity lost to an attacker": "20.00% of the fleet",
        "tenants": f"20, of which {len(moving_tenants)} move ({len(moving_tenants) / 20:.3%})",
        "1 of their workers": str(len(moving_tenants)),
    }
    moves = ran.out.partition("\n\n")[2].splitlines()
    assert [cells(line) for line in moves] == [
        ["tenant", "leaves", "joins"],
        *([tenant, "az2-3", "az2-new"] for tenant in moving_tenants),
        ["nothing changed: repeat the command with --apply"],
    ]
    assert run("shards", "plan", "fleet.csv", "--apply").out.splitlines()[-1] == "applied, version 2"
    ran = run("shards", "plan", write_fleet([*GONE]))
    assert rows(ran.out)["degraded"].startswith(f"{len(moving_tenants)}: a worker is drained or gone")
    assert rows(ran.out)["slots without a worker"].startswith("1: a tenant with such a slot has one worker fewer")


def test_nobody_is_left_without_a_worker_unless_that_is_wanted(run: Run, here: Path) -> None:
    """As by half a list of workers: those of the others would be drained, one and all."""
    before = establish(run)
    lost = before["tenant-07"]
    left = write_fleet([name for name in FIRST if name not in lost])
    short = [tenant for tenant in TENANTS if {*before[tenant]} & {*lost}]
    looked = run("shards", "plan", left, "--json").result
    assert (looked["down"], looked["degraded"], looked["moving"], looked["is_applied"]) == (1, len(short), 0, False)
    assert rows(run("shards", "plan", left).out)["down"] == "1: no worker serves them"
    ran = run("shards", "plan", left, "--apply", "--moves", "moves.jsonl", "--json")
    told = (
        "1 of 20 tenants would be left without a worker, such as tenant-07: check that the list "
        "of workers is complete, or make the change anyway with --force"
    )
    assert (ran.code, ran.error) == (1, {"error": "conflict", "detail": told})
    assert not (here / "moves.jsonl").exists()
    assert shards_of(run) == before
    assert run("shards", "plan", "--json").result["version"] == 1
    done = run("shards", "plan", left, "--apply", "--force", "--json").result
    assert done == looked | {"version": 2, "is_applied": True}
    assert shards_of(run) == without(before, *lost)
    assert shards_of(run, "tenant-07") == {"tenant-07": []}
    assert run("shards", "plan", left, "--apply", "--json").result["down"] == 0, "who was down before is not told again"
    assert run("shards", "plan", write_fleet(), "--apply", "--json").result["down"] == 0
    assert shards_of(run) == before


def test_of_those_who_would_be_left_without_a_worker_ten_are_named(run: Run) -> None:
    establish(run)
    ran = run("shards", "plan", write_fleet(["az1-new"]), "--apply", "--json")
    assert ran.code == 1
    found = run("shards", "plan", "fleet.csv", "--json").result["down"]
    assert found > 10
    began, _, told = ran.error["detail"].partition(" tenants would be left without a worker, such as ")
    assert began == f"{found} of 20"
    named = told.partition(": ")[0].split(", ")
    assert len(named) == 10
    assert {*named} < {*TENANTS}


def test_a_worker_that_moved_to_another_zone_is_refused(run: Run, here: Path) -> None:
    before = establish(run)
    (here / "fleet.csv").write_text((here / "fleet.csv").read_text().replace("az2-3,az2", "az2-3,az3"))
    ran = run("shards", "plan", "fleet.csv", "--apply", "--json")
    told = "worker az2-3 was in az2 and is in az3: give it another name, as a new worker"
    assert (ran.code, ran.error) == (2, {"error": "invalid-value", "detail": told})
    assert shards_of(run) == before


def test_another_size_makes_new_shards_of_all_workers(run: Run) -> None:
    before = establish(run, "az1-spare", "az2-spare")
    found = run("shards", "plan", "--overlap", "2", "--json").result
    assert (found["size"], found["overlap"], found["shards"], found["workers"]) == (3, 2, 125, 17)
    assert found["moving"] == found["tenants"] - found["tenants_by_workers_changed"][0] > 10
    assert run("shards", "plan", "--overlap", "2", "--apply", "--json").result == found | {
        "version": 3,
        "is_applied": True,
    }
    after = shards_of(run)
    assert sum({*before[tenant]} != {*after[tenant]} for tenant in TENANTS) == found["moving"]
    with kept() as assignments:
        assert (assignments.layout.overlap, assignments.layout.design_slot_count) == (2, 17)


def test_new_shards_are_made_of_spare_workers_too_if_that_is_wanted(run: Run) -> None:
    establish(run, *(f"{zone}-{number}" for zone in ZONES for number in (6, 7)))
    assert run("shards", "plan", "--json").result["shards"] == 25
    found = run("shards", "plan", "--redesign", "--json").result
    assert (found["shards"], found["spare"], found["workers"], found["version"]) == (49, 0, 21, 2)
    with kept() as assignments:
        key = assignments.layout.key
    assert run("shards", "plan", "--redesign", "--apply", "--json").result["version"] == 3
    with kept() as assignments:
        assert (assignments.layout.design_slot_count, assignments.layout.key) == (21, key)


def test_new_shards_leave_out_who_is_drained_and_relieve_nobody(run: Run) -> None:
    establish(run, "az1-6")
    assert run("shards", "change", "--drain", "az1-1", "--share-slot", "az2-1=az2-help", "--apply").code == 0
    found = run("shards", "plan", "--redesign", "--apply", "--json").result
    assert (found["workers"], found["shards"], found["degraded"]) == (16, 25, 0)
    with kept() as assignments:
        slots = assignments.layout.fleet.slots
    assert "az1-1" not in [slot.worker for slot in slots]
    assert [slot for slot in slots if slot.shares_slot_of or slot.is_drained] == []


def test_new_shards_wait_until_nobody_has_workers_of_its_own(run: Run) -> None:
    establish(run, "az1-6")
    assert run("shards", "isolate", "tenant-01", "--workers", "1").code == 0
    for words in (["--redesign"], ["--overlap", "2"]):
        ran = run("shards", "plan", *words, "--json")
        told = "new shards would use the workers of isolated tenants: release tenant-01 first"
        assert (ran.code, ran.error) == (1, {"error": "conflict", "detail": told})


def test_new_shards_that_are_too_few_for_all_tenants_are_refused(run: Run) -> None:
    establish(run)
    ran = run("shards", "plan", "--overlap", "0", "--json")
    told = (
        "5 shards for 20 tenants, and a tenant has a number of 5 or more: allow an overlap of 1, or add workers; "
        "or remove tenants that are gone"
    )
    assert (ran.code, ran.error) == (1, {"error": "capacity-exhausted", "detail": told})


def test_new_shards_that_are_too_few_for_the_numbers_of_a_few_tenants_are_refused_too(run: Run) -> None:
    """There would be one for each, but a number is never changed."""
    establish(run)
    assert run("shards", "remove", *TENANTS[:-1], "--json").result == {"removed": 19}
    ran = run("shards", "plan", "--overlap", "0", "--json")
    assert (ran.code, ran.error["error"]) == (1, "capacity-exhausted")
    assert ran.error["detail"].startswith("5 shards for 1 tenant, and a tenant has a number of 5 or more: ")


def test_machines_that_are_shared_are_refused_or_noted(run: Run) -> None:
    write_fleet(az1_1="h1", az2_1="h1", az3_1="h2", az3_2="h2", az3_3="h3")
    ran = run("shards", "plan", "fleet.csv", *SIZES, "--json")
    assert ran.code == 2
    assert ran.error["detail"].startswith("fleet.csv: workers az1-1 and az2-1 are both on h1")
    sharing = {"h1": "az1-1, az2-1", "h2": "az3-1, az3-2"}
    notes = [f"{some} are on {host}: they fail together, even in disjoint shards" for host, some in sharing.items()]
    ran = run("shards", "plan", "fleet.csv", *SIZES, "--allow-shared-hosts", "--apply")
    assert (ran.code, ran.err) == (0, "".join(f"holdfast: {note}\n" for note in notes))
    ran = run("shards", "plan", "fleet.csv", "--allow-shared-hosts", "--json")
    assert [json.loads(line) for line in ran.err.splitlines()] == [{"note": note} for note in notes]
    assert json.loads(ran.out)["version"] == 1
    assert run("shards", "plan", "fleet.csv").code == 2, "said once, and to be said again"
    assert run("shards", "plan", "--json").result["version"] == 1


def test_all_moves_go_to_a_file_and_some_are_shown(run: Run, here: Path) -> None:
    before = establish(run)
    found = run("shards", "plan", "--overlap", "2", "--moves", "moves.jsonl", "--apply", "--json").result
    lines = (here / "moves.jsonl").read_bytes()
    moves = [json.loads(line) for line in lines.splitlines()]
    assert len(moves) == found["moving"] > 10
    assert found["first_moves"] == moves[:10]
    after = shards_of(run)
    wanted = [
        {
            "tenant": tenant,
            "leaves": [worker for worker in workers if worker not in after[tenant]],
            "joins": [worker for worker in after[tenant] if worker not in workers],
        }
        for tenant, workers in before.items()
        if {*workers} != {*after[tenant]}
    ]
    assert moves == wanted
    assert lines == b"".join(json.dumps(move, separators=(",", ":")).encode() + b"\n" for move in wanted)


def test_a_file_of_moves_is_not_overwritten_and_then_nothing_is_done(run: Run, here: Path) -> None:
    establish(run)
    (here / "moves.jsonl").write_text("mine")
    words = ["shards", "plan", write_fleet([*GONE, "az2-new"]), "--apply", "--json", "--moves"]
    ran = run(*words, "moves.jsonl")
    told = "moves.jsonl exists already: remove it, or name another file for --moves"
    assert (ran.code, ran.error) == (1, {"error": "conflict", "detail": told})
    assert (here / "moves.jsonl").read_text() == "mine"
    ran = run(*words, "nowhere/moves.jsonl")
    assert ran.code == 2
    assert ran.error["detail"].startswith("nowhere/moves.jsonl cannot be written: No such file or directory")
    assert run("shards", "plan", "--json").result["version"] == 1


def test_where_there_is_no_tenant_yet_the_file_of_moves_is_empty(run: Run, here: Path) -> None:
    assert run("shards", "plan", write_fleet(), *SIZES, "--moves", "one").code == 0
    assert run("shards", "plan", "fleet.csv", *SIZES, "--moves", "one").code == 1
    assert run("shards", "plan", "fleet.csv", *SIZES, "--moves", "two", "--apply").code == 0
    assert [(here / name).read_bytes() for name in ("one", "two")] == [b"", b""]


def test_a_file_is_read_before_it_is_asked_what_there_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody drains a worker while a file comes slowly through a pipe: then the file says what holds."""
    establish(run)

    def elsewhere() -> None:
        with kept() as assignments:
            layout = assignments.layout
            assignments.apply(assignments.plan(layout.with_fleet(layout.fleet.drain("az1-1"))))

    monkeypatch.setattr(sys, "stdin", Meanwhile(Path(write_fleet()).read_text(), elsewhere))
    assert run("shards", "plan", "-", "--apply", "--json").result == FACTS | UNMOVED | {
        "version": 3,
        "is_applied": True,
    }


REFUSED: list[tuple[list[str], str]] = [
    ([], "no fleet: name a file of workers, or use --workers for a preview"),
    (["--apply"], "no fleet: name a file of workers"),
    (SIZES, "no fleet: name a file of workers"),
    (["fleet.csv", "--apply"], "--apply needs --size and --overlap: without --apply, all choices are listed"),
    (["fleet.csv", "--size", "3"], "expected both --size and --overlap"),
    (["fleet.csv", "--overlap", "1", "--apply"], "expected both --size and --overlap"),
    (["fleet.csv", "--size", "3", "--overlap", "3", "--apply"], "overlap 3 of shards of 3: expected 0 to 2"),
    (["fleet.csv", "--size", "16", "--overlap", "1"], "shards of 16 in a fleet of 15: expected 1 to 15 workers"),
    (["fleet.csv", "--workers", "3"], "expected a file of workers or --workers, not both"),
    (["fleet.csv", "--zones", "3"], "--zones is for --workers: in a file, a column says where workers are"),
    (["--workers", "3", "--zones", "4"], "3 workers in 4 zones: expected at least one worker in each zone"),
    (["--workers", "0"], "0 workers in 1 zone: expected at least one worker in each zone"),
    (["--workers", "3", "--zones", "0"], "3 workers in 0 zones: expected at least one worker in each zone"),
    (["--workers", "1000001"], "1000001 workers: expected at most 1,000,000"),
    (["--workers", "1000001", *SIZES], "1000001 workers: expected at most 1,000,000"),
    (["--workers", "8", "--apply"], "--workers is for a preview only: name a file of workers for --apply and --moves"),
    (["--workers", "8", "--moves", "file"], "--workers is for a preview only"),
    (["nowhere.csv"], "nowhere.csv cannot be read: No such file or directory"),
    (["--jsn"], "--jsn: expected a file, and not an option"),
]


def test_what_cannot_be_is_refused_with_2_and_leaves_no_store_behind(run: Run, here: Path) -> None:
    write_fleet()

    def check(row: tuple[list[str], str]) -> None:
        words, told = row
        ran = run("shards", "plan", *words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert told in ran.error["detail"]
        assert [path.name for path in here.iterdir()] == ["fleet.csv"]

    every_row(REFUSED, check)


def test_what_is_unavailable_exits_with_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", f"postgresql://127.0.0.1:{free_port()}/name")
    monkeypatch.setenv("HOLDFAST_DATABASE__TIMEOUT", "0.01")
    assert run("shards", "plan", write_fleet()).code == 3

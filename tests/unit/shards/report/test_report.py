"""The report: everything in one value, in plain numbers."""

import json
import math
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import DesignedSharding, Fleet, Slot
from holdfast.shards.report import (
    Overlaps,
    Report,
    SharedHost,
    build_report,
    build_table,
    compute_blast_radius,
    compute_headroom,
    compute_load,
    count_overlaps,
    find_worst_cases,
    find_worst_neighbours,
    map_to_hosts,
)
from tests.unit.shards.report.samples import Shards, apart, fleet_of, shards

ARTICLE = Fleet.from_workers(str(number) for number in range(1, 9))


def test_the_picture_of_the_article() -> None:
    found = build_report(ARTICLE, [[0, 3], [0, 7], [3, 5]], overlap=1)
    assert (found.tenants, found.workers, found.min_shard_size, found.max_shard_size) == (3, 8, 2, 2)
    assert (found.shards_possible, found.shards_used, found.shards_left) == (28, 3, 25)
    assert found.overlaps == Overlaps((1, 2, 0), (0, 3, 0), 1)
    assert (found.promised_overlap, found.pairs_above_promise, found.attackers_survived) == (1, 0, 1)
    assert found.capacity_lost == 0.25
    assert found.load.spare_workers == ("2", "3", "5", "7")
    assert found.required_headroom == 1.0
    assert found.worst_cases.fully_hit_by_tenant.count == 0
    assert (found.worst_cases.partly_hit_by_tenant.count, found.worst_cases.partly_hit_by_tenant.cause) == (2, 0)
    assert [(pair.row, pair.other_row, pair.slot_indexes) for pair in found.neighbours] == [(0, 1, (0,)), (0, 2, (3,))]
    assert (found.shared_hosts, found.overlaps_by_host, found.already_down) == ((), None, 0)


def test_it_goes_into_json_as_it_is() -> None:
    found = build_report(fleet_of(9), [[0, 3, 4], [0, 1, -1]], overlap=0)
    plain = msgspec.to_builtins(found)
    assert json.loads(json.dumps(plain)) == msgspec.json.decode(msgspec.json.encode(found))
    assert msgspec.convert(plain, Report) == found
    assert plain["overlaps"]["max_shared"] == 1


def test_a_promise_that_was_broken_is_counted() -> None:
    assert build_report(ARTICLE, [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 1, 2]], overlap=1).pairs_above_promise == 3


def test_shards_left_are_those_of_the_design() -> None:
    sharding = DesignedSharding(Fleet.from_workers(f"w{number}" for number in range(64)), 4, 2, key=b"key")
    table = build_table([sharding.slot_indexes(tenant) for tenant in range(500)])
    found = build_report(sharding.fleet, table, shards_possible=sharding.capacity, overlap=sharding.overlap)
    assert found.shards_left == sharding.capacity - 500
    assert found.pairs_above_promise == 0
    assert found.attackers_survived == sharding.attackers_survived == 1
    assert build_report(sharding.fleet, table, size=5).shards_possible == math.comb(64, 5)
    assert build_report(sharding.fleet, table, shards_possible=3).shards_left == 0


def test_a_worker_that_relieves_another_makes_no_shards_of_its_own() -> None:
    fleet = ARTICLE.share_slot("1", "1b")
    found = build_report(fleet, [[0, 3], [8, 7]])
    assert (found.workers, found.shards_possible, found.overlaps.max_shared) == (9, 28, 0)


def test_how_many_attackers_do_no_harm() -> None:
    assert build_report(fleet_of(8), [[0, 1], [2, 3], [4, 5]]).attackers_survived == 2, (
        "all others, where nothing is shared"
    )
    assert build_report(fleet_of(8), [[0, 1], [0, 1], [4, 5]]).attackers_survived == 0
    many = build_table([(0, 1, 2, 3), (0, 4, 5, 6), (1, 4, 7, 8), (2, 5, 7, 9), (3, 6, 8, 9)])
    assert build_report(fleet_of(10), many).attackers_survived == 3
    assert build_report(fleet_of(10), many[:2]).attackers_survived == 1, "no more than there are"
    assert build_report(fleet_of(8, drained=[0, 1]), [[0, 1], [2, 3]]).attackers_survived == 0, (
        "somebody has none already"
    )


def test_workers_on_one_machine_are_shared_where_no_worker_is() -> None:
    slots = [Slot(worker=f"w{number}", host=f"m{number // 2}") for number in range(8)]
    fleet = Fleet(slots=(*slots, Slot(worker="alone")), shared_host_policy="allow")
    table = build_table([(0, 1, 2), (3, 4, 8), (5, 6, 8)])
    found = build_report(fleet, table)
    assert found.shared_hosts[0] == SharedHost("m0", ("w0", "w1"))
    assert len(found.shared_hosts) == 4
    assert found.overlaps == Overlaps((2, 1, 0, 0), (1, 2, 0, 0), 1)
    assert found.overlaps_by_host == Overlaps((1, 1, 1, 0), (0, 1, 2, 0), 2)
    assert found.attackers_survived == 0, (
        "by machines, the first tenant has two, and the second could take both but one"
    )


def test_a_machine_with_a_drained_worker_serves_nobody_who_has_no_other_worker_on_it() -> None:
    """The first tenant has one machine left, and the second is on it as well."""
    slots = [
        Slot(worker="w0", host="h0", is_drained=True),
        Slot(worker="w1", host="h1"),
        Slot(worker="w2", host="h1"),
        Slot(worker="w3", host="h2"),
    ]
    fleet = Fleet(slots=tuple(slots), shared_host_policy="allow")
    found = build_report(fleet, [[0, 1], [2, 3]])
    assert found.attackers_survived == 0
    assert found.overlaps_by_host == Overlaps((0, 1, 0), (0, 2, 0), 1)


def test_machines_are_a_fleet_of_their_own() -> None:
    slots = [
        Slot(worker="a", host="m", group=("az1",), is_drained=True),
        Slot(worker="b", group=("az2",)),
        Slot(worker="c", host="m", weight=2.0, group=("az1",)),
    ]
    machines, table = map_to_hosts(
        Fleet(slots=tuple(slots), shared_host_policy="allow"), build_table([(0, 2), (1, 2), (1,)])
    )
    assert machines.slots == (Slot(worker="m", group=("az1",), weight=3.0), Slot(worker="b", group=("az2",)))
    assert table.tolist() == [[0, -1], [0, 1], [1, -1]]
    assert compute_blast_radius(machines, table, workers=["m"]).fully_hit == 1


def test_a_machine_with_the_name_of_a_worker_elsewhere_is_another() -> None:
    fleet = Fleet(
        slots=(Slot(worker="a", host="x"), Slot(worker="x"), Slot(worker="c", host="x")), shared_host_policy="allow"
    )
    found = build_report(fleet, [[0, 1], [2, -1]])
    assert found.shared_hosts == (SharedHost("x", ("a", "c")),)
    assert found.overlaps_by_host == Overlaps((0, 1, 0), (0, 2, 0), 1)
    with pytest.raises(InvalidValue, match="worker x is in two slots"):
        map_to_hosts(fleet, [[0, 1]])


def test_a_fleet_without_tenants_has_a_report() -> None:
    found = build_report(fleet_of(4), np.empty((0, 3), dtype=np.int32), size=3)
    assert (found.tenants, found.min_shard_size, found.max_shard_size, found.attackers_survived) == (0, 0, 0, 0)
    assert (found.shards_possible, found.shards_used, found.shards_left) == (4, 0, 4)
    assert (found.capacity_lost, found.required_headroom, found.load.workers_used) == (0.0, 0.0, 0)
    empty = build_report(Fleet.from_workers([]), np.empty((0, 3), dtype=np.int32))
    assert (empty.workers, empty.shards_possible, empty.capacity_lost) == (0, 1, 0.0)


@pytest.mark.parametrize("wrong", [{"overlap": -1}, {"size": -1}])
def test_less_than_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValue, match="-1: expected 0 or more"):
        build_report(ARTICLE, [[0, 1]], **wrong)


@settings(max_examples=100, deadline=None)
@given(shards(), st.data())
def test_it_says_what_its_parts_say(sample: tuple[int, Shards], data: st.DataObject) -> None:
    workers, rows = sample
    drained = data.draw(st.sets(st.integers(0, workers - 1), max_size=1))
    fleet, table = fleet_of(workers, weights=(1.0, 3.0), drained=sorted(drained)), build_table(rows)
    found = build_report(fleet, table)
    assert found.overlaps == count_overlaps(table)
    assert list(found.neighbours) == find_worst_neighbours(table)
    assert found.load == compute_load(fleet, table)
    assert found.worst_cases == find_worst_cases(fleet, table)
    assert found.shards_used == len({frozenset(row) for row in rows})
    lost = [compute_blast_radius(fleet, table, tenants=[row]).capacity_lost for row in range(len(rows))]
    assert found.capacity_lost == pytest.approx(max(lost, default=0.0))
    if not drained:
        assert found.required_headroom == compute_headroom(table, workers)


@pytest.mark.no_cover
@settings(max_examples=300, deadline=None)
@given(shards(tenants=6) | apart(), st.data())
def test_so_many_attackers_leave_everybody_else_a_worker(sample: tuple[int, Shards], data: st.DataObject) -> None:
    """Whoever they are, also where workers share machines, which fail with them, and some are drained."""
    workers, rows = sample
    drained = data.draw(st.sets(st.integers(0, workers - 1), max_size=2))
    hosts = data.draw(st.lists(st.sampled_from(["m0", "m1", "m2", None]), min_size=workers, max_size=workers))
    slots = [
        Slot(worker=f"w{index}", host=host, is_drained=index in drained, group=("zone",))
        for index, host in enumerate(hosts)
    ]
    fleet = Fleet(slots=tuple(slots), shared_host_policy="allow")
    found = build_report(fleet, build_table(rows))
    assert found.attackers_survived <= max(0, len(rows) - 1)
    for attackers in combinations(range(len(rows)), found.attackers_survived):
        taken = {slots[index].host or slots[index].worker for row in attackers for index in rows[row]}
        out = [slot.worker for slot in slots if (slot.host or slot.worker) in taken]
        hit = compute_blast_radius(fleet, build_table(rows), tenants=attackers, workers=out)
        assert hit.fully_hit == 0
        assert hit.already_down == 0 or found.attackers_survived == 0

"""Who is hit when something fails, and the worst there can be."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue, NotFound
from holdfast.shards import Fleet, Slot, pick_worker
from holdfast.shards.report import WorstCase, build_table, compute_blast_radius, find_worst_cases
from tests.unit.shards.report.samples import Shards, fleet_of, shards


def test_the_picture_of_the_article() -> None:
    """Rainbow on workers 1 and 4 fails; rose is served by 8, sunflower by 6, and nobody else is down."""
    fleet = Fleet.from_workers(str(number) for number in range(1, 9))
    table = build_table([(0, 3), (0, 7), (3, 5)])
    found = compute_blast_radius(fleet, table, tenants=[0])
    assert found.workers_out == ("1", "4")
    assert found.capacity_lost == 0.25
    assert (found.attackers, found.fully_hit, found.partly_hit, found.unaffected) == (1, 0, 2, 0)
    assert found.tenants_by_workers_lost == (0, 2, 1)
    assert (found.fully_hit_share, found.partly_hit_share, found.down_share) == (0.0, 1.0, 1 / 3)
    rainbow, rose, sunflower = ([fleet.slots[index] for index in row] for row in table)
    assert pick_worker(rainbow, workers_out=found.workers_out) is None
    assert pick_worker(rose, workers_out=found.workers_out) == "8"
    assert pick_worker(sunflower, workers_out=found.workers_out) == "6"
    assert found.max_load_increase == 1.0, "8 and 6 now do the whole work of a tenant each, and did half of it"


def test_a_zone_is_any_of_the_things_that_a_worker_is_in() -> None:
    fleet = fleet_of(6)
    found = compute_blast_radius(fleet, [[0, 3], [0, 1], [1, 2], [4, 5]], zones=["az0"])
    assert found.workers_out == ("w0", "w3")
    assert (found.fully_hit, found.partly_hit, found.unaffected) == (1, 1, 2)
    assert compute_blast_radius(fleet, [[0, 1]], zones=["cell1"]).workers_out == ("w3", "w4", "w5")


def test_what_fails_adds_up() -> None:
    found = compute_blast_radius(
        fleet_of(6), [[0, 3], [0, 1], [1, 2], [4, 5]], tenants=[1], workers=["w4"], zones=["az2"]
    )
    assert found.workers_out == ("w0", "w1", "w2", "w4", "w5")
    assert (found.attackers, found.fully_hit, found.partly_hit, found.unaffected) == (1, 2, 1, 0)
    assert found.down_share == 0.75
    assert found.fully_hit_share == pytest.approx(2 / 3)


def test_capacity_is_by_weight() -> None:
    fleet = Fleet(slots=(Slot(worker="a", weight=3.0), Slot(worker="b")))
    assert compute_blast_radius(fleet, [[0, 1]], workers=["a"]).capacity_lost == 0.75


def test_a_drained_worker_cannot_take_over() -> None:
    fleet = Fleet.from_workers("abcd").drain("b").drain("d")
    found = compute_blast_radius(fleet, [[0, 1], [1, 2], [1, 3]], workers=["a", "b"])
    assert (found.fully_hit, found.partly_hit, found.unaffected, found.already_down) == (1, 0, 1, 1)
    assert found.capacity_lost == 0.5, "what is drained is no capacity"
    assert found.down_share == pytest.approx(2 / 3)
    assert compute_blast_radius(fleet.drain("a").drain("c"), [[0, 1]], workers=["a"]).capacity_lost == 0.0


def test_nothing_fails_and_nobody_is_there() -> None:
    assert compute_blast_radius(fleet_of(3), [[0, 1]]).unaffected_share == 1.0
    found = compute_blast_radius(fleet_of(3), np.empty((0, 2), dtype=np.int32), workers=["w0"])
    assert (found.tenants_by_workers_lost, found.fully_hit_share, found.down_share, found.max_load_increase) == (
        (0,),
        0.0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize("row", [-1, 2])
def test_a_tenant_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(InvalidValue, match=f"tenant {row}: expected a row of the table, 0 to 1"):
        compute_blast_radius(fleet_of(3), [[0, 1], [1, 2]], tenants=[row])


def test_workers_and_zones_that_are_not_there_are_named() -> None:
    with pytest.raises(NotFound, match="no worker nobody"):
        compute_blast_radius(fleet_of(3), [[0, 1]], workers=["nobody"])
    with pytest.raises(NotFound, match="no worker in zone nowhere"):
        compute_blast_radius(fleet_of(3), [[0, 1]], zones=["nowhere"])


@pytest.mark.no_cover
@settings(max_examples=200, deadline=None)
@given(shards(), st.data())
def test_everything_is_as_by_looking_at_every_tenant(sample: tuple[int, Shards], data: st.DataObject) -> None:
    workers, rows = sample
    drained = data.draw(st.sets(st.integers(0, workers - 1), max_size=2))
    fleet = fleet_of(workers, weights=(1.0, 2.0), drained=sorted(drained))
    tenants = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=2)) if rows else set[int]()
    names = data.draw(st.sets(st.sampled_from([slot.worker for slot in fleet.slots]), max_size=2))
    zones = data.draw(st.sets(st.just("az0"), max_size=1))
    found = compute_blast_radius(fleet, build_table(rows), tenants=tenants, workers=names, zones=zones)
    out = {index for row in tenants for index in rows[row]} | {fleet.find_index(name) for name in names}
    out |= {index for index in range(workers) if zones & {*fleet.slots[index].group}}
    assert found.workers_out == tuple(f"w{index}" for index in sorted(out))
    live = [{*row} - drained for row in rows]
    others = [shard for row, shard in enumerate(live) if row not in tenants]
    assert found.fully_hit == sum(bool(shard) and shard <= out for shard in others)
    assert found.partly_hit == sum(bool(shard & out) and not shard <= out for shard in others)
    assert found.unaffected == sum(bool(shard) and not shard & out for shard in others)
    assert found.already_down == sum(not shard for shard in others)
    assert sum(found.tenants_by_workers_lost) == len(rows)
    assert sum(number * count for number, count in enumerate(found.tenants_by_workers_lost)) == sum(
        len(shard & out) for shard in live
    )
    assert found.down_share == sum(shard <= out for shard in live) / max(1, len(rows))
    assert found.max_load_increase == pytest.approx(rise_of(live, out))
    for row in rows:
        served = pick_worker([fleet.slots[index] for index in row], workers_out=found.workers_out)
        assert (served is None) == ({*row} - drained <= out), "as whoever asks for a worker finds it"


def rise_of(live: Sequence[set[int]], out: set[int]) -> float:
    before: dict[int, float] = {}
    after: dict[int, float] = {}
    for shard in live:
        for index in shard:
            before[index] = before.get(index, 0.0) + 1 / len(shard)
        for index in shard - out:
            after[index] = after.get(index, 0.0) + 1 / len(shard - out)
    return max((after[index] / before[index] - 1 for index in before if index not in out), default=0.0)


@pytest.mark.no_cover
@settings(max_examples=200, deadline=None)
@given(shards(), st.data())
def test_the_worst_is_the_worst_of_trying_each(sample: tuple[int, Shards], data: st.DataObject) -> None:
    workers, rows = sample
    drained = data.draw(st.sets(st.integers(0, workers - 1), max_size=2))
    fleet = fleet_of(workers, zones=data.draw(st.integers(1, 3)), drained=sorted(drained))
    table = build_table(rows)
    found = find_worst_cases(fleet, table)
    zones = sorted({zone for slot in fleet.slots for zone in slot.group})
    by_tenant = [(row, compute_blast_radius(fleet, table, tenants=[row])) for row in range(len(rows))]
    by_worker = [(slot.worker, compute_blast_radius(fleet, table, workers=[slot.worker])) for slot in fleet.slots]
    by_zone = [(zone, compute_blast_radius(fleet, table, zones=[zone])) for zone in zones]
    for tried, fully, partly in (
        (by_tenant, found.fully_hit_by_tenant, found.partly_hit_by_tenant),
        (by_worker, found.fully_hit_by_worker, found.partly_hit_by_worker),
        (by_zone, found.fully_hit_by_zone, found.partly_hit_by_zone),
    ):
        check(fully, [(by, one.fully_hit, one.fully_hit_share) for by, one in tried])
        check(partly, [(by, one.partly_hit, one.partly_hit_share) for by, one in tried])


def check(peak: WorstCase, tried: Sequence[tuple[int | str, int, float]]) -> None:
    highest = max((count for _, count, _ in tried), default=0)
    assert peak.count == highest
    if highest == 0:
        assert (peak.cause, peak.share) == (None, 0.0)
    else:
        assert (highest, peak.share) in [(count, share) for by, count, share in tried if by == peak.cause]
        if isinstance(peak.cause, int):
            assert peak.cause == min(by for by, count, _ in tried if count == highest)


def test_a_name_that_is_a_zone_and_a_cell_is_both() -> None:
    slots = [Slot(worker="a", group=("x", "x")), Slot(worker="b", group=("y", "x")), Slot(worker="c", group=("y", "z"))]
    found = find_worst_cases(Fleet(slots=tuple(slots)), [[0, 1], [1, 2], [0, 2]])
    assert found.fully_hit_by_zone == WorstCase(1, 1 / 3, "x")
    assert found.partly_hit_by_zone == WorstCase(2, 2 / 3, "x")


def test_without_zones_none_can_fail() -> None:
    assert find_worst_cases(Fleet.from_workers("abc"), [[0, 1]]).partly_hit_by_zone == WorstCase(0, 0.0, None)


def test_a_larger_tenant_takes_those_down_that_lie_within_it() -> None:
    found = find_worst_cases(Fleet.from_workers("abcdef"), build_table([(0, 1), (0, 1, 2, 3), (2, 3), (4, 5), (5, 0)]))
    assert found.fully_hit_by_tenant == WorstCase(2, 0.5, 1)
    assert found.fully_hit_by_worker == WorstCase(0, 0.0, None)
    assert found.partly_hit_by_worker.cause == "a"

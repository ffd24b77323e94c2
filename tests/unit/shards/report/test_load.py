"""Load: how even it is, and how much a worker must have to spare."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from holdfast import InvalidValue
from holdfast.shards import Fleet, Slot
from holdfast.shards.report import LoadRange, build_table, compute_blast_radius, compute_headroom, compute_load
from tests.unit.shards.report.samples import Shards, fleet_of, shards


def test_the_range_is_over_workers_in_use_and_the_others_are_spare() -> None:
    found = compute_load(Fleet.from_workers("abcdef"), [[0, 1], [0, 2], [0, 3]])
    assert found.workers_used == 4
    assert found.spare_workers == ("e", "f")
    assert found.tenants_per_worker == LoadRange(1.0, 1.5, 3.0)
    assert found.tenants_per_weight == found.tenants_per_worker


def test_by_weight_a_worker_with_twice_the_tenants_may_be_no_fuller() -> None:
    fleet = Fleet(slots=(Slot(worker="a", weight=2.0), Slot(worker="b"), Slot(worker="c")))
    found = compute_load(fleet, [[0, 1], [0, 2]])
    assert found.tenants_per_worker == LoadRange(1.0, 4 / 3, 2.0)
    assert found.tenants_per_weight == LoadRange(1.0, 1.0, 1.0)


def test_a_drained_worker_is_neither_used_nor_spare() -> None:
    found = compute_load(Fleet.from_workers("abc").drain("a").drain("c"), [[0, 1]])
    assert (found.workers_used, found.spare_workers, found.tenants_per_worker) == (1, (), LoadRange(1.0, 1.0, 1.0))
    assert compute_load(Fleet.from_workers("ab"), np.empty((0, 2), dtype=np.int32)).tenants_per_worker == LoadRange(
        0.0, 0.0, 0.0
    )


def test_the_slack_of_the_three_layouts_of_eight_workers() -> None:
    nothing = build_table([range(8)] * 10)
    plain = build_table([(0, 1), (2, 3), (4, 5), (6, 7)] * 3)
    shuffle = build_table(combinations(range(8), 2))
    assert compute_headroom(nothing, 8) == pytest.approx(1 / 7)
    assert compute_headroom(plain, 8) == pytest.approx(1.0)
    assert compute_headroom(shuffle, 8) == pytest.approx(1 / 7)


def test_nobody_takes_over_from_the_only_worker_of_a_tenant() -> None:
    assert compute_headroom([[0, 1], [2, -1]], 3) is None
    assert compute_headroom(np.empty((0, 2), dtype=np.int32), 3) == 0.0


def test_a_fleet_of_less_than_none_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a fleet of -1 workers"):
        compute_headroom([[0, 1]], -1)


@pytest.mark.no_cover
@settings(max_examples=200, deadline=None)
@given(shards())
def test_the_slack_is_the_highest_rise_that_any_one_worker_can_cause(sample: tuple[int, Shards]) -> None:
    workers, rows = sample
    rows = [row for row in rows if len(row) > 1]
    rises = [
        compute_blast_radius(fleet_of(workers), build_table(rows), workers=[f"w{index}"]).max_load_increase
        for index in range(workers)
    ]
    assert compute_headroom(build_table(rows), workers) == pytest.approx(max(rises))


@settings(max_examples=100, deadline=None)
@given(shards())
def test_tenants_are_counted_worker_by_worker(sample: tuple[int, Shards]) -> None:
    workers, rows = sample
    fleet = fleet_of(workers, weights=(1.0, 2.5))
    found = compute_load(fleet, build_table(rows))
    counts = [sum(index in row for row in rows) for index in range(workers)]
    used = [count for count in counts if count]
    weighted = [count / fleet.slots[index].weight for index, count in enumerate(counts) if count]
    assert found.workers_used == len(used)
    assert found.spare_workers == tuple(f"w{index}" for index, count in enumerate(counts) if not count)
    for listed, said in ((used, found.tenants_per_worker), (weighted, found.tenants_per_weight)):
        expected = (min(listed), sum(listed) / len(listed), max(listed)) if listed else (0, 0, 0)
        assert (said.lowest, said.mean, said.highest) == pytest.approx(expected)

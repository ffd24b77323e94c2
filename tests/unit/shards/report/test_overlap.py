"""What tenants share: the same numbers as from looking at all pairs, whichever way they are counted."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import DesignedSharding, Fleet
from holdfast.shards.report import NeighbourPair, Overlaps, build_table, count_overlaps, find_worst_neighbours
from holdfast.shards.report.overlap import select_worst_neighbours, summarize_overlaps
from holdfast.shards.report.overlap_counts import count_shared_workers
from holdfast.shards.report.shared_sets import find_shared_sets
from holdfast.shards.report.strategy import CountingOptions, Strategy
from holdfast.shards.report.table import AssignmentTable
from tests.table import every_row, sampled
from tests.unit.shards.report.samples import Shards, overlaps_of, pairs_of, shards, worst_of

METHODS = [
    CountingOptions(),
    CountingOptions(strategy=Strategy(max_shard_size=99)),
    CountingOptions(strategy=Strategy(max_shard_size=99), block=1),
    CountingOptions(strategy=Strategy(max_shard_size=99), block=7),
    CountingOptions(strategy=Strategy(max_shard_size=0)),
    CountingOptions(strategy=Strategy(max_shard_size=0), block=1),
    CountingOptions(strategy=Strategy(max_shard_size=0), block=7),
    CountingOptions(strategy=Strategy(max_shard_size=0, is_dense=True)),
    CountingOptions(strategy=Strategy(max_shard_size=0, is_dense=True), side=3),
    CountingOptions(strategy=Strategy(max_shard_size=2)),
    CountingOptions(strategy=Strategy(max_shard_size=3), block=5),
    CountingOptions(strategy=Strategy(max_shard_size=2, is_dense=True), side=2),
]


def checked(rows: Shards) -> AssignmentTable:
    return AssignmentTable(build_table(rows))


@pytest.mark.no_cover
@settings(max_examples=200, deadline=None)
@given(sample=shards())
def test_all_is_counted_as_by_looking_at_every_pair(sample: tuple[int, Shards]) -> None:
    """By every method."""
    _, rows = sample
    table = checked(rows)
    expected, worst = overlaps_of(rows), worst_of(rows)
    sets = [{*row} for row in rows]
    touched = [sum(bool(other & one) for other in sets) - bool(one) for one in sets]
    covered = [sum(other <= one for other in sets) - 1 for one in sets]

    def check(options: CountingOptions) -> None:
        found = count_shared_workers(table.distinct_shards, options)
        counted = summarize_overlaps(table.distinct_shards, found)
        assert {shared: pairs for shared, pairs in enumerate(counted.pairs_by_shared_workers) if pairs} == dict(
            expected
        )
        assert len(counted.pairs_by_shared_workers) == max((len(row) for row in rows), default=0) + 1
        assert list(counted.tenants_by_max_shared) == [
            worst.count(shared) for shared in range(len(counted.pairs_by_shared_workers))
        ]
        assert counted.max_shared == max(expected, default=0)
        shards = table.distinct_shards.numbers
        assert [found.touched[shards[row]] for row in range(len(rows))] == touched
        assert [found.covered[shards[row]] for row in range(len(rows))] == covered

    every_row(METHODS, check)


@pytest.mark.no_cover
@settings(max_examples=200, deadline=None)
@given(sample=shards(most=7, largest=4), limit=st.integers(0, 30))
def test_the_worst_neighbours_are_those_of_all_pairs(sample: tuple[int, Shards], limit: int) -> None:
    """By every method."""
    _, rows = sample
    table = checked(rows)
    every = [
        NeighbourPair(row, other, tuple(sorted({*rows[row]} & {*rows[other]})))
        for row, other in combinations(range(len(rows)), 2)
    ]
    expected = sorted(
        (pair for pair in every if pair.slot_indexes),
        key=lambda pair: (-len(pair.slot_indexes), pair.row, pair.other_row),
    )

    def check(options: CountingOptions) -> None:
        assert (
            select_worst_neighbours(table, count_shared_workers(table.distinct_shards, options), limit, options)
            == expected[:limit]
        )

    every_row(METHODS, check)


@settings(max_examples=60, deadline=None)
@given(sample=shards(most=30, largest=5, tenants=60))
def test_every_set_that_two_shards_have_is_found_once_with_all_who_have_it(sample: tuple[int, Shards]) -> None:
    _, rows = sample
    distinct = checked(rows).distinct_shards
    unique = [{*rows[first]} for first in distinct.first_rows]
    found: dict[tuple[int, ...], list[int]] = {}
    for shared in find_shared_sets(distinct, 3, block=11):
        ends = [*shared.starts[1:].tolist(), len(shared.shards)]
        for indexes, start, end in zip(shared.workers.tolist(), shared.starts, ends, strict=True):
            assert tuple(indexes) not in found
            found[tuple(indexes)] = shared.shards[start:end].tolist()
    having: dict[tuple[int, ...], list[int]] = {}
    for number, one in enumerate(unique):
        for size in (1, 2, 3):
            for indexes in combinations(sorted(one), size):
                having.setdefault(indexes, []).append(number)
    assert found == {indexes: some for indexes, some in having.items() if len(some) > 1}


def test_the_order_of_workers_in_a_shard_says_nothing() -> None:
    assert count_overlaps([[0, 1, 2], [2, 1, 5]]) == Overlaps((0, 0, 1, 0), (0, 0, 2, 0), 2)


def test_nobody_and_a_tenant_alone_share_nothing() -> None:
    assert count_overlaps(np.empty((0, 4), dtype=np.int32)) == Overlaps((0,), (0,), 0)
    assert count_overlaps([[3, 4]]) == Overlaps((0, 0, 0), (1, 0, 0), 0)
    assert find_worst_neighbours([[3, 4]]) == []
    assert count_overlaps(np.empty((0, 4), dtype=np.int32)).fraction_sharing(0) == 0.0


def test_the_share_of_tenants_with_a_close_neighbour() -> None:
    found = count_overlaps([[0, 1, 2], [0, 1, 3], [0, 4, 5], [6, 7, 8]])
    assert [found.fraction_sharing(shared) for shared in (-1, 0, 1, 2, 3, 4)] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("tenants", sampled([100_000, 1_000_000]))
def test_very_many_tenants_without_shards_are_counted_without_looking_at_each(tenants: int) -> None:
    table = np.tile(np.arange(8, dtype=np.int32), (tenants, 1))
    found = count_overlaps(table)
    assert found.pairs_by_shared_workers == (0, 0, 0, 0, 0, 0, 0, 0, pairs_of(tenants))
    assert find_worst_neighbours(table, 2) == [
        NeighbourPair(0, 1, tuple(range(8))),
        NeighbourPair(0, 2, tuple(range(8))),
    ]


def test_large_shards_of_some_tenants_are_counted_by_pairs() -> None:
    """Two to the power of 40 sets for each: nobody would wait for them."""
    random = np.random.default_rng(5)
    rows = [tuple(random.permutation(100)[:40].tolist()) for _ in range(60)]
    found = count_overlaps(build_table(rows))
    assert {shared: pairs for shared, pairs in enumerate(found.pairs_by_shared_workers) if pairs} == dict(
        overlaps_of(rows)
    )
    [worst] = find_worst_neighbours(build_table(rows), 1)
    assert len(worst.slot_indexes) == found.max_shared


def test_one_very_large_tenant_among_small_ones_costs_little() -> None:
    """It shares no more with anybody than the others have: larger sets of its workers are not looked at."""
    random = np.random.default_rng(6)
    rows = [tuple(random.permutation(200)[:3].tolist()) for _ in range(300)]
    rows.append(tuple(range(150)))
    distinct = checked(rows).distinct_shards
    by_sets = summarize_overlaps(
        distinct, count_shared_workers(distinct, CountingOptions(strategy=Strategy(max_shard_size=150)))
    )
    assert {shared: pairs for shared, pairs in enumerate(by_sets.pairs_by_shared_workers) if pairs} == dict(
        overlaps_of(rows)
    )
    assert by_sets == summarize_overlaps(
        distinct, count_shared_workers(distinct, CountingOptions(strategy=Strategy(max_shard_size=0, is_dense=True)))
    )
    assert by_sets == summarize_overlaps(distinct, count_shared_workers(distinct))


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([20_000, 60_000]))
@pytest.mark.parametrize("pool", [80, 45], ids=["of their own", "on almost the same workers"])
def test_a_few_large_tenants_do_not_make_all_pairs_be_looked_at(pool: int, tenants: int) -> None:
    """Two billion pairs of small tenants would take minutes; it takes a fraction of a second."""
    random = np.random.default_rng(7)
    small = np.unique(np.sort(random.integers(0, 2000, (tenants, 4)), axis=1), axis=0)
    small = small[(small[:, 1:] > small[:, :-1]).all(axis=1)]
    table = np.full((len(small) + 2, 40), -1)
    table[:-2, :4] = small
    table[-2], table[-1] = 2000 + np.arange(40), 2000 + pool - 1 - np.arange(40)
    found, alone = count_overlaps(table), count_overlaps(small)
    [worst] = find_worst_neighbours(table, 1)
    shared = 80 - pool
    expected = [*alone.pairs_by_shared_workers, *[0] * 36]
    expected[0] += 2 * len(small)
    expected[shared] += 1
    assert found.pairs_by_shared_workers == tuple(expected)
    assert found.tenants_by_max_shared == tuple(
        [*alone.tenants_by_max_shared, *[0] * 36][size] + (2 if size == shared else 0)
        for size in range(len(found.tenants_by_max_shared))
    )
    if shared:
        assert (worst.row, worst.other_row, len(worst.slot_indexes)) == (len(small), len(small) + 1, shared)


@pytest.mark.parametrize("options", [*METHODS, CountingOptions(strategy=Strategy(max_shard_size=3))], ids=str)
def test_a_pair_that_shares_more_does_not_hide_those_that_share_less(options: CountingOptions) -> None:
    """It comes up again with each of the workers that it shares, before all others."""
    table = checked([(0, 1, 2), (0, 1, 3), (4, 5, 6), (4, 7, 8)])
    found = select_worst_neighbours(table, count_shared_workers(table.distinct_shards, options), 2, options)
    assert found == [NeighbourPair(0, 1, (0, 1)), NeighbourPair(2, 3, (4,))]


def test_neighbours_are_found_below_large_tenants_that_share_a_lot() -> None:
    """A pair that shares forty workers has as many sets of twenty as nobody would list: it is known, and left out."""
    large = [tuple(range(40)), tuple(range(40)), (*range(20), *range(40, 60))]
    small = [(60 + number, 61 + number) for number in range(10)]
    found = find_worst_neighbours(build_table([*small, *large]), 5)
    shared = [(pair.row, pair.other_row, len(pair.slot_indexes)) for pair in found]
    assert shared == [(10, 11, 40), (10, 12, 20), (11, 12, 20), (0, 1, 1), (1, 2, 1)]


@pytest.mark.parametrize(("workers", "size", "overlap"), [(64, 4, 2), (40, 4, 2), (49, 3, 1), (32, 4, 1), (20, 4, 3)])
def test_a_design_keeps_its_promise(workers: int, size: int, overlap: int) -> None:
    sharding = DesignedSharding(
        Fleet.from_workers(f"w{number}" for number in range(workers)), size, overlap, key=b"key"
    )
    rows = [sharding.slot_indexes(tenant) for tenant in range(min(400, sharding.capacity))]
    found = count_overlaps(build_table(rows))
    assert found.max_shared <= overlap
    assert {shared: pairs for shared, pairs in enumerate(found.pairs_by_shared_workers) if pairs} == dict(
        overlaps_of(rows)
    )


@pytest.mark.no_cover
@pytest.mark.parametrize("bits", sampled([22, 24]))
def test_places_far_apart_in_the_largest_fleet_are_told_apart(bits: int) -> None:
    """A number of three of them has more than 64 bits."""
    top = (1 << bits) - 1
    rows = [(top, top - 1, 0, 1, 2, 3, 4, 5), (top, top - 1, 0, 1, 2, 3, 4, 6), (top - 2, 7, 8, 9, 10, 11, 12, 5)]
    assert count_overlaps(build_table(rows)).pairs_by_shared_workers == (1, 1, 0, 0, 0, 0, 0, 1, 0)


def test_a_negative_number_of_neighbours_is_refused() -> None:
    with pytest.raises(InvalidValue, match="the -1 worst neighbours"):
        find_worst_neighbours([[0, 1]], -1)

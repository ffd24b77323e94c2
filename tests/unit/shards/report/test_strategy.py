"""Which shards are looked at by their sets of workers, and which are compared: what has less to do."""

import numpy as np
import pytest

from holdfast.shards.report import build_table
from holdfast.shards.report import strategy as strategy_module
from holdfast.shards.report.overlap_counts import OverlapCounts, count_shared_workers
from holdfast.shards.report.shared_sets import TooManySets, find_shared_sets
from holdfast.shards.report.strategy import CountingOptions, Strategy
from holdfast.shards.report.table import AssignmentTable, DistinctShards, ShardArray
from tests.unit.shards.report.samples import overlaps_of


def random_shards(count: int, size: int, workers: int, first: int = 0) -> list[tuple[int, ...]]:
    random = np.random.default_rng(size)
    return [tuple((first + random.choice(workers, size, replace=False)).tolist()) for _ in range(count)]


def tried(among: ShardArray, deepest: float = np.inf) -> list[Strategy]:
    """The ways that are tried if each is given up while it may be."""
    strategies: list[Strategy] = []

    def count(strategy: Strategy) -> None:
        strategies.append(strategy)
        if strategy.max_sets < np.inf:
            raise TooManySets

    CountingOptions().run(among, count, deepest)
    return strategies


def distinct_of(*parts: list[tuple[int, ...]]) -> DistinctShards:
    return AssignmentTable(build_table([row for part in parts for row in part])).distinct_shards


def test_many_small_shards_are_looked_at_by_their_sets() -> None:
    assert tried(distinct_of(random_shards(2000, 4, 100))) == [Strategy(max_shard_size=4)]


@pytest.mark.parametrize("large", [1, 2, 20])
def test_the_large_ones_are_compared_with_all_and_the_small_ones_are_not(large: int) -> None:
    among = distinct_of(random_shards(5000, 4, 200), random_shards(large, 80, 100, first=150))
    assert [strategy.max_shard_size for strategy in tried(among)] == [4]


def test_where_all_are_large_all_are_compared() -> None:
    assert tried(distinct_of(random_shards(300, 30, 2000))) == [Strategy(max_shard_size=0)]
    assert tried(distinct_of(random_shards(300, 30, 50))) == [Strategy(max_shard_size=0, is_dense=True)], (
        "for they share a lot"
    )


def test_sets_that_nobody_asked_for_are_not_feared() -> None:
    among = distinct_of(random_shards(300, 30, 50))
    assert [strategy.max_shard_size for strategy in tried(among, deepest=1)] == [30]


def test_shards_of_no_workers_and_no_shards_at_all_are_counted() -> None:
    nothing = ShardArray(np.empty((0, 1), dtype=np.int32), np.empty(0, dtype=np.int64), 0)
    assert tried(nothing) == [Strategy(max_shard_size=0)]
    empty = ShardArray(np.array([[3], [2]], dtype=np.int32), np.array([0, 1]), 3)
    assert empty.select(np.array([0])).slot_indexes.shape == (1, 0)
    assert tried(empty)[-1].split(empty)[0].tolist() == [0, 1]


def test_in_a_large_fleet_sets_are_tried_first_and_given_up_if_too_many_are_shared() -> None:
    """Who shares what is not known before: here all are within thirty workers of a thousand, and share everything."""
    strategies = tried(distinct_of(random_shards(3000, 11, 30), [(999,)]))
    assert [strategy.max_shard_size for strategy in strategies] == [11, 1]
    assert strategies[0].max_sets < np.inf


@pytest.mark.parametrize(("workers", "share"), [(14, 0.25), (400, 100.0)], ids=["given up", "done"])
def test_the_numbers_are_the_same_if_sets_were_tried_first(
    workers: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy_module, "_SHARED_SETS_SHARE", 1e-9)
    monkeypatch.setattr(strategy_module, "_TRIAL_SHARE", share)
    rows = [*random_shards(150, 9, workers), *random_shards(40, 2, workers)]
    distinct = AssignmentTable(build_table(rows)).distinct_shards
    begun, given_up = [], []

    def count(strategy: Strategy) -> OverlapCounts:
        begun.append(strategy.max_shard_size)
        try:
            return count_shared_workers(distinct, CountingOptions(strategy=strategy))
        except TooManySets:
            given_up.append(strategy.max_shard_size)
            raise

    found = CountingOptions().run(distinct, count)
    assert (begun, given_up) == (([9, 2], [9]) if workers == 14 else ([9], []))
    assert {shared: pairs for shared, pairs in enumerate(found.pairs_by_shared_workers) if pairs} == dict(
        overlaps_of(rows)
    )


def test_a_walk_ends_once_it_has_looked_at_too_many_sets() -> None:
    among = distinct_of([(0, 1, 2), (0, 1, 3)])
    assert [shared.size for shared in find_shared_sets(among, 2, max_sets=6 + 6)] == [1, 2]
    steps = find_shared_sets(among, 2, max_sets=6 + 5)
    assert next(steps).size == 1
    with pytest.raises(TooManySets):
        next(steps)

"""Which shards are looked at by their sets of workers, and which are compared: what has less to do."""

import numpy as np
import pytest

from holdfast.shards.report import method as methods
from holdfast.shards.report import table_of
from holdfast.shards.report.method import Method, Way
from holdfast.shards.report.scan import Scan, scan
from holdfast.shards.report.table import Distinct, Shards, Table
from holdfast.shards.report.walk import TooMany, walk
from tests.unit.shards.report.samples import overlaps_of


def random_shards(count: int, size: int, workers: int, first: int = 0) -> list[tuple[int, ...]]:
    random = np.random.default_rng(size)
    return [tuple((first + random.choice(workers, size, replace=False)).tolist()) for _ in range(count)]


def tried(among: Shards, deepest: float = np.inf) -> list[Way]:
    """The ways that are tried if each is given up while it may be."""
    ways: list[Way] = []

    def count(way: Way) -> None:
        ways.append(way)
        if way.most < np.inf:
            raise TooMany

    Method().apply(among, count, deepest)
    return ways


def distinct_of(*parts: list[tuple[int, ...]]) -> Distinct:
    return Table(table_of([row for part in parts for row in part])).distinct


def test_many_small_shards_are_looked_at_by_their_sets() -> None:
    assert tried(distinct_of(random_shards(2000, 4, 100))) == [Way(largest=4)]


@pytest.mark.parametrize("large", [1, 2, 20])
def test_the_large_ones_are_compared_with_all_and_the_small_ones_are_not(large: int) -> None:
    among = distinct_of(random_shards(5000, 4, 200), random_shards(large, 80, 100, first=150))
    assert [way.largest for way in tried(among)] == [4]


def test_where_all_are_large_all_are_compared() -> None:
    assert tried(distinct_of(random_shards(300, 30, 2000))) == [Way(largest=0)]
    assert tried(distinct_of(random_shards(300, 30, 50))) == [Way(largest=0, dense=True)], "for they share a lot"


def test_sets_that_nobody_asked_for_are_not_feared() -> None:
    among = distinct_of(random_shards(300, 30, 50))
    assert [way.largest for way in tried(among, deepest=1)] == [30]


def test_shards_of_no_workers_and_no_shards_at_all_are_counted() -> None:
    nothing = Shards(np.empty((0, 1), dtype=np.int32), np.empty(0, dtype=np.int64), 0)
    assert tried(nothing) == [Way(largest=0)]
    empty = Shards(np.array([[3], [2]], dtype=np.int32), np.array([0, 1]), 3)
    assert empty.only(np.array([0])).places.shape == (1, 0)
    assert tried(empty)[-1].parts(empty)[0].tolist() == [0, 1]


def test_in_a_large_fleet_sets_are_tried_first_and_given_up_if_too_many_are_shared() -> None:
    """Who shares what is not known before: here all are within thirty workers of a thousand, and share everything."""
    ways = tried(distinct_of(random_shards(3000, 11, 30), [(999,)]))
    assert [way.largest for way in ways] == [11, 1]
    assert ways[0].most < np.inf


@pytest.mark.parametrize(("workers", "share"), [(14, 0.25), (400, 100.0)], ids=["given up", "done"])
def test_the_numbers_are_the_same_if_sets_were_tried_first(
    workers: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "_SHARED", 1e-9)
    monkeypatch.setattr(methods, "_TRIED", share)
    rows = [*random_shards(150, 9, workers), *random_shards(40, 2, workers)]
    distinct = Table(table_of(rows)).distinct
    begun, given_up = [], []

    def count(way: Way) -> Scan:
        begun.append(way.largest)
        try:
            return scan(distinct, Method(way=way))
        except TooMany:
            given_up.append(way.largest)
            raise

    found = Method().apply(distinct, count)
    assert (begun, given_up) == (([9, 2], [9]) if workers == 14 else ([9], []))
    assert {shared: pairs for shared, pairs in enumerate(found.pairs) if pairs} == dict(overlaps_of(rows))


def test_a_walk_ends_once_it_has_looked_at_too_many_sets() -> None:
    among = distinct_of([(0, 1, 2), (0, 1, 3)])
    assert [shared.size for shared in walk(among, 2, most=6 + 6)] == [1, 2]
    steps = walk(among, 2, most=6 + 5)
    assert next(steps).size == 1
    with pytest.raises(TooMany):
        next(steps)

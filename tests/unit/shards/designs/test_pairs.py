"""Every pair of workers is a shard, once."""

from collections import Counter
from itertools import combinations

import pytest

from holdfast.shards.designs import Pairs


@pytest.mark.parametrize("workers", range(2, 30))
def test_every_pair_comes_once(workers: int) -> None:
    design = Pairs(workers)
    found = Counter(frozenset(design.shard(number)) for number in range(design.capacity))
    assert found == Counter(map(frozenset, combinations(range(workers), 2)))


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
def test_opposite_workers_are_a_class_of_their_own_where_there_are_any(workers: int) -> None:
    sizes = [(segment.class_size, segment.classes) for segment in Pairs(workers).segments]
    expected = {2: [(1, 1)], 3: [(3, 1)], 4: [(4, 1), (2, 1)], 7: [(7, 3)], 8: [(8, 3), (4, 1)]}
    assert sizes == expected[workers]


def test_the_eight_workers_of_the_article_give_twenty_eight_shards() -> None:
    assert Pairs(8).capacity == 28

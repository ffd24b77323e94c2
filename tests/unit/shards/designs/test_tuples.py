"""Every combination of one worker of each group is a shard, once."""

from itertools import product

import pytest

from holdfast.shards.designs import Tuples


@pytest.mark.parametrize("groups", range(1, 6))
@pytest.mark.parametrize("per_group", range(1, 5))
def test_every_combination_comes_once(groups: int, per_group: int) -> None:
    design = Tuples(groups, per_group)
    found = [tuple(worker % per_group for worker in design.shard(number)) for number in range(design.capacity)]
    assert sorted(found) == list(product(range(per_group), repeat=groups))


@pytest.mark.parametrize("groups", range(1, 4))
@pytest.mark.parametrize("per_group", range(1, 6))
def test_a_class_shares_nothing_and_has_every_worker(groups: int, per_group: int) -> None:
    design = Tuples(groups, per_group)
    for first in range(0, design.capacity, per_group):
        taken = [worker for number in range(first, first + per_group) for worker in design.shard(number)]
        assert sorted(taken) == list(range(design.workers))

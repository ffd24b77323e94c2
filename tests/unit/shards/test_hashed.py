"""Shards from names: the same everywhere, spread, weighted, and moved as little as can be."""

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Fleet, Hashed, Slot

KEY = b"a secret"


def fleet(*sizes: int) -> Fleet:
    return Fleet.grouped(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def names(slots: tuple[Slot, ...]) -> set[str]:
    return {slot.worker for slot in slots}


@given(st.text() | st.binary())
def test_a_name_of_any_bytes_has_the_same_shard_everywhere(tenant: str | bytes) -> None:
    one, other = Hashed(fleet(5, 5, 5), 3, key=KEY), Hashed(fleet(5, 5, 5), 3, key=KEY)
    assert one.shard(tenant) == other.shard(tenant)
    assert len(names(one.shard(tenant))) == 3


@pytest.mark.parametrize(("sizes", "size"), [((5, 5, 5), 3), ((5, 5, 5), 4), ((5, 5, 5), 2), ((20,), 4), ((4, 8), 6)])
def test_a_shard_is_spread_over_the_groups(sizes: tuple[int, ...], size: int) -> None:
    hashed = Hashed(fleet(*sizes), size, key=KEY)
    given_more: Counter[tuple[str, ...]] = Counter()
    for tenant in range(300):
        shard = hashed.shard(f"tenant-{tenant}")
        groups = Counter(slot.group for slot in shard)
        assert len(names(shard)) == size
        counts = [groups.get((f"az{zone}",), 0) for zone in range(len(sizes))]
        assert max(counts) - min(counts) <= 1
        given_more.update(groups)
    assert max(given_more.values()) < 1.5 * min(given_more.values())


def test_a_tenant_may_have_a_larger_shard_and_keeps_what_it_had() -> None:
    hashed = Hashed(fleet(9, 9, 9), 3, key=KEY)
    for tenant in ("a", "b", "c"):
        assert names(hashed.shard(tenant)) < names(hashed.shard(tenant, 6)) < names(hashed.shard(tenant, 9))


def test_one_worker_more_or_less_changes_one_worker_of_a_few() -> None:
    before = Fleet.of(f"w{number}" for number in range(200))
    after = before.add(Slot(worker="new"))
    one, other = Hashed(before, 4, key=KEY), Hashed(after, 4, key=KEY)
    moved = 0
    for tenant in range(3000):
        old, new = names(one.shard(str(tenant))), names(other.shard(str(tenant)))
        assert new - old in (set(), {"new"})
        assert len(old - new) <= 1
        moved += old != new
    assert 0 < moved / 3000 < 2 * 4 / 201


def test_a_drained_worker_is_in_no_shard_and_the_others_stay() -> None:
    before = fleet(6, 6)
    one, other = Hashed(before, 4, key=KEY), Hashed(before.drain("az0-3"), 4, key=KEY)
    for tenant in range(300):
        old, new = names(one.shard(str(tenant))), names(other.shard(str(tenant)))
        assert old - new <= {"az0-3"}
        assert "az0-3" not in new


def test_a_worker_of_twice_the_weight_is_in_twice_as_many_shards() -> None:
    slots = [Slot(worker=f"w{number}", weight=2.0 if number < 10 else 1.0) for number in range(40)]
    hashed = Hashed(Fleet(slots=tuple(slots)), 1, key=KEY)
    load = Counter(hashed.shard(str(tenant))[0].worker for tenant in range(20_000))
    heavy = sum(load[f"w{number}"] for number in range(10)) / 10
    light = sum(load[f"w{number}"] for number in range(10, 40)) / 30
    assert heavy / light == pytest.approx(2.0, rel=0.1)


def test_the_key_decides_who_is_next_to_whom() -> None:
    one, other = Hashed(fleet(20, 20), 4, key=b"one"), Hashed(fleet(20, 20), 4, key=b"other")
    assert sum(one.shard(str(tenant)) == other.shard(str(tenant)) for tenant in range(200)) < 5


@pytest.mark.parametrize(("sizes", "size"), [((40,), 4), ((20, 20), 4), ((12, 12, 12), 3)])
def test_the_odds_it_states_are_those_that_are_found(sizes: tuple[int, ...], size: int) -> None:
    hashed = Hashed(fleet(*sizes), size, key=KEY)
    shards = [names(hashed.shard(str(tenant))) for tenant in range(400)]
    for shared in (size - 1, size):
        close: set[int] = set()
        for (one, left), (other, right) in combinations(enumerate(shards), 2):
            if len(left & right) >= shared:
                close |= {one, other}
        assert len(close) / 400 == pytest.approx(hashed.chance(shared, 400), abs=0.08)


def test_the_odds_of_a_large_fleet() -> None:
    """Of a million tenants with four of 2048 workers by chance, one in ninety has a neighbour that shares three."""
    large = Hashed(Fleet.of(f"w{number}" for number in range(2048)), 4, key=KEY)
    assert large.chance(3, 1_000_000) == pytest.approx(0.0112, rel=0.02)
    small = Hashed(Fleet.of(f"w{number}" for number in range(100)), 4, key=KEY)
    assert small.chance(3, 10_000) == pytest.approx(0.62, abs=0.02)
    assert small.chance(0, 2) == 1.0
    uneven = Hashed(fleet(20, 20), 3, key=KEY)
    assert uneven.chance(3, 100) == Hashed(fleet(40), 3, key=KEY).chance(3, 100)
    assert not math.isnan(small.chance(4, 1))


@pytest.mark.parametrize("size", [0, -1, 13])
def test_a_size_that_no_shard_has_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 12"):
        Hashed(fleet(4, 4, 4), size, key=KEY)
    with pytest.raises(InvalidValue, match="expected 1 to 12"):
        Hashed(fleet(4, 4, 4), 3, key=KEY).shard("tenant-1", size)


def test_a_fleet_without_workers_has_no_shards() -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 0"):
        Hashed(Fleet.of([]), 1, key=KEY)

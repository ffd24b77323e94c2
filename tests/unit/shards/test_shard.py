"""What a tenant has can be divided among its own tenants, and nobody outside notices."""

from collections import Counter

import pytest

from holdfast import InvalidValue
from holdfast.shards import Designed, Fleet, Hashed, Shard, Slot

KEY = b"a secret"
WITHIN = b"a secret of the tenant"


def fleet(*sizes: int) -> Fleet:
    return Fleet.grouped(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def test_a_shard_names_its_workers() -> None:
    shard = Shard((3, 1), (Slot(worker="d"), Slot(worker="b")))
    assert shard.workers == ("d", "b")
    assert Shard((), ()).workers == ()


def test_a_shard_names_those_who_may_be_given_work() -> None:
    shard = Shard((3, 1, 2), (Slot(worker="d"), Slot(worker="b", is_drained=True), Slot(worker="c")))
    assert shard.live == ("d", "c"), "in the order of the shard"
    assert shard.drained == ("b",)
    assert shard.workers == ("d", "b", "c")
    assert Shard((1,), (Slot(worker="b", is_drained=True),)).live == ()
    designed = Designed(fleet(5, 5, 5), 3, 1, key=KEY)
    before = designed.shard(7)
    assert before.live == before.workers
    after = Designed(designed.fleet.drain(before.workers[1]), 3, 1, key=KEY).shard(7)
    assert after.live == (before.workers[0], before.workers[2])


def test_shards_within_a_shard_are_of_its_workers() -> None:
    parent = Hashed(fleet(10, 10, 10), 9, key=KEY).shard("tenant")
    within = parent.sub(3, key=WITHIN)
    load = Counter[str]()
    for name in range(300):
        shard = within.shard(f"customer-{name}")
        assert len(set(shard.workers)) == 3
        assert {slot.group for slot in shard.slots} == {("az0",), ("az1",), ("az2",)}, "and spread as others are"
        load.update(shard.workers)
    assert set(load) == set(parent.workers), "each is used"
    assert max(load.values()) < 2 * min(load.values())


def test_shards_within_are_the_same_everywhere_and_the_key_decides() -> None:
    parent = Designed(fleet(8, 8, 8, 8), 4, 2, key=KEY).shard(7)
    again = Designed(fleet(8, 8, 8, 8), 4, 2, key=KEY).shard(7)
    names = [str(name) for name in range(100)]
    one = [parent.sub(2, key=WITHIN).shard(name) for name in names]
    assert one == [again.sub(2, key=WITHIN).shard(name) for name in names]
    other = [parent.sub(2, key=b"other").shard(name) for name in names]
    assert sum(here.workers == there.workers for here, there in zip(one, other, strict=True)) < 40


def test_what_tenants_do_not_share_their_tenants_do_not_share() -> None:
    designed = Designed(fleet(6, 6, 6, 6), 4, 0, key=KEY)
    first, second = (designed.shard(tenant).sub(2, key=WITHIN) for tenant in (0, 1))
    for name in range(50):
        for other in range(50):
            assert not set(first.shard(str(name)).workers) & set(second.shard(str(other)).workers)


def test_shards_within_share_at_most_what_their_parents_do() -> None:
    designed = Designed(fleet(7, 7, 7, 7), 4, 1, key=KEY)
    parents = [designed.shard(tenant) for tenant in range(12)]
    for one in parents:
        for other in parents:
            common = set(one.workers) & set(other.workers)
            for name in ("a", "b", "c"):
                shared = set(one.sub(3, key=KEY).shard(name).workers) & set(other.sub(3, key=KEY).shard(name).workers)
                assert shared <= common


def test_shards_within_shards_can_be_divided_in_their_turn() -> None:
    parent = Hashed(fleet(20, 20), 16, key=KEY).shard("tenant")
    middle = parent.sub(8, key=WITHIN).shard("customer")
    inner = middle.sub(2, key=WITHIN).shard("customer of the customer")
    assert set(inner.workers) < set(middle.workers) < set(parent.workers)
    assert (len(inner.workers), len(middle.workers), len(parent.workers)) == (2, 8, 16)


@pytest.mark.parametrize("size", [0, -1, 5])
def test_a_size_that_the_shard_does_not_hold_is_refused(size: int) -> None:
    parent = Hashed(fleet(10, 10), 4, key=KEY).shard("tenant")
    with pytest.raises(InvalidValue, match="expected 1 to 4"):
        parent.sub(size, key=KEY)


def test_where_groups_give_unequally_each_gives_what_the_least_has() -> None:
    parent = Hashed(fleet(10, 10, 10), 4, key=KEY).shard("tenant")
    assert len(parent.sub(3, key=KEY).shard("customer").workers) == 3
    with pytest.raises(InvalidValue, match="expected 1 to 3"):
        parent.sub(4, key=KEY)


def test_a_drained_worker_is_in_no_shard_within() -> None:
    designed = Designed(fleet(8, 8), 4, 2, key=KEY)
    drained = designed.shard(0).workers[0]
    parent = Designed(designed.fleet.drain(drained), 4, 2, key=KEY).shard(0)
    assert drained in parent.workers
    within = parent.sub(2, key=KEY)
    assert all(drained not in within.shard(str(name)).workers for name in range(50))


def test_workers_that_relieve_others_or_share_a_machine_are_divided_as_well() -> None:
    slots = tuple(Slot(worker=f"w{number}", host=f"m-{number % 8}") for number in range(16))
    before = Fleet(slots=slots, shared_hosts="allow")
    relief = [before.relieve(f"w{number}", f"r{number}", weight=1000.0) for number in range(4)]
    for each in relief:
        designed = Designed(each, 4, 2, key=KEY)
        for tenant in range(designed.capacity):
            shard = designed.shard(tenant)
            assert set(shard.sub(4, key=KEY).shard("customer").workers) == set(shard.workers)


@pytest.mark.parametrize("size", [2, 3])
def test_a_shard_of_a_lattice_can_be_divided(size: int) -> None:
    lattice = Fleet(
        slots=tuple(
            Slot(worker=f"{zone}-{version}-{number}", group=(zone, version))
            for zone in ("az1", "az2", "az3")
            for version in ("v1", "v2")
            for number in range(4)
        )
    )
    parent = Hashed(lattice, size, key=KEY).shard("tenant")
    assert set(parent.sub(1, key=KEY).shard("customer").workers) < set(parent.workers)

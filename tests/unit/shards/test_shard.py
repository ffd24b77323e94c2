"""What a tenant has can be divided among its own tenants, and nobody outside notices."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Zone
from holdfast.shards import DesignedSharding, Fleet, HashedSharding, Shard, Slot, pick_worker

KEY = b"a secret"
WITHIN = b"a secret of the tenant"


def fleet(*sizes: int) -> Fleet:
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def test_a_shard_names_its_workers() -> None:
    shard = Shard((3, 1), (Slot(worker="d"), Slot(worker="b")))
    assert shard.workers == ("d", "b")
    assert Shard((), ()).workers == ()


def test_a_shard_names_those_who_may_be_given_work() -> None:
    shard = Shard((3, 1, 2), (Slot(worker="d"), Slot(worker="b", is_drained=True), Slot(worker="c")))
    assert shard.live_workers == ("d", "c"), "in the order of the shard"
    assert shard.drained_workers == ("b",)
    assert shard.workers == ("d", "b", "c")
    assert Shard((1,), (Slot(worker="b", is_drained=True),)).live_workers == ()
    sharding = DesignedSharding(fleet(5, 5, 5), 3, 1, key=KEY)
    before = sharding.shard(7)
    assert before.live_workers == before.workers
    after = DesignedSharding(sharding.fleet.drain(before.workers[1]), 3, 1, key=KEY).shard(7)
    assert after.live_workers == (before.workers[0], before.workers[2])


def test_shards_within_a_shard_are_of_its_workers() -> None:
    parent = HashedSharding(fleet(10, 10, 10), 9, key=KEY).shard("tenant")
    within = parent.subdivide(3, key=WITHIN)
    load = Counter[str]()
    for name in range(300):
        shard = within.shard(f"customer-{name}")
        assert len(set(shard.workers)) == 3
        assert {slot.group for slot in shard.slots} == {("az0",), ("az1",), ("az2",)}, "and spread as others are"
        load.update(shard.workers)
    assert set(load) == set(parent.workers), "each is used"
    assert max(load.values()) < 2 * min(load.values())


def test_shards_within_are_the_same_everywhere_and_the_key_decides() -> None:
    parent = DesignedSharding(fleet(8, 8, 8, 8), 4, 2, key=KEY).shard(7)
    again = DesignedSharding(fleet(8, 8, 8, 8), 4, 2, key=KEY).shard(7)
    names = [str(name) for name in range(100)]
    one = [parent.subdivide(2, key=WITHIN).shard(name) for name in names]
    assert one == [again.subdivide(2, key=WITHIN).shard(name) for name in names]
    other = [parent.subdivide(2, key=b"other").shard(name) for name in names]
    assert sum(here.workers == there.workers for here, there in zip(one, other, strict=True)) < 40


def test_what_tenants_do_not_share_their_tenants_do_not_share() -> None:
    sharding = DesignedSharding(fleet(6, 6, 6, 6), 4, 0, key=KEY)
    first, second = (sharding.shard(tenant).subdivide(2, key=WITHIN) for tenant in (0, 1))
    for name in range(50):
        for other in range(50):
            assert not set(first.shard(str(name)).workers) & set(second.shard(str(other)).workers)


def test_shards_within_share_at_most_what_their_parents_do() -> None:
    sharding = DesignedSharding(fleet(7, 7, 7, 7), 4, 1, key=KEY)
    parents = [sharding.shard(tenant) for tenant in range(12)]
    for one in parents:
        for other in parents:
            common = set(one.workers) & set(other.workers)
            for name in ("a", "b", "c"):
                shared = set(one.subdivide(3, key=KEY).shard(name).workers) & set(
                    other.subdivide(3, key=KEY).shard(name).workers
                )
                assert shared <= common


def test_shards_within_shards_can_be_divided_in_their_turn() -> None:
    parent = HashedSharding(fleet(20, 20), 16, key=KEY).shard("tenant")
    middle = parent.subdivide(8, key=WITHIN).shard("customer")
    inner = middle.subdivide(2, key=WITHIN).shard("customer of the customer")
    assert set(inner.workers) < set(middle.workers) < set(parent.workers)
    assert (len(inner.workers), len(middle.workers), len(parent.workers)) == (2, 8, 16)


@pytest.mark.parametrize("size", [0, -1, 5])
def test_a_size_that_the_shard_does_not_hold_is_refused(size: int) -> None:
    parent = HashedSharding(fleet(10, 10), 4, key=KEY).shard("tenant")
    with pytest.raises(InvalidValue, match="expected 1 to 4"):
        parent.subdivide(size, key=KEY)


def test_where_groups_give_unequally_each_gives_what_the_least_has() -> None:
    parent = HashedSharding(fleet(10, 10, 10), 4, key=KEY).shard("tenant")
    assert len(parent.subdivide(3, key=KEY).shard("customer").workers) == 3
    with pytest.raises(InvalidValue, match="expected 1 to 3"):
        parent.subdivide(4, key=KEY)


def test_a_drained_worker_is_in_no_shard_within() -> None:
    sharding = DesignedSharding(fleet(8, 8), 4, 2, key=KEY)
    drained = sharding.shard(0).workers[0]
    parent = DesignedSharding(sharding.fleet.drain(drained), 4, 2, key=KEY).shard(0)
    assert drained in parent.workers
    within = parent.subdivide(2, key=KEY)
    assert all(drained not in within.shard(str(name)).workers for name in range(50))


def test_workers_that_relieve_others_or_share_a_machine_are_divided_as_well() -> None:
    slots = tuple(Slot(worker=f"w{number}", host=f"m-{number % 8}") for number in range(16))
    before = Fleet(slots=slots, shared_host_policy="allow")
    relief = [before.share_slot(f"w{number}", f"r{number}", weight=1000.0) for number in range(4)]
    for each in relief:
        sharding = DesignedSharding(each, 4, 2, key=KEY)
        for tenant in range(sharding.capacity):
            shard = sharding.shard(tenant)
            assert set(shard.subdivide(4, key=KEY).shard("customer").workers) == set(shard.workers)


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
    parent = HashedSharding(lattice, size, key=KEY).shard("tenant")
    assert set(parent.subdivide(1, key=KEY).shard("customer").workers) < set(parent.workers)


SHARD = [Slot(worker=f"w{number}", group=(f"az{number}",)) for number in range(4)]
NAMES = [slot.worker for slot in SHARD]


def test_workers_take_turns() -> None:
    assert [pick_worker(SHARD, turn=turn) for turn in range(5)] == ["w0", "w1", "w2", "w3", "w0"]


def test_a_shard_is_taken_as_its_slots_are() -> None:
    shard = Shard((3, 1, 4, 2), tuple(SHARD))
    for turn in (None, 0, 1, 6):
        assert pick_worker(shard, turn=turn) == pick_worker(SHARD, turn=turn)
    assert pick_worker(shard, workers_out={"w0"}, tried=["w1"], zones_out={Zone("az2")}) == "w3"
    assert pick_worker(Shard((), ())) is None


def test_without_a_turn_a_shard_begins_with_the_same_worker_everywhere_and_always() -> None:
    """By the names of its workers, and no process counts: so it is known, and is never changed by chance."""
    assert [pick_worker(SHARD) for _ in range(3)] == ["w1"] * 3
    assert [pick_worker([Slot(worker=name) for name in names]) for names in ("abd", "abe", "abf")] == ["a", "b", "f"]


def test_without_a_turn_different_shards_begin_with_different_workers() -> None:
    """Else all would begin in the first zone, whose workers come first in every shard."""
    fleet = Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(16)] for zone in range(4)})
    sharding = DesignedSharding(fleet, 4, 2, key=b"a secret")
    chosen = Counter(pick_worker(sharding.shard(tenant)) for tenant in range(4000))
    zones = Counter(str(worker).partition("-")[0] for worker in chosen.elements())
    assert {*zones} == {"az0", "az1", "az2", "az3"}
    assert all(900 < count < 1100 for count in zones.values())
    assert len(chosen) == 64, "and every worker is the first for somebody"


def test_who_begins_with_a_worker_that_is_out_begins_with_another_of_its_shard() -> None:
    first = pick_worker(SHARD)
    assert first is not None
    second = pick_worker(SHARD, tried=[first])
    assert second in {*NAMES} - {first}
    tried: list[str] = []
    while (following := pick_worker(SHARD, tried=tried)) is not None:
        tried.append(following)
    assert sorted(tried) == NAMES, "each is tried once"
    drained = [replace(slot, is_drained=slot.worker == first) for slot in SHARD]
    assert pick_worker(drained) == pick_worker(SHARD, workers_out={first}) == second, (
        "for whatever reason it is left out"
    )


def test_of_those_that_are_equally_deep_different_shards_take_different_ones() -> None:
    shards = [[Slot(worker=f"{shard}-{number}", group=(f"az{number}",)) for number in range(4)] for shard in range(40)]
    chosen = {str(pick_worker(shard, depths={})).partition("-")[2] for shard in shards}
    assert chosen == {"0", "1", "2", "3"}
    assert all(pick_worker(shard, depths={}) == pick_worker(shard) for shard in shards)


def test_what_is_out_tried_or_drained_is_left_out() -> None:
    assert pick_worker(SHARD, workers_out={"w0"}, tried=["w1"], zones_out={Zone("az2")}) == "w3"
    assert pick_worker([Slot(worker="a", is_drained=True), Slot(worker="b")]) == "b"


def test_the_shard_of_a_tenant_is_what_is_picked_from() -> None:
    fleet = Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(5)] for zone in range(3)})
    shard = DesignedSharding(fleet, 3, 1, key=b"a secret").shard(7)
    first, second, third = shard.workers
    assert [pick_worker(shard.slots, turn=turn) for turn in range(3)] == [first, second, third]
    assert pick_worker(shard.slots, tried=[first], zones_out={Zone(shard.slots[1].group[0])}) == third
    assert pick_worker(shard.slots, tried=shard.workers) is None


def test_whatever_dimension_is_out_is_left_out() -> None:
    lattice = [Slot(worker=f"{zone}-{version}", group=(zone, version)) for zone in ("az1", "az2") for version in "12"]
    assert pick_worker(lattice, zones_out={Zone("az1"), Zone("1")}) == "az2-2"


def test_the_least_deep_is_taken_where_depths_are_known() -> None:
    depths = {"w0": 5.0, "w1": 2.0, "w2": 2.0, "w3": 9.0}
    assert pick_worker(SHARD, depths=depths) == "w1"
    assert pick_worker(SHARD, depths=depths, turn=2) == "w2", "of two that are alike, by turns"
    assert pick_worker(SHARD, depths={"w0": 1.0, "w1": 1.0}, turn=3) == "w3", "one that is not listed counts as empty"


def test_the_picture_of_the_article() -> None:
    """Rainbow on workers 1 and 4 fails; rose is served by 8, sunflower by 6."""
    down = {"1", "4"}
    rainbow, rose, sunflower = ([Slot(worker=name) for name in shard] for shard in (("1", "4"), ("1", "8"), ("4", "6")))
    assert pick_worker(rainbow, workers_out=down) is None
    assert pick_worker(rose, workers_out=down) == "8"
    assert pick_worker(sunflower, workers_out=down) == "6"


@given(
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(["az0", "az1", "az2", "az3"])),
    st.none() | st.integers(0, 10),
)
def test_nobody_from_outside_is_ever_named(out: set[str], zones: set[str], turn: int | None) -> None:
    chosen = pick_worker(SHARD, workers_out=out, zones_out={Zone(zone) for zone in zones}, turn=turn)
    left = [slot.worker for slot in SHARD if slot.worker not in out and slot.group[0] not in zones]
    assert chosen in left if left else chosen is None

"""The shards of real fleets: bounded overlap, even load, spare capacity, and changes that move few."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CapacityExhausted, InvalidValue
from holdfast.shards import Designed, Fleet, Shard, Slot
from holdfast.shards.designs import Parity, Polynomials, Quadruples
from holdfast.shards.order import Order
from holdfast.shards.permutation import LARGEST

KEY = b"a secret of sixteen bytes or more"


def fleet(*sizes: int) -> Fleet:
    """Groups of so many workers; one group is none."""
    if len(sizes) == 1:
        return Fleet.of(f"w{number}" for number in range(sizes[0]))
    return Fleet.grouped(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def most_shared(shards: list[Shard]) -> int:
    return max((len(set(one.places) & set(other.places)) for one, other in combinations(shards, 2)), default=0)


@pytest.mark.parametrize(
    ("sizes", "size", "overlap", "kind", "capacity", "spare"),
    [
        ((2048,), 4, 2, Quadruples, 357_389_824, 0),
        ((16,), 4, 2, Quadruples, 140, 0),
        ((100,), 4, 2, Parity, 15_625, 0),
        ((103,), 4, 2, Parity, 15_625, 3),
        ((25, 25, 25, 25), 4, 2, Parity, 15_625, 0),
        ((25, 26, 25, 30), 4, 1, Polynomials, 625, 6),
        ((24, 24, 24), 3, 1, Parity, 576, 0),
        ((24, 24, 24), 3, 0, Polynomials, 23, 3),
        ((30, 30, 30), 6, 4, Parity, 759_375, 0),
        ((20, 20, 20), 4, 2, Parity, 1000, 20),
        ((8,), 2, 0, Parity, 4, 0),
        ((8,), 2, 1, Polynomials, 16, 0),
        ((7,), 1, 0, Polynomials, 7, 0),
    ],
)
def test_the_design_follows_from_fleet_size_and_overlap(
    sizes: tuple[int, ...], size: int, overlap: int, kind: type, capacity: int, spare: int
) -> None:
    designed = Designed(fleet(*sizes), size, overlap, key=KEY)
    assert isinstance(designed.design, kind)
    assert (designed.size, designed.overlap, designed.capacity) == (size, overlap, capacity)
    assert len(designed.spare) == spare


@pytest.mark.parametrize(
    ("sizes", "size", "overlap"),
    [
        ((16,), 4, 2),
        ((32,), 4, 2),
        ((21,), 3, 1),
        ((7, 7, 7), 3, 1),
        ((7, 8, 9, 7), 4, 1),
        ((6, 6, 6), 6, 4),
        ((9, 9), 4, 2),
    ],
)
def test_every_tenant_has_a_shard_of_its_own_and_none_shares_more_than_promised(
    sizes: tuple[int, ...], size: int, overlap: int
) -> None:
    designed = Designed(fleet(*sizes), size, overlap, key=KEY)
    shards = [designed.shard(tenant) for tenant in range(min(designed.capacity, 1500))]
    assert most_shared(shards) <= overlap
    assert len({frozenset(shard.places) for shard in shards}) == len(shards)
    for shard in shards:
        assert len(set(shard.workers)) == size
        assert designed.places(shard.tenant) == shard.places
        groups = Counter(slot.group for slot in shard.slots)
        assert max(groups.values()) - min(groups.values()) <= 1
        assert len(groups) == len(sizes)


@given(st.integers(1, 3000))
def test_load_stays_even_however_many_there_are(tenants: int) -> None:
    designed = Designed(fleet(64), 4, 2, key=KEY)
    load = Counter(place for tenant in range(tenants) for place in designed.shard(tenant).places)
    assert max(load.values()) - min(load.get(place, 0) for place in range(64)) <= 1


def test_a_zone_takes_one_worker_of_each_shard_and_no_more() -> None:
    designed = Designed(fleet(25, 25, 25, 25), 4, 2, key=KEY)
    for tenant in range(1000):
        assert sorted(slot.group[0] for slot in designed.shard(tenant).slots) == ["az0", "az1", "az2", "az3"]


def test_one_poison_tenant_leaves_everybody_else_a_worker() -> None:
    """Of the article: shards of four that share two at most."""
    designed = Designed(fleet(128), 4, 2, key=KEY)
    shards = [set(designed.shard(tenant).workers) for tenant in range(3000)]
    poison = shards[1234]
    assert sum(not shard - poison for shard in shards) == 1
    assert designed.survives == 1


@pytest.mark.parametrize(("size", "overlap", "survives"), [(4, 1, 3), (4, 2, 1), (5, 1, 4), (5, 2, 2), (3, 0, 6)])
def test_so_many_poison_tenants_cannot_cover_another(size: int, overlap: int, survives: int) -> None:
    designed = Designed(fleet(*[7] * size), size, overlap, key=KEY)
    assert designed.survives == survives
    shards = [set(designed.shard(tenant).workers) for tenant in range(min(designed.capacity, 40))]
    for victim in shards[:10]:
        for poison in combinations([shard for shard in shards if shard != victim], min(survives, 2)):
            assert victim - set().union(*poison)


def test_where_there_are_more_classes_than_are_shuffled_the_rest_still_come_once() -> None:
    design = Parity(8, 64)
    order = Order(design, KEY)
    last = LARGEST * 64
    assert last < design.capacity
    assert len({order[number] for number in range(last - 128, last + 128)}) == 256
    assert all(0 <= order[number] < design.capacity for number in (0, last, design.capacity - 1))


def test_the_key_decides_who_is_next_to_whom_and_nothing_else_does() -> None:
    one, same, other = (Designed(fleet(64), 4, 2, key=key) for key in (b"one", b"one", b"other"))
    assert [one.shard(tenant).places for tenant in range(50)] == [same.shard(tenant).places for tenant in range(50)]
    assert sum(one.shard(tenant).places == other.shard(tenant).places for tenant in range(50)) < 5


def test_replacing_a_worker_moves_only_those_who_had_it() -> None:
    before = Designed(fleet(2048), 4, 2, key=KEY)
    after = Designed(before.fleet.replace(77, "new"), 4, 2, key=KEY)
    tenants = 20_000
    moved = 0
    for tenant in range(tenants):
        old, new = before.shard(tenant).workers, after.shard(tenant).workers
        gone = set(old) - set(new)
        assert gone in (set(), {"w77"})
        moved += bool(gone)
    assert moved / tenants <= 0.0025


def test_a_spare_worker_that_is_added_moves_nobody() -> None:
    before = Designed(fleet(25, 25, 25, 25), 4, 2, key=KEY)
    more = before.fleet.add(*(Slot(worker=f"spare-{zone}", group=(f"az{zone}",)) for zone in range(4)))
    after = Designed(more, 4, 2, key=KEY, first=100)
    assert after.spare == [100, 101, 102, 103]
    assert all(after.shard(tenant) == before.shard(tenant) for tenant in range(2000))
    assert Designed(more, 4, 2, key=KEY).capacity > after.capacity, "for whoever would rather move everybody"


@pytest.mark.parametrize(
    ("sizes", "size", "overlap"), [((16,), 4, 2), ((6, 6, 6), 3, 1), ((20,), 4, 2), ((9, 9), 4, 2)]
)
def test_doubling_a_fleet_moves_nobody(sizes: tuple[int, ...], size: int, overlap: int) -> None:
    before = Designed(fleet(*sizes), size, overlap, key=KEY)
    after = before.doubled([f"new-{number}" for number in range(len(before.fleet))])
    assert [after.shard(tenant) for tenant in range(before.capacity)] == [
        before.shard(tenant) for tenant in range(before.capacity)
    ]
    assert after.capacity > 2 * before.capacity
    again = after.doubled([f"newer-{number}" for number in range(len(after.fleet))])
    some = range(0, after.capacity, max(1, after.capacity // 500))
    assert [again.shard(tenant).places for tenant in some] == [after.shard(tenant).places for tenant in some]
    shards = [after.shard(tenant) for tenant in range(0, after.capacity, max(1, after.capacity // 700))]
    assert most_shared(shards) <= overlap
    new = after.shard(before.capacity)
    assert sum(place >= len(before.fleet) for place in new.places) >= size - 1, "new workers are filled first"


def test_a_design_that_cannot_be_doubled_says_so() -> None:
    with pytest.raises(InvalidValue, match="cannot be doubled in place"):
        Designed(fleet(7, 7, 7), 3, 0, key=KEY).doubled([f"new-{number}" for number in range(21)])


@pytest.mark.parametrize("first", [0, 101])
def test_a_design_is_pinned_to_slots_that_there_are(first: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 100"):
        Designed(fleet(100), 4, 2, key=KEY, first=first)


@pytest.mark.parametrize("tenant", [140, 10**9])
def test_past_the_capacity_it_is_said_what_gives_more(tenant: int) -> None:
    designed = Designed(fleet(16), 4, 2, key=KEY)
    assert len(designed.shard(139).workers) == 4
    with pytest.raises(
        CapacityExhausted, match=r"16 workers give 140 shards.*an overlap of 3 gives more and more workers"
    ):
        designed.shard(tenant)
    with pytest.raises(InvalidValue, match="expected 0 or more"):
        designed.shard(-1)
    with pytest.raises(CapacityExhausted, match="at most 3; more workers give more"):
        Designed(fleet(16), 4, 3, key=KEY).shard(10**9)


@pytest.mark.parametrize(
    ("sizes", "size", "overlap", "message"),
    [
        ((3,), 4, 2, "expected 1 to 3 workers"),
        ((8,), 0, 0, "expected 1 to 8 workers"),
        ((8,), 4, 4, "expected 0 to 3"),
        ((8,), 4, -1, "expected 0 to 3"),
        ((8,), 4, 1, "allow a larger overlap"),
        ((4, 4, 4, 4, 4), 4, 2, "in each of 5 groups"),
        ((1, 8, 8), 6, 4, "a group of 1 workers for 2 of each shard"),
    ],
)
def test_what_no_design_meets_is_refused_with_what_would_help(
    sizes: tuple[int, ...], size: int, overlap: int, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        Designed(fleet(*sizes), size, overlap, key=KEY)


def test_the_three_layouts_of_the_article() -> None:
    """Eight workers: plain shards of two lose a quarter of all tenants to one, shuffled ones nobody else."""
    plain = Designed(fleet(8), 2, 0, key=KEY)
    shards = [frozenset(plain.shard(tenant).workers) for tenant in range(plain.capacity)]
    assert len(set(shards)) == 4
    assert sum(bool(shard & shards[0]) for shard in shards) / len(shards) == 0.25
    shuffled = Designed(fleet(8), 2, 1, key=KEY)
    assert sum(shuffled.shard(tenant).workers == shuffled.shard(0).workers for tenant in range(16)) == 1

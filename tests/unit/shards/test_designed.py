"""The shards of real fleets: bounded overlap, even load, spare capacity, and changes that move few."""

import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CapacityExhausted, InvalidValue
from holdfast.shards import DesignedSharding, Fleet, Layout, Shard, Slot
from holdfast.shards.designs import Disjoint, Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from tests.table import rows, sampled

KEY = b"a secret of sixteen bytes or more"


def fleet(*sizes: int) -> Fleet:
    """Groups of so many workers; one group is none."""
    if len(sizes) == 1:
        return Fleet.from_workers(f"w{number}" for number in range(sizes[0]))
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def lattice(*counts: int, each: int) -> Fleet:
    """So many groups in each dimension, and so many workers in every combination of them."""
    names = [[f"d{number}-{group}" for group in range(count)] for number, count in enumerate(counts)]
    return Fleet(
        slots=tuple(
            Slot(worker=f"{'/'.join(group)}/{number}", group=group)
            for group in product(*names)
            for number in range(each)
        )
    )


def shape(value: object) -> str | None:
    """What a fleet is called in the name of a test."""
    return "-".join(str(len(some)) for some in value.indexes_by_group().values()) if isinstance(value, Fleet) else None


def most_shared(shards: Sequence[Shard]) -> int:
    """Of any two."""
    return max(
        (len(set(one.slot_indexes) & set(other.slot_indexes)) for one, other in combinations(shards, 2)), default=0
    )


def shares_too_much(sharding: DesignedSharding, step: int = 1) -> bool:
    """Whether any two share more workers than promised: exactly if some set of one more is in both."""
    seen: set[tuple[str, ...]] = set()
    for tenant in range(0, sharding.capacity, step):
        for part in combinations(sorted(sharding.shard(tenant).workers), sharding.overlap + 1):
            if part in seen:
                return True
            seen.add(part)
    return False


def spread(shard: Shard, whole: Fleet) -> int:
    """By how much the groups of a dimension differ, in the worst of them; those with no worker count as well."""
    found = 0
    for number, groups in enumerate(whole.dimensions()):
        load = Counter(slot.group[number] for slot in shard.slots)
        found = max(found, max(load.values()) - min(load.get(group, 0) for group in groups))
    return found


@rows(
    ("sizes", "size", "overlap", "kind", "capacity", "spare"),
    [
        ((2048,), 4, 2, Quadruples, 357_389_824, 0),
        ((16,), 4, 2, Quadruples, 140, 0),
        ((100,), 4, 2, Parity, 15_625, 0),
        ((103,), 4, 2, Parity, 15_625, 3),
        ((25, 25, 25, 25), 4, 2, Parity, 15_625, 0),
        ((25, 26, 25, 30), 4, 1, Polynomials, 625, 6),
        ((24, 24, 24), 3, 1, Parity, 576, 0),
        ((24, 24, 24), 3, 0, Disjoint, 24, 0),
        ((30, 30, 30), 6, 4, Parity, 759_375, 0),
        ((20, 20, 20), 4, 2, Polynomials, 729, 6),
        ((8,), 2, 0, Disjoint, 4, 0),
        ((8,), 2, 1, Pairs, 28, 0),
        ((2,), 2, 1, Pairs, 1, 0),
        ((7,), 1, 0, Disjoint, 7, 0),
        ((8,), 4, 0, Disjoint, 2, 0),
        ((9,), 3, 2, Tuples, 27, 0),
        ((8, 8), 2, 1, Tuples, 64, 0),
        ((5, 5, 5, 5, 5), 4, 2, Polynomials, 125, 0),
        ((6, 6, 6, 6, 6), 3, 1, Polynomials, 25, 5),
        ((4, 4, 4, 4, 4), 4, 2, Parity, 64, 4),
        ((4, 4, 4, 4, 4), 2, 1, Families, 32, 4),
        ((4, 4, 4, 4, 4), 2, 0, Families, 8, 4),
        ((8, 8, 8, 8, 8, 8, 8, 8), 4, 2, Families, 1024, 0),
        ((7, 7, 7, 7), 1, 0, Families, 28, 0),
    ],
)
def test_the_design_follows_from_fleet_size_and_overlap(
    sizes: tuple[int, ...], size: int, overlap: int, kind: type, capacity: int, spare: int
) -> None:
    sharding = DesignedSharding(fleet(*sizes), size, overlap, key=KEY)
    assert isinstance(sharding.design, kind)
    assert (sharding.size, sharding.overlap, sharding.capacity) == (size, overlap, capacity)
    assert len(sharding.spare_slots) == spare


@rows(
    ("sizes", "size", "overlap"),
    [
        ((16,), 4, 2),
        ((32,), 4, 2),
        ((21,), 3, 1),
        ((7, 7, 7), 3, 1),
        ((7, 8, 9, 7), 4, 1),
        ((6, 6, 6), 6, 4),
        ((9, 9), 4, 2),
        ((13,), 2, 1),
        ((14,), 2, 1),
        ((9,), 1, 0),
        ((12,), 3, 2),
        ((20, 20, 20), 4, 2),
        ((8, 9, 8, 8, 8), 3, 2),
        ((4, 4, 4, 4, 4), 2, 1),
        ((6, 6, 6, 6, 6, 6), 3, 1),
        ((7, 7, 7, 7, 7), 3, 1),
    ],
)
def test_every_tenant_has_a_shard_of_its_own_and_none_shares_more_than_promised(
    sizes: tuple[int, ...], size: int, overlap: int
) -> None:
    sharding = DesignedSharding(fleet(*sizes), size, overlap, key=KEY)
    assert not shares_too_much(sharding)
    shards = [sharding.shard(tenant) for tenant in range(sharding.capacity)]
    assert most_shared(shards[:200]) <= overlap, "counted in another way"
    assert len({frozenset(shard.slot_indexes) for shard in shards}) == len(shards)
    for tenant, shard in enumerate(shards):
        assert len(set(shard.workers)) == size
        assert sharding.slot_indexes(tenant) == shard.slot_indexes
        assert shard.slots == tuple(sharding.fleet.slots[index] for index in shard.slot_indexes)
        assert spread(shard, sharding.fleet) <= 1
        assert len({slot.group for slot in shard.slots}) == min(size, len(sizes))


@pytest.mark.no_cover
@given(st.integers(1, 3000))
def test_load_stays_even_however_many_there_are(tenants: int) -> None:
    sharding = DesignedSharding(fleet(64), 4, 2, key=KEY)
    load = Counter(index for tenant in range(tenants) for index in sharding.shard(tenant).slot_indexes)
    assert max(load.values()) - min(load.get(index, 0) for index in range(64)) <= 1


@pytest.mark.parametrize(
    ("whole", "size", "overlap"),
    [
        (fleet(7, 7, 7, 7, 7), 3, 1),
        (fleet(20, 20, 20), 4, 2),
        (fleet(7, 7, 7, 7, 7, 7), 3, 1),
        (fleet(15), 2, 1),
        (fleet(12), 3, 2),
        (lattice(3, 2, each=9), 4, 2),
        (lattice(3, 2, each=7), 2, 1),
        (lattice(2, 2, 2, each=8), 3, 1),
    ],
    ids=shape,
)
def test_after_each_whole_class_load_is_even_over_all_groups(whole: Fleet, size: int, overlap: int) -> None:
    sharding = DesignedSharding(whole, size, overlap, key=KEY)
    [segment, *_] = sharding.design.segments
    used = [index for index in range(len(whole)) if index not in sharding.spare_slots]
    load: Counter[int] = Counter(dict.fromkeys(used, 0))
    for tenant in range(segment.end):
        load.update(sharding.slot_indexes(tenant))
        if (tenant + 1) % segment.class_size == 0:
            assert len(set(load.values())) == 1, f"after {tenant + 1} tenants"
    assert len(load) == len(used)


def test_a_zone_takes_one_worker_of_each_shard_and_no_more() -> None:
    sharding = DesignedSharding(fleet(25, 25, 25, 25), 4, 2, key=KEY)
    for tenant in range(1000):
        assert sorted(slot.group[0] for slot in sharding.shard(tenant).slots) == ["az0", "az1", "az2", "az3"]


def test_one_poison_tenant_leaves_everybody_else_a_worker() -> None:
    """Of the article: shards of four that share two at most."""
    sharding = DesignedSharding(fleet(128), 4, 2, key=KEY)
    shards = [set(sharding.shard(tenant).workers) for tenant in range(3000)]
    poison = shards[1234]
    assert sum(not shard - poison for shard in shards) == 1
    assert sharding.attackers_survived == 1


@pytest.mark.parametrize(("size", "overlap", "survives"), [(4, 1, 3), (4, 2, 1), (5, 1, 4), (5, 2, 2), (3, 0, 6)])
def test_so_many_poison_tenants_cannot_cover_another(size: int, overlap: int, survives: int) -> None:
    sharding = DesignedSharding(fleet(*[7] * size), size, overlap, key=KEY)
    assert sharding.attackers_survived == survives
    shards = [set(sharding.shard(tenant).workers) for tenant in range(min(sharding.capacity, 40))]
    for victim in shards[:10]:
        for poison in combinations([shard for shard in shards if shard != victim], min(survives, 2)):
            assert victim - set().union(*poison)


def test_the_key_decides_who_is_next_to_whom_and_nothing_else_does() -> None:
    one, same, other = (DesignedSharding(fleet(64), 4, 2, key=key) for key in (b"one", b"one", b"other"))
    assert [one.shard(tenant).slot_indexes for tenant in range(50)] == [
        same.shard(tenant).slot_indexes for tenant in range(50)
    ]
    assert sum(one.shard(tenant).slot_indexes == other.shard(tenant).slot_indexes for tenant in range(50)) < 5


def test_replacing_a_worker_moves_only_those_who_had_it() -> None:
    before = DesignedSharding(fleet(2048), 4, 2, key=KEY)
    after = DesignedSharding(before.fleet.replace(77, "new"), 4, 2, key=KEY)
    tenants = 20_000
    moved = 0
    for tenant in range(tenants):
        old, new = before.shard(tenant).workers, after.shard(tenant).workers
        gone = set(old) - set(new)
        assert gone in (set(), {"w77"})
        moved += bool(gone)
    assert moved / tenants <= 0.0025


def test_a_spare_worker_that_is_added_moves_nobody() -> None:
    before = DesignedSharding(fleet(25, 25, 25, 25), 4, 2, key=KEY)
    more = before.fleet.add(*(Slot(worker=f"spare-{zone}", group=(f"az{zone}",)) for zone in range(4)))
    after = DesignedSharding(more, 4, 2, key=KEY, design_slot_count=100)
    assert after.spare_slots == [100, 101, 102, 103]
    assert all(after.shard(tenant) == before.shard(tenant) for tenant in range(2000))
    assert DesignedSharding(more, 4, 2, key=KEY).capacity > after.capacity, "for whoever would rather move everybody"


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("sizes", "size", "overlap"),
    [((16,), 4, 2), ((6, 6, 6), 3, 1), ((20,), 4, 2), ((9, 9), 4, 2), ((5, 5, 5, 5, 5, 5), 3, 1)],
)
def test_doubling_a_fleet_moves_nobody(sizes: tuple[int, ...], size: int, overlap: int) -> None:
    before = DesignedSharding(fleet(*sizes), size, overlap, key=KEY)
    after = before.double([f"new-{number}" for number in range(len(before.fleet))])
    assert [after.shard(tenant) for tenant in range(before.capacity)] == [
        before.shard(tenant) for tenant in range(before.capacity)
    ]
    assert after.capacity > 2 * before.capacity
    again = after.double([f"newer-{number}" for number in range(len(after.fleet))])
    some = range(0, after.capacity, max(1, after.capacity // 500))
    assert [again.shard(tenant).slot_indexes for tenant in some] == [
        after.shard(tenant).slot_indexes for tenant in some
    ]
    assert not shares_too_much(after, step=max(1, after.capacity // 700))
    new = after.shard(before.capacity)
    assert sum(index >= len(before.fleet) for index in new.slot_indexes) >= size - 1, "new workers are filled first"


def test_a_design_that_cannot_be_doubled_says_so() -> None:
    with pytest.raises(InvalidValue, match="cannot be doubled in place"):
        DesignedSharding(fleet(7, 7, 7, 7), 4, 1, key=KEY).double([f"new-{number}" for number in range(28)])


@pytest.mark.parametrize("first", [0, 101])
def test_a_design_is_pinned_to_slots_that_there_are(first: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 100"):
        DesignedSharding(fleet(100), 4, 2, key=KEY, design_slot_count=first)


@pytest.mark.parametrize("tenant", [140, 10**9])
def test_past_the_capacity_it_is_said_what_gives_more(tenant: int) -> None:
    sharding = DesignedSharding(fleet(16), 4, 2, key=KEY)
    assert len(sharding.shard(139).workers) == 4
    with pytest.raises(CapacityExhausted, match=r"16 workers has 140 shards.*; allow an overlap of 3, or add workers"):
        sharding.shard(tenant)
    with pytest.raises(InvalidValue, match="expected 0 or more"):
        sharding.shard(-1)
    with pytest.raises(CapacityExhausted, match="at most 3; add workers"):
        DesignedSharding(fleet(16), 4, 3, key=KEY).shard(10**9)


def test_a_larger_overlap_that_gives_no_more_is_not_advised() -> None:
    """Where each group has one worker, there is one shard, whatever may be shared."""
    with pytest.raises(CapacityExhausted, match="3 workers has 1 shard of 3 that share at most 0; add workers"):
        DesignedSharding(fleet(1, 1, 1), 3, 0, key=KEY).shard(1)


@pytest.mark.parametrize(
    ("sizes", "size", "overlap", "message"),
    [
        ((3,), 4, 2, "expected 1 to 3 workers"),
        ((8,), 0, 0, "expected 1 to 8 workers"),
        ((8,), 4, 4, "expected 0 to 3"),
        ((8,), 4, -1, "expected 0 to 3"),
        ((8,), 4, 1, "allow a larger overlap"),
        ((1, 8, 8), 6, 4, "a group of 1 worker for 2 of each shard"),
    ],
)
def test_what_no_design_meets_is_refused_with_what_would_help(
    sizes: tuple[int, ...], size: int, overlap: int, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        DesignedSharding(fleet(*sizes), size, overlap, key=KEY)


def test_the_three_layouts_of_the_article() -> None:
    """Eight workers: plain shards of two lose a quarter of all tenants to one, shuffled ones nobody else."""
    plain = DesignedSharding(fleet(8), 2, 0, key=KEY)
    shards = [frozenset(plain.shard(tenant).workers) for tenant in range(plain.capacity)]
    assert len(set(shards)) == 4
    assert sum(bool(shard & shards[0]) for shard in shards) / len(shards) == 0.25
    shuffled = DesignedSharding(fleet(8), 2, 1, key=KEY)
    assert shuffled.capacity == 28
    assert sum(set(shuffled.shard(tenant).workers) == set(shuffled.shard(0).workers) for tenant in range(28)) == 1


LATTICES = [
    # Zones and versions, workers in each combination; size, overlap; design, capacity and what is left over.
    ((3, 2), 9, 2, 1, Families, 243, 0),
    ((3, 2), 9, 3, 1, Families, 162, 0),
    ((3, 2), 9, 4, 2, Polynomials, 729, 0),
    ((3, 2), 10, 5, 1, Polynomials, 81, 6),
    ((3, 2), 9, 6, 2, Polynomials, 729, 0),
    ((3, 2), 4, 4, 2, Parity, 64, 8),
    ((3, 2), 4, 9, 8, Tuples, 512, 6),
    ((2, 2), 8, 2, 1, Families, 128, 0),
    ((2, 2), 8, 4, 2, Parity, 512, 0),
    ((2, 4), 9, 4, 2, Families, 1458, 0),
    ((3, 3), 9, 4, 2, Polynomials, 1458, 0),
    ((2, 2, 2), 8, 3, 1, Polynomials, 128, 0),
    ((2, 3, 2), 5, 6, 4, Families, 6250, 0),
    ((1, 4), 5, 4, 2, Parity, 125, 0),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("counts", "each", "size", "overlap", "kind", "capacity", "spare"), LATTICES)
def test_a_shard_is_spread_over_every_dimension(
    counts: tuple[int, ...], each: int, size: int, overlap: int, kind: type, capacity: int, spare: int
) -> None:
    sharding = DesignedSharding(lattice(*counts, each=each), size, overlap, key=KEY)
    assert isinstance(sharding.design, kind)
    assert (sharding.capacity, len(sharding.spare_slots)) == (capacity, spare)
    assert not shares_too_much(sharding)
    for tenant in range(sharding.capacity):
        shard = sharding.shard(tenant)
        assert len(set(shard.workers)) == size
        assert spread(shard, sharding.fleet) <= 1


@pytest.mark.no_cover
@pytest.mark.parametrize(("counts", "each", "size", "overlap"), [((3, 2), 64, 4, 2), ((2, 3, 2), 32, 5, 3)])
def test_a_large_lattice_keeps_its_promises_where_one_looks(
    counts: tuple[int, ...], each: int, size: int, overlap: int
) -> None:
    sharding = DesignedSharding(lattice(*counts, each=each), size, overlap, key=KEY)
    assert sharding.capacity > 100_000
    assert not shares_too_much(sharding, step=sharding.capacity // 5000)
    for tenant in range(0, sharding.capacity, sharding.capacity // 500):
        assert spread(sharding.shard(tenant), sharding.fleet) <= 1


def test_a_combination_without_workers_is_refused_by_name() -> None:
    whole = lattice(3, 2, each=5)
    some = Fleet(slots=tuple(slot for slot in whole.slots if slot.group != ("d0-2", "d1-0")))
    with pytest.raises(InvalidValue, match=r"no worker in d0-2 / d1-0: .* in every combination"):
        DesignedSharding(some, 2, 1, key=KEY)


def test_a_combination_without_workers_among_the_first_slots_is_refused_by_name() -> None:
    whole = lattice(2, 2, each=1)
    with pytest.raises(InvalidValue, match="no worker in d0-1 / d1-1"):
        DesignedSharding(whole, 2, 1, key=KEY, design_slot_count=3)


def test_a_combination_without_slots_is_the_one_that_is_missed() -> None:
    whole = lattice(2, 2, each=1)
    some = Fleet(slots=whole.slots[:3]).drain(whole.slots[0].worker)
    with pytest.raises(InvalidValue, match="no worker in d0-1 / d1-1"):
        DesignedSharding(some, 2, 1, key=KEY)


RELIEVED = [
    (fleet(16), 4, 2),
    (fleet(6, 6, 6), 3, 1),
    (fleet(8), 2, 1),
    (fleet(7, 7, 7, 7, 7), 3, 1),
    (lattice(3, 2, each=5), 2, 1),
]


def moves(before: DesignedSharding, after: DesignedSharding) -> dict[int, tuple[set[str], set[str]]]:
    """For whoever moves, the workers that it loses and gains."""
    found = {}
    for tenant in range(before.capacity):
        old, new = before.shard(tenant), after.shard(tenant)
        if old.workers != new.workers:
            found[tenant] = set(old.workers) - set(new.workers), set(new.workers) - set(old.workers)
    return found


@pytest.mark.parametrize(("whole", "size", "overlap"), RELIEVED, ids=shape)
def test_a_worker_that_relieves_another_takes_over_some_of_its_tenants_and_nobody_else_moves(
    whole: Fleet, size: int, overlap: int
) -> None:
    before = DesignedSharding(whole, size, overlap, key=KEY)
    worker = before.shard(0).workers[0]
    after = DesignedSharding(whole.share_slot(worker, "more"), size, overlap, key=KEY)
    assert (after.capacity, after.spare_slots) == (before.capacity, before.spare_slots)
    concerned = {tenant for tenant in range(before.capacity) if worker in before.shard(tenant).workers}
    found = moves(before, after)
    assert set(found) <= concerned
    assert all(change == ({worker}, {"more"}) for change in found.values()), "exactly one worker each"
    assert found
    assert len(concerned) < 20 or 0.1 < len(found) / len(concerned) < 0.9
    for tenant in found:
        index = before.shard(tenant).workers.index(worker)
        assert after.shard(tenant).slot_indexes[index] == len(whole), "at the same position"
        assert after.shard(tenant).slots[index].group == whole.slots[whole.find_index(worker)].group


@pytest.mark.parametrize(("weight", "share"), [(None, 1 / 2), (1.0, 1 / 2), (2.0, 2 / 3), (0.5, 1 / 3)])
def test_it_takes_over_as_many_as_it_weighs(weight: float | None, share: float) -> None:
    whole = fleet(64)
    before = DesignedSharding(whole, 4, 2, key=KEY)
    after = DesignedSharding(whole.share_slot("w7", "more", weight=weight), 4, 2, key=KEY)
    concerned = [tenant for tenant in range(10_000) if 7 in before.slot_indexes(tenant)]
    moved = sum(64 in after.slot_indexes(tenant) for tenant in concerned)
    assert moved / len(concerned) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(("whole", "size", "overlap"), RELIEVED, ids=shape)
def test_with_workers_relieved_no_two_share_more_than_before(whole: Fleet, size: int, overlap: int) -> None:
    """Several for one worker, and one for others: all pairs of all tenants."""
    before = DesignedSharding(whole, size, overlap, key=KEY)
    one, other = before.shard(0).workers[0], before.shard(1).workers[-1]
    more = whole.share_slot(one, "more-1").share_slot(one, "more-2", weight=3.0).share_slot("more-1", "more-3")
    after = DesignedSharding(more.share_slot(other, "more-4") if other != one else more, size, overlap, key=KEY)
    assert not shares_too_much(after)
    shards = [after.shard(tenant) for tenant in range(min(after.capacity, 600))]
    assert most_shared(shards[:200]) <= overlap, "counted in another way"
    for first, second in combinations(range(min(before.capacity, 150)), 2):
        shared = set(shards[first].slot_indexes) & set(shards[second].slot_indexes)
        assert len(shared) <= len(set(before.slot_indexes(first)) & set(before.slot_indexes(second)))
    assert any(index >= len(whole) for shard in shards for index in shard.slot_indexes)


def test_one_more_that_relieves_moves_nobody_from_one_old_worker_to_another() -> None:
    whole = fleet(32).share_slot("w3", "more-1")
    before = DesignedSharding(whole, 4, 2, key=KEY)
    after = DesignedSharding(whole.share_slot("w3", "more-2"), 4, 2, key=KEY)
    found = moves(before, after)
    assert found
    assert all(gained == {"more-2"} and lost < {"w3", "more-1"} for lost, gained in found.values())


def test_a_worker_that_relieved_another_and_is_drained_gives_its_tenants_back() -> None:
    before = DesignedSharding(fleet(32), 4, 2, key=KEY)
    relieved = before.fleet.share_slot("w3", "more")
    after = DesignedSharding(relieved.drain("more"), 4, 2, key=KEY)
    assert moves(before, after) == {}
    three = relieved.share_slot("w3", "other")
    found = moves(DesignedSharding(three, 4, 2, key=KEY), DesignedSharding(three.drain("more"), 4, 2, key=KEY))
    assert {frozenset(lost) for lost, _ in found.values()} == {frozenset({"more"})}, "those of others stay with them"
    assert {worker for _, gained in found.values() for worker in gained} == {"w3", "other"}


def test_a_relieved_worker_that_is_drained_leaves_all_of_its_tenants_to_the_other() -> None:
    before = DesignedSharding(fleet(32), 4, 2, key=KEY)
    relieved = before.fleet.share_slot("w3", "more")
    concerned = {tenant for tenant in range(before.capacity) if "w3" in before.shard(tenant).workers}
    found = moves(before, DesignedSharding(relieved.drain("w3"), 4, 2, key=KEY))
    assert set(found) == concerned
    assert all(change == ({"w3"}, {"more"}) for change in found.values())
    both = DesignedSharding(relieved.drain("w3").drain("more"), 4, 2, key=KEY)
    assert moves(before, both) == {}, "where all are drained, the slot keeps its worker"


def test_replacing_a_relieved_worker_moves_only_those_who_had_it() -> None:
    whole = fleet(32).share_slot("w3", "more")
    before = DesignedSharding(whole, 4, 2, key=KEY)
    after = DesignedSharding(whole.replace(3, "new"), 4, 2, key=KEY)
    assert all(change == ({"w3"}, {"new"}) for change in moves(before, after).values())


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([50_000, 200_000]))
def test_one_worker_more_for_a_large_fleet_moves_few(tenants: int) -> None:
    """Four of 2048: a fifth of a per cent have the worker, and half of them move."""
    whole = fleet(2048)
    before = DesignedSharding(whole, 4, 2, key=KEY)
    after = DesignedSharding(whole.share_slot("w77", "more"), 4, 2, key=KEY)
    moved = 0
    for tenant in range(tenants):
        old, new = before.slot_indexes(tenant), after.slot_indexes(tenant)
        if old != new:
            assert set(old) - set(new) == {77}
            assert set(new) - set(old) == {2048}
            moved += 1
    assert 0 < moved / tenants <= 0.0025
    assert moved / tenants == pytest.approx(0.5 * 4 / 2048, rel=0.2)


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([50_000, 200_000]))
def test_a_spare_worker_in_the_slot_of_another_moves_few(tenants: int) -> None:
    whole = fleet(2048).add(Slot(worker="spare"))
    before = DesignedSharding(whole, 4, 2, key=KEY, design_slot_count=2048)
    after = DesignedSharding(whole.replace_with_spare("w77", "spare"), 4, 2, key=KEY, design_slot_count=2048)
    assert [after.fleet.slots[index].worker for index in after.spare_slots] == ["w77"]
    moved = 0
    for tenant in range(tenants):
        indexes = before.slot_indexes(tenant)
        assert tenant > 20_000 or after.slot_indexes(tenant) == indexes, "nobody has another slot"
        moved += 77 in indexes
    assert 0 < moved / tenants <= 0.0025
    tenant = next(tenant for tenant in range(tenants) if 77 in before.slot_indexes(tenant))
    old, new = set(before.shard(tenant).workers), set(after.shard(tenant).workers)
    assert (old - new, new - old) == ({"w77"}, {"spare"})


def new(name: str, sharding: DesignedSharding) -> list[str]:
    return [f"{name}-{number}" for number in range(len(sharding.fleet))]


@pytest.mark.parametrize(
    ("whole", "size", "overlap"),
    [
        (fleet(8), 4, 2),
        (fleet(16), 4, 2),
        (fleet(3, 3, 3), 3, 1),
        (fleet(2, 2, 2, 2, 2, 2), 3, 1),
        (lattice(2, 2, each=2), 4, 2),
        (lattice(2, 3, each=2), 2, 0),
        (lattice(3, 2, each=2), 3, 1),
    ],
    ids=shape,
)
def test_a_fleet_is_doubled_twice_with_workers_added_between(whole: Fleet, size: int, overlap: int) -> None:
    group = whole.slots[0].group
    first = DesignedSharding(whole, size, overlap, key=KEY)
    more = whole.add(Slot(worker="spare-1", group=group), Slot(worker="spare-2", group=group))
    second = DesignedSharding(more, size, overlap, key=KEY, design_slot_count=len(whole)).double(
        new("second", DesignedSharding(more, 1, 0, key=KEY))
    )
    more = second.fleet.add(Slot(worker="spare-3", group=group))
    wider = DesignedSharding(
        more, size, overlap, key=KEY, design_slot_count=second.design_slot_count, doubling_starts=second.doubling_starts
    )
    third = wider.double(new("third", wider))
    assert (second.design_slot_count, second.doubling_starts) == (len(whole), (len(whole) + 2,))
    assert (third.design_slot_count, third.doubling_starts) == (len(whole), (len(whole) + 2, 2 * len(whole) + 5))
    for before, after in ((first, second), (second, wider), (wider, third)):
        assert [after.shard(tenant) for tenant in range(before.capacity)] == [
            before.shard(tenant) for tenant in range(before.capacity)
        ]
    assert first.capacity < second.capacity == wider.capacity < third.capacity
    spare = {third.fleet.slots[index].worker for index in third.spare_slots}
    assert {"spare-1", "spare-2", "spare-3"} <= spare
    assert len(spare) == 4 * len(first.spare_slots) + 2 * 2 * 2 + 1 * 2
    assert not shares_too_much(third)
    for tenant in range(0, third.capacity, max(1, third.capacity // 500)):
        assert len(set(third.shard(tenant).workers)) == size
        assert spread(third.shard(tenant), third.fleet) <= 1


@pytest.mark.parametrize(
    ("whole", "size", "overlap", "kind"),
    [(fleet(16), 4, 2, Quadruples), (fleet(5, 5, 5), 3, 1, Parity), (fleet(*[3] * 6), 3, 1, Families)],
    ids=shape,
)
def test_a_design_that_is_made_anew_is_the_one_that_was_doubled(
    whole: Fleet, size: int, overlap: int, kind: type
) -> None:
    once = DesignedSharding(whole, size, overlap, key=KEY)
    once = once.double(new("twin", once))
    twice = once.double(new("twin of twin", once))
    assert isinstance(twice.design, kind)
    again = DesignedSharding(
        twice.fleet, size, overlap, key=KEY, design_slot_count=len(whole), doubling_starts=[len(whole), 2 * len(whole)]
    )
    assert (again.capacity, again.spare_slots, again.doubling_starts) == (
        twice.capacity,
        twice.spare_slots,
        twice.doubling_starts,
    )
    assert again.fleet == twice.fleet
    assert all(again.slot_indexes(tenant) == twice.slot_indexes(tenant) for tenant in range(twice.capacity))
    assert [again.shard(tenant) for tenant in range(50)] == [twice.shard(tenant) for tenant in range(50)]
    other = DesignedSharding(twice.fleet, size, overlap, key=KEY)
    assert other.capacity == twice.capacity
    assert any(other.slot_indexes(tenant) != twice.slot_indexes(tenant) for tenant in range(20)), "else everybody moves"


def test_whoever_is_relieved_stays_so_when_the_fleet_is_doubled() -> None:
    before = DesignedSharding(fleet(16).share_slot("w3", "more"), 4, 2, key=KEY)
    after = before.double(new("twin", before))
    assert moves(before, after) == {}
    assert after.fleet.slot_sharers() == {3: [3, 16], 20: [20, 33]}
    assert not shares_too_much(after)
    served = {index for tenant in range(after.capacity) for index in after.slot_indexes(tenant)}
    assert served == set(range(34))


@pytest.mark.parametrize(
    ("first", "twins", "message"),
    [
        (16, (15,), "twins from slot 15 on: expected 16 to 48"),
        (16, (49,), "twins from slot 49 on: expected 16 to 48"),
        (16, (16, 33), "twins from slot 33 on: expected 32 to 32"),
        (16, (-1,), "twins from slot -1 on: expected 16 to 48"),
        (20, (18,), "twins from slot 18 on: expected 20 to 44"),
    ],
)
def test_twins_come_after_those_that_they_double_and_there_is_one_for_each(
    first: int, twins: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        DesignedSharding(fleet(64), 4, 2, key=KEY, design_slot_count=first, doubling_starts=twins)


@pytest.mark.parametrize("twins", [(16, 16), (32, 16), (16, 20), (20, 30)])
def test_twins_of_a_second_doubling_come_after_those_of_the_first(twins: tuple[int, ...]) -> None:
    """Else a worker is two workers of the design, and shards share more than promised."""
    with pytest.raises(InvalidValue, match="expected"):
        DesignedSharding(fleet(128), 4, 2, key=KEY, design_slot_count=16, doubling_starts=twins)


def test_twins_are_in_the_groups_of_those_that_they_double() -> None:
    """Else shards are no longer spread over the groups."""
    whole = fleet(4, 4).add(*(Slot(worker=f"twin-{number}", group=("az0",)) for number in range(8)))
    with pytest.raises(InvalidValue, match="expected"):
        DesignedSharding(whole, 2, 0, key=KEY, design_slot_count=8, doubling_starts=(8,))


def test_twins_of_a_design_that_cannot_be_doubled_are_refused() -> None:
    none = [(fleet(8), 2, 1), (fleet(4, 4), 2, 1), (fleet(*[5] * 5), 3, 1), (fleet(3, 3, 3), 2, 1)]
    for whole, size, overlap in none:
        twice = whole.double([f"twin-{number}" for number in range(len(whole))])
        with pytest.raises(InvalidValue, match="cannot be doubled in place"):
            DesignedSharding(twice, size, overlap, key=KEY, design_slot_count=len(whole), doubling_starts=[len(whole)])


@pytest.mark.parametrize(("workers", "size", "overlap"), [(12, 4, 0), (16, 4, 2), (40, 5, 0)])
def test_past_the_capacity_it_is_always_the_capacity_that_is_told(workers: int, size: int, overlap: int) -> None:
    """Also where some larger overlap has no design, and where the fleet was doubled."""
    sharding = DesignedSharding(fleet(workers), size, overlap, key=KEY)
    for each in (sharding, sharding.double([f"twin-{number}" for number in range(workers)])):
        with pytest.raises(CapacityExhausted, match="add workers"):
            each.shard(each.capacity)


def test_large_shards_that_share_all_but_two_are_made_at_once_and_not_doubled_past_a_dozen() -> None:
    sharding = DesignedSharding(fleet(64), 30, 28, key=KEY)
    assert sharding.capacity == 2**29
    with pytest.raises(InvalidValue, match="doubled shards of 30 workers: expected at most 12"):
        sharding.double([f"twin-{number}" for number in range(64)])


def test_a_design_goes_to_another_process_as_it_is() -> None:
    whole = fleet(16).double([f"twin-{number}" for number in range(16)]).share_slot("w3", "more")
    sharding = DesignedSharding(whole, 4, 2, key=KEY, design_slot_count=16, doubling_starts=[16])
    twin = pickle.loads(pickle.dumps(sharding))
    assert [twin.shard(tenant) for tenant in range(200)] == [sharding.shard(tenant) for tenant in range(200)]
    assert pickle.loads(pickle.dumps(Layout.create(fleet(16), 4, 2, key=KEY))) == Layout.create(
        fleet(16), 4, 2, key=KEY
    )

"""A plan names exactly those who move, before anybody does."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CapacityExhausted
from holdfast.shards import DesignedSharding, Fleet, HashedSharding, Layout, Move, NumberedTenant, Shard, Slot, plan
from holdfast.shards.batch import BatchSharding
from tests.table import sampled

KEY = b"a secret of sixteen bytes or more"
MAX_TENANTS = pytest.mark.parametrize("tenants", sampled([200_000, 1_000_000]))


class Table:
    """Shards as somebody wrote them down; counts how often it is asked."""

    def __init__(self, shards: Mapping[str, tuple[str, ...]]) -> None:
        self.shards = shards
        self.asked = 0

    def shard(self, tenant: str) -> Shard:
        self.asked += 1
        workers = self.shards[tenant]
        return Shard(tuple(range(len(workers))), tuple(Slot(worker=worker) for worker in workers))


class Shards:
    """Shards as they are."""

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        self.shards = shards

    def shard(self, tenant: str) -> Shard:
        return self.shards[tenant]


LIVE = (Slot(worker="a"), Slot(worker="b"))
shards = st.lists(st.sampled_from("abcdef"), max_size=5, unique=True).map(tuple)
tables = st.dictionaries(st.text(max_size=3), st.tuples(shards, shards), max_size=12)


@given(tables)
def test_who_moves_is_who_gets_another_worker(both: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    """Against going through all of them. In which order a shard has its workers is nothing to move for."""
    old = Table({tenant: before for tenant, (before, _) in both.items()})
    new = Table({tenant: after for tenant, (_, after) in both.items()})
    found = plan(old, new, both)
    moving_tenants = [tenant for tenant, (before, after) in both.items() if set(before) != set(after)]
    assert found.moving_tenants == moving_tenants
    assert found.tenants == len(both)
    assert (found.degraded, found.down) == (0, [])
    assert found.moving_share == (len(moving_tenants) / len(both) if both else 0.0)
    changed = [
        max(sum(one not in after for one in before), sum(one not in before for one in after))
        for before, after in both.values()
    ]
    assert found.tenants_by_workers_changed == tuple(
        changed.count(number) for number in range(max(changed, default=0) + 1)
    )
    moves = list(found.moves())
    assert [move.tenant for move in moves] == moving_tenants
    for move in moves:
        before, after = map(set, both[move.tenant])
        assert len(move.leaves) == len(set(move.leaves))
        assert (set(move.leaves), set(move.joins)) == (before - after, after - before)
        assert (before - set(move.leaves)) | set(move.joins) == after


def test_a_plan_of_nobody_moves_nobody() -> None:
    found = plan(Table({}), Table({}), list[str]())
    assert (found.tenants, found.moving_share, found.tenants_by_workers_changed, list(found.moves())) == (
        0,
        0.0,
        (0,),
        [],
    )


def test_who_has_a_drained_worker_is_said_to_be_short_of_one() -> None:
    """In the new sharding, whether they move or not; and once, however many of its workers are."""
    before = Fleet.from_workers(f"w{number}" for number in range(16))
    after = before.drain("w3").drain("w5")
    old, new = (DesignedSharding(fleet, 4, 2, key=KEY) for fleet in (before, after))
    short = [tenant for tenant in range(140) if {"w3", "w5"} & {*new.shard(tenant).workers}]
    assert 0 < len(short) < 140
    assert plan(old, new, range(140)).degraded == len(short)
    assert plan(new, old, range(140)).degraded == 0
    assert plan(old, new, range(140)).moving_tenants == []


def test_who_loses_the_last_worker_that_is_not_drained_is_said_to_be_down() -> None:
    """In the order they came, whether they move or not."""
    before = Fleet.from_workers(f"w{number}" for number in range(16))
    sharding = DesignedSharding(before, 4, 2, key=KEY)
    lost = sharding.shard(7).workers
    after = before
    for worker in lost[:-1]:
        after = after.drain(worker)
    almost, old = DesignedSharding(after, 4, 2, key=KEY), sharding
    assert plan(old, almost, range(140)).down == [], "one is left"
    new = DesignedSharding(after.drain(lost[-1]), 4, 2, key=KEY)
    assert plan(old, new, range(140)).down == plan(almost, new, reversed(range(140))).down == [7]
    assert plan(new, new, range(140)).down == [], "they were before"
    assert plan(new, old, range(140)).down == []
    nobody = before
    for slot in before.slots:
        nobody = nobody.drain(slot.worker)
    everybody = plan(new, DesignedSharding(nobody, 4, 2, key=KEY), [3, 7, 1, 9])
    assert (everybody.down, everybody.degraded) == ([3, 1, 9], 4)


def test_who_moves_to_workers_that_are_drained_is_down_as_well() -> None:
    old = Shards({"a": Shard((0, 1), LIVE), "b": Shard((0, 1), LIVE), "c": Shard((0, 1), LIVE)})
    gone = (Slot(worker="c", is_drained=True), Slot(worker="d", is_drained=True))
    new = Shards({"a": Shard((2, 3), gone), "b": Shard((0, 2), (LIVE[0], gone[0])), "c": Shard((0, 1), LIVE)})
    found = plan(old, new, "abc")
    assert (found.moving_tenants, found.down, found.degraded) == (["a", "b"], ["a"], 2)
    found = plan(new, old, "abc")
    assert (found.moving_tenants, found.down, found.degraded) == (["a", "b"], [], 0)


def test_moves_are_worked_out_one_by_one() -> None:
    names = [f"t{number}" for number in range(100)]
    old, new = Table(dict.fromkeys(names, ("a", "b"))), Table(dict.fromkeys(names, ("c", "b")))
    found = plan(old, new, (name for name in names))
    assert old.asked == new.asked == 100, "each tenant is asked for once, and an iterator will do"
    moves = found.moves()
    assert old.asked == 100
    assert next(moves) == Move("t0", ("a",), ("c",))
    assert (old.asked, new.asked) == (101, 101)
    assert next(moves).tenant == "t1"
    assert (old.asked, new.asked) == (102, 102)


def test_a_tenant_that_has_no_shard_in_the_new_one_is_an_error() -> None:
    small, large = (
        DesignedSharding(Fleet.from_workers(f"w{number}" for number in range(size)), 4, 2, key=KEY) for size in (16, 32)
    )
    assert plan(large, small, range(140)).tenants == 140
    with pytest.raises(CapacityExhausted, match="tenant 140 has no shard of its own"):
        plan(large, small, range(141))


def large() -> DesignedSharding:
    """The fleet of the article, and one worker to spare."""
    fleet = Fleet.from_workers(f"w{number}" for number in range(2048)).add(Slot(worker="spare"))
    return DesignedSharding(fleet, 4, 2, key=KEY, design_slot_count=2048)


def moved(
    old: DesignedSharding, new: DesignedSharding, tenants: "np.typing.NDArray[np.int64]"
) -> "np.typing.NDArray[np.int64]":
    """Which tenants get another worker, and how many each, by their names at each position of the shard."""
    numbers: dict[str, int] = {}
    found = []
    for sharding in (old, new):
        names = [numbers.setdefault(slot.worker, len(numbers)) for slot in sharding.fleet.slots]
        found.append(np.array(names)[BatchSharding(sharding).slot_indexes(tenants)])
    different: np.typing.NDArray[np.int64] = (found[0] != found[1]).sum(axis=1)
    return different


def with_fleet(sharding: DesignedSharding, fleet: Fleet) -> DesignedSharding:
    return DesignedSharding(fleet, 4, 2, key=KEY, design_slot_count=2048)


@pytest.mark.no_cover
@MAX_TENANTS
@pytest.mark.parametrize("change", ["relieve", "substitute", "replace", "relieve and drain", "add"])
def test_a_worker_more_or_less_of_2048_moves_at_most_a_quarter_of_a_hundredth(change: str, tenants: int) -> None:
    """Of very many tenants, counted one by one; and each of them changes one worker of its four."""
    before = large()
    fleet = before.fleet
    changed = {
        "relieve": lambda: fleet.share_slot("w77", "new"),
        "substitute": lambda: fleet.replace_with_spare("w77", "spare"),
        "replace": lambda: fleet.replace(77, "new"),
        "relieve and drain": lambda: fleet.share_slot("w77", "new").drain("w77"),
        "add": lambda: fleet.add(Slot(worker="new")),
    }[change]()
    after = with_fleet(before, changed)
    different = moved(before, after, np.arange(tenants, dtype=np.int64))
    moving_tenants = np.flatnonzero(different)
    assert len(moving_tenants) / tenants <= 0.0025
    assert different.max(initial=0) == (0 if change == "add" else 1)
    having = tenants * 4 // 2048
    least, most = {"add": (0, 0), "relieve": (0.435 * having, 0.563 * having)}.get(change, (having, having + 1))
    assert least <= len(moving_tenants) <= most, "the tenants of one worker; half of them, if it is shared"
    # And a plan says the same, of some of them.
    first = tenants // 50
    some = [*range(first), *map(int, moving_tenants[-20:])]
    found = plan(before, after, some)
    assert found.moving_tenants == [*map(int, moving_tenants[moving_tenants < first]), *map(int, moving_tenants[-20:])]
    assert found.tenants_by_workers_changed == (
        (len(some),) if change == "add" else (len(some) - len(found.moving_tenants), len(found.moving_tenants))
    )
    for move in found.moves():
        assert move.leaves == ("w77",)
        assert move.joins == (("spare",) if change == "substitute" else ("new",))


@pytest.mark.no_cover
@MAX_TENANTS
def test_a_worker_that_relieved_and_is_taken_away_moves_only_its_own(tenants: int) -> None:
    every = np.arange(tenants, dtype=np.int64)
    before = with_fleet(large(), large().fleet.share_slot("w77", "new"))
    after = with_fleet(before, before.fleet.drain("new"))
    different = moved(before, after, every)
    assert 0 < np.count_nonzero(different) / tenants <= 0.0012
    assert not moved(large(), after, every).any(), "and all is as it was before it came"


@pytest.mark.no_cover
@MAX_TENANTS
def test_doubling_2048_moves_nobody(tenants: int) -> None:
    every = np.arange(tenants, dtype=np.int64)
    before = large()
    after = before.double([f"new-{number}" for number in range(len(before.fleet))])
    assert not moved(before, after, every).any()
    assert not moved(before, after, before.capacity - 1 - every).any()
    found = plan(before, after, range(5000))
    assert (found.moving_tenants, found.moving_share, found.tenants_by_workers_changed) == ([], 0.0, (5000,))


def layout(size: int) -> Layout:
    zones = {f"az{zone}": [f"az{zone}-{number}" for number in range(25)] for zone in range(4)}
    return Layout.create(Fleet.from_groups(zones), size, size - 2, key=KEY)


def named(tenants: int) -> Iterator[NumberedTenant]:
    return (NumberedTenant(f"tenant-{number}".encode(), number) for number in range(tenants))


def test_another_size_moves_everybody_and_says_so() -> None:
    found = plan(layout(4), layout(3), named(600))
    assert found.moving_share == 1.0
    assert found.moving_tenants == list(named(600))
    assert found.tenants_by_workers_changed[0] == 0
    assert sum(found.tenants_by_workers_changed) == 600
    assert max(map(len, (move.leaves for move in found.moves()))) == len(found.tenants_by_workers_changed) - 1 == 4


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([500, 2000]))
def test_shards_from_names_can_be_planned_as_well(tenants: int) -> None:
    """Rendezvous: one worker that comes moves about its share of tenants, one worker each."""
    fleet = Fleet.from_workers(f"w{number}" for number in range(100))
    names = [f"tenant-{number}" for number in range(tenants)]
    found = plan(HashedSharding(fleet, 4, key=KEY), HashedSharding(fleet.add(Slot(worker="new")), 4, key=KEY), names)
    assert 0.02 < found.moving_share < 0.06
    assert len(found.tenants_by_workers_changed) == 2
    assert {move.joins for move in found.moves()} == {("new",)}

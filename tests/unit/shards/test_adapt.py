"""From a list of workers to the slots that there were: who is still there stays, and only who must moves."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Fleet, Layout, Numbered, Plan, Slot, plan
from holdfast.shards.adapt import adapted

KEY = b"a secret of sixteen bytes or more"
ZONES = ("az0", "az1", "az2")
FIRST = [f"{zone}-{number}" for zone in ZONES for number in range(5)]


def slot(worker: str, *, weight: float = 1.0, host: str | None = None) -> Slot:
    """A worker such as az1-x, in its zone."""
    return Slot(worker=worker, group=(worker.partition("-")[0],), weight=weight, host=host)


def fleet_of(workers: Iterable[str]) -> Fleet:
    return Fleet(slots=tuple(map(slot, workers)))


def layout(*spare: str) -> Layout:
    """Three zones of five, shards of three that share one at the most, and spare workers."""
    first = Layout.of(fleet_of(FIRST), 3, 1, key=KEY)
    return first.with_fleet(first.fleet.add(*map(slot, spare)))


def everybody(of: Layout) -> list[Numbered]:
    return [Numbered(f"tenant-{number}".encode(), number) for number in range(of.capacity)]


def moved(old: Layout, new: Layout) -> Plan[Numbered]:
    return plan(old, new, everybody(old))


def having(of: Layout, worker: str) -> list[Numbered]:
    return [tenant for tenant in everybody(of) if worker in of.shard(tenant).workers]


def workers(of: Layout) -> list[str]:
    return [one.worker for one in of.fleet.slots]


def drained(of: Layout) -> list[str]:
    return [one.worker for one in of.fleet.slots if one.is_drained]


def test_the_same_workers_in_any_order_change_nothing() -> None:
    old = layout("az0-s")
    assert adapted(old, old.fleet) == old
    assert adapted(old, fleet_of(reversed(workers(old)))) == old


def test_a_new_worker_of_the_same_group_takes_the_slot_of_one_that_is_gone() -> None:
    old = layout("az1-s")
    new = adapted(old, fleet_of([name for name in workers(old) if name != "az1-2"] + ["az1-new"]))
    assert workers(new) == [("az1-new" if name == "az1-2" else name) for name in workers(old)]
    assert drained(new) == []
    change = moved(old, new)
    assert list(change.movers) == having(old, "az1-2")
    assert len(change.movers) == 5
    assert {(move.leaves, move.joins) for move in change.moves()} == {(("az1-2",), ("az1-new",))}


def test_a_spare_worker_of_the_same_group_takes_it_where_there_is_no_new_one() -> None:
    old = layout("az0-s", "az1-s")
    new = adapted(old, fleet_of([name for name in workers(old) if name != "az1-2"] + ["az0-new"]))
    swapped = {"az1-2": "az1-s", "az1-s": "az1-2"}
    assert workers(new) == [swapped.get(name, name) for name in workers(old)] + ["az0-new"]
    assert drained(new) == ["az1-2"]
    change = moved(old, new)
    assert list(change.movers) == having(old, "az1-2")
    assert {(move.leaves, move.joins) for move in change.moves()} == {(("az1-2",), ("az1-s",))}
    assert [new.fleet.slots[place].worker for place in new.spare] == ["az0-s", "az1-2", "az0-new"]


def test_where_there_is_neither_the_slot_stays_empty_and_nobody_moves() -> None:
    old = layout("az0-s")
    new = adapted(old, fleet_of([name for name in workers(old) if name != "az1-2"] + ["az0-new"]))
    assert workers(new) == [*workers(old), "az0-new"]
    assert drained(new) == ["az1-2"]
    change = moved(old, new)
    assert (list(change.movers), change.short) == ([], 5)


def test_slots_with_tenants_get_the_new_workers_before_spare_ones_do() -> None:
    old = layout("az1-s")
    new = adapted(old, fleet_of([name for name in workers(old) if name not in ("az1-2", "az1-s")] + ["az1-new"]))
    assert new.fleet.slots[7] == slot("az1-new")
    assert drained(new) == ["az1-s"]
    both = [name for name in workers(old) if name not in ("az1-2", "az1-s")] + ["az1-new", "az1-more"]
    assert workers(adapted(old, fleet_of(both))) == [*workers(new)[:15], "az1-more"]


def test_a_slot_of_an_isolated_tenant_comes_before_a_spare_one_that_is_older() -> None:
    old = layout("az1-s", "az1-t").isolate(b"tenant-3", 1).isolate(b"tenant-4", 1).release(b"tenant-3")
    assert old.shard(Numbered(b"tenant-4", 4)).workers == ("az1-t",)
    new = adapted(old, fleet_of([*FIRST, "az1-new"]))
    assert new.shard(Numbered(b"tenant-4", 4)).workers == ("az1-new",)
    assert drained(new) == ["az1-s"]


def test_a_spare_worker_that_is_gone_moves_nobody_and_takes_nobodys_place() -> None:
    old = layout("az1-s", "az1-t")
    new = adapted(old, fleet_of([name for name in workers(old) if name not in ("az1-2", "az1-s")]))
    assert new.fleet.slots[7].worker == "az1-t"
    assert drained(new) == ["az1-s", "az1-2"]


def test_a_spare_worker_takes_one_place_only() -> None:
    old = layout("az1-s")
    new = adapted(old, fleet_of([name for name in workers(old) if name not in ("az1-2", "az1-3")]))
    assert [one.worker for one in new.fleet.slots[7:9]] == ["az1-s", "az1-3"]
    assert drained(new) == ["az1-3", "az1-2"]
    assert moved(old, new).short == 5


def test_workers_that_no_slot_needs_are_spare_also_in_a_new_zone() -> None:
    old = layout()
    new = adapted(old, fleet_of([*FIRST, "az1-new", "az9-new"]))
    assert [new.fleet.slots[place].worker for place in new.spare] == ["az1-new", "az9-new"]
    assert list(moved(old, new).movers) == []


@pytest.mark.parametrize(
    ("moved_to", "told"),
    [
        (("az2",), "worker az1-2 was in az1 and is in az2: give it another name, as a new worker"),
        ((), "worker az1-2 was in az1 and is in none"),
        (("az1", "cell"), "worker az1-2 was in az1 and is in az1 / cell"),
    ],
)
def test_a_worker_in_another_group_than_before_is_refused(moved_to: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        adapted(layout(), Fleet(slots=(Slot(worker="az1-2", group=moved_to),)))


def test_a_worker_that_was_in_no_group_is_refused_in_one() -> None:
    old = Layout.of(Fleet.of("abcdefgh"), 2, 1, key=KEY)
    with pytest.raises(InvalidValue, match="worker c was in no group and is in az1"):
        adapted(old, Fleet(slots=(Slot(worker="c", group=("az1",)),)))


def test_machines_and_weights_are_those_of_the_new_list() -> None:
    old = layout("az0-s")
    slots = [slot(name, weight=2.0, host=f"machine of {name}") for name in workers(old) if name != "az2-4"]
    new = adapted(old, Fleet(slots=(*slots, slot("az2-new", weight=3.0, host="another"))))
    assert new.fleet.slots[:14] == tuple(slots[:14])
    assert new.fleet.slots[14] == slot("az2-new", weight=3.0, host="another")
    assert new.fleet.slots[15] == slots[14]


def test_a_new_worker_may_be_on_the_machine_of_one_that_is_gone() -> None:
    old = layout()
    old = old.with_fleet(Fleet(slots=tuple(slot(name, host=f"machine-{name}") for name in FIRST)))
    new = adapted(
        old,
        Fleet(
            slots=(
                *(slot(name, host=f"machine-{name}") for name in FIRST[2:]),
                slot("az0-x", host="machine-az0-1"),
                slot("az0-y", host="machine-az0-0"),
            )
        ),
    )
    assert workers(new) == ["az0-x", "az0-y", *FIRST[2:]]
    gone = adapted(old, Fleet(slots=(*old.fleet.slots[1:], slot("az1-x", host="machine-az0-0"))))
    assert drained(gone) == ["az0-0"], "it is on no machine, and does not fail with the new one"


def test_whether_machines_may_be_shared_is_as_the_new_list_says() -> None:
    allowed = Fleet(slots=tuple(slot(name, host="one") for name in FIRST), shared_hosts="allow")
    assert adapted(layout(), allowed).fleet.shared_hosts == "allow"
    assert adapted(adapted(layout(), allowed), fleet_of(FIRST)).fleet.shared_hosts == "refuse"


def test_a_worker_that_comes_back_has_its_slot_again() -> None:
    old = layout()
    gone = adapted(old, fleet_of(FIRST[1:]))
    assert drained(gone) == [FIRST[0]]
    assert adapted(gone, fleet_of(FIRST)) == old


def test_a_worker_that_relieves_another_is_replaced_by_new_ones_alone() -> None:
    old = layout("az1-s")
    old = old.with_fleet(old.fleet.relieve("az1-2", "az1-help"))
    left = [name for name in workers(old) if name != "az1-help"]
    new = adapted(old, fleet_of(left))
    assert drained(new) == ["az1-help"]
    assert list(moved(old, new).movers) == having(old, "az1-help"), "whom it relieved has them again"
    new = adapted(old, fleet_of([*left, "az1-new"]))
    assert (new.fleet.slots[-1].worker, new.fleet.slots[-1].relieves) == ("az1-new", "az1-2")
    assert drained(new) == []


def test_whoever_relieved_one_that_is_gone_relieves_the_one_in_its_place() -> None:
    old = layout("az1-s")
    old = old.with_fleet(old.fleet.relieve("az1-2", "az1-help"))
    new = adapted(old, fleet_of([name for name in workers(old) if name != "az1-2"]))
    assert new.fleet.slots[7].worker == "az1-s"
    assert new.fleet.slots[-1].relieves == "az1-s"
    assert {worker for tenant in having(old, "az1-2") for worker in new.shard(tenant).workers} >= {"az1-s"}


def test_a_tenant_on_workers_of_its_own_gets_another_of_them() -> None:
    old = layout("az0-s", "az1-s", "az1-t").isolate(b"tenant-3", 2)
    mine = Numbered(b"tenant-3", 3)
    assert old.shard(mine).workers == ("az0-s", "az1-s")
    left = [name for name in workers(old) if name != "az1-s"]
    assert adapted(old, fleet_of(left)).shard(mine).workers == ("az0-s", "az1-t")
    new = adapted(old, fleet_of([*left, "az1-new"]))
    assert new.shard(mine).workers == ("az0-s", "az1-new")
    assert list(moved(old, new).movers) == [mine]


CHANGES = st.tuples(
    st.lists(st.sampled_from(ZONES), max_size=4),
    st.sets(st.sampled_from([*FIRST, *(f"{zone}-s{number}" for zone in ZONES for number in range(2))]), max_size=12),
    st.lists(st.sampled_from(ZONES), max_size=8),
)


@pytest.mark.no_cover
@given(CHANGES)
def test_as_many_slots_are_filled_as_can_be_and_nobody_else_moves(
    change: tuple[list[str], set[str], list[str]],
) -> None:
    spare_zones, gone, new_zones = change
    seen = Counter[str]()
    spare = []
    for zone in spare_zones:
        spare.append(f"{zone}-s{seen[zone]}")
        seen[zone] += 1
    new = [f"{zone}-new{number}" for number, zone in enumerate(new_zones)]
    old = layout(*spare)
    there = [name for name in workers(old) if name not in gone] + new
    if not there:
        return
    found = adapted(old, fleet_of(there))
    assert {*workers(found)} - {*drained(found)} == {*there}, "who is there gets work, and nobody else"
    replaced = {
        before.worker
        for before, after in zip(old.fleet.slots[:15], found.fleet.slots, strict=False)
        if before.worker != after.worker
    }
    assert replaced <= gone, "who is still there keeps its slot"
    for zone in ZONES:
        lost = [name for name in FIRST if name in gone and name.startswith(zone)]
        helpers = new_zones.count(zone) + sum(name.startswith(zone) for name in spare if name not in gone)
        assert sum(name.startswith(zone) for name in replaced) == min(len(lost), helpers)
    movers = moved(old, found)
    expected = [tenant for tenant in everybody(old) if replaced & {*old.shard(tenant).workers}]
    assert list(movers.movers) == expected
    assert all({*move.leaves} <= gone and {*move.joins} <= {*there} for move in movers.moves())

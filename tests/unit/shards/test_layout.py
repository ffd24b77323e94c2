"""A layout is one value that says who has which workers; a change is another, and moves whom it says."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast.shards import DesignedSharding, Fleet, Layout, NumberedTenant, Plan, Slot, plan
from holdfast.shards.layout import IsolatedTenant, adapt_layout
from tests.table import rows

KEY = b"a secret of sixteen bytes or more"


def zones(*sizes: int) -> Fleet:
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def spare(*names: str) -> tuple[Slot, ...]:
    """Workers such as az1-x, each in its zone."""
    return tuple(Slot(worker=name, group=(name.partition("-")[0],)) for name in names)


def layout() -> Layout:
    """Three zones of five, shards of three that share one at the most; and two more workers in each zone."""
    first = Layout.create(zones(5, 5, 5), 3, 1, key=KEY)
    more = spare(*(f"az{zone}-spare{number}" for zone in range(3) for number in range(2)))
    return first.with_fleet(first.fleet.add(*more))


def everybody(of: Layout) -> list[NumberedTenant]:
    return [NumberedTenant(f"tenant-{number}".encode(), number) for number in range(of.capacity)]


def workers(of: Layout, tenant: NumberedTenant) -> set[str]:
    return set(of.shard(tenant).workers)


def test_a_first_layout_is_made_of_the_whole_fleet() -> None:
    found = Layout.create(zones(5, 5, 5), 3, 1, key=KEY)
    sharding = DesignedSharding(zones(5, 5, 5), 3, 1, key=KEY)
    assert (found.capacity, found.design_slot_count, found.spare_slots) == (25, 15, [])
    assert [found.shard(tenant) for tenant in everybody(found)] == [sharding.shard(number) for number in range(25)]
    with pytest.raises(CapacityExhausted, match="tenant 25 has no shard"):
        found.shard(NumberedTenant(b"tenant-25", 25))


def test_workers_that_are_added_are_spare_and_move_nobody() -> None:
    found = layout()
    assert found.spare_slots == [15, 16, 17, 18, 19, 20]
    assert plan(Layout.create(zones(5, 5, 5), 3, 1, key=KEY), found, everybody(found)).moving_tenants == []


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(layout())


def test_doubling_moves_nobody_and_gives_more_shards() -> None:
    before = layout().isolate(b"tenant-3")
    after = before.double([f"new-{number}" for number in range(len(before.fleet))])
    assert plan(before, after, everybody(before)).moving_tenants == []
    assert after.capacity == 100
    assert after.is_isolated(b"tenant-3")
    again = after.double([f"newer-{number}" for number in range(len(after.fleet))])
    assert plan(after, again, everybody(after)).moving_tenants == []
    assert again.doubling_starts == (21, 42)
    with pytest.raises(InvalidValue, match="cannot be doubled in place"):
        Layout.create(zones(5, 5, 5), 3, 2, key=KEY).double([f"new-{number}" for number in range(15)])


# Isolation.


def test_an_isolated_tenant_has_workers_of_its_own_and_nobody_else_moves() -> None:
    before = layout()
    after = before.isolate(b"tenant-3")
    moves = plan(before, after, everybody(before))
    assert [tenant.number for tenant in moves.moving_tenants] == [3]
    assert moves.tenants_by_workers_changed == (24, 0, 0, 1)
    mine = workers(after, everybody(after)[3])
    assert after.is_isolated(b"tenant-3")
    assert not after.is_isolated(b"tenant-4")
    for tenant in everybody(after):
        assert tenant.number == 3 or not workers(after, tenant) & mine
    assert set(after.spare_slots) == set(before.spare_slots) - set(after.shard(everybody(after)[3]).slot_indexes)


def test_a_tenant_is_isolated_by_its_name_whatever_its_number_is() -> None:
    found = layout().isolate(b"large")
    assert found.shard(NumberedTenant(b"large", 10**9)) == found.shard(NumberedTenant(b"large", 0)), (
        "also past the capacity"
    )


def test_who_is_isolated_is_spread_over_the_groups() -> None:
    found = layout().isolate(b"a")
    assert sorted(slot.group[0] for slot in found.shard(NumberedTenant(b"a", 0)).slots) == ["az0", "az1", "az2"]
    both = found.isolate(b"b")
    assert sorted(slot.group[0] for slot in both.shard(NumberedTenant(b"b", 1)).slots) == ["az0", "az1", "az2"]
    assert not workers(both, NumberedTenant(b"a", 0)) & workers(both, NumberedTenant(b"b", 1))
    assert both.spare_slots == []
    larger = layout().isolate(b"a", 5)
    groups = [slot.group[0] for slot in larger.shard(NumberedTenant(b"a", 0)).slots]
    assert sorted(groups.count(f"az{zone}") for zone in range(3)) == [1, 2, 2]


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_tenant_is_isolated_on_as_many_as_wanted(count: int) -> None:
    found = layout().isolate(b"a", count)
    assert len(workers(found, NumberedTenant(b"a", 0))) == count
    assert len(found.spare_slots) == 6 - count


def test_drained_workers_are_nobodys() -> None:
    before = layout()
    before = before.with_fleet(before.fleet.drain("az0-spare0").drain("az0-spare1").drain("az1-spare0"))
    assert workers(before.isolate(b"a"), NumberedTenant(b"a", 0)) == {"az1-spare1", "az2-spare0", "az2-spare1"}
    with pytest.raises(CapacityExhausted, match=r"3 spare workers for tenant a, and 4 are wanted: add workers"):
        before.isolate(b"a", 4)


def test_workers_that_relieve_others_are_not_spare() -> None:
    before = layout()
    before = before.with_fleet(before.fleet.share_slot("az0-0", "az0-more"))
    assert len(before.spare_slots) == 6
    with pytest.raises(CapacityExhausted, match="6 spare workers"):
        before.isolate(b"a", 7)


def test_without_enough_spare_workers_nobody_is_isolated() -> None:
    with pytest.raises(CapacityExhausted, match="0 spare workers for tenant a, and 3 are wanted"):
        Layout.create(zones(5, 5, 5), 3, 1, key=KEY).isolate(b"a")
    with pytest.raises(CapacityExhausted, match="3 spare workers for tenant b, and 4 are wanted"):
        layout().isolate(b"a").isolate(b"b", 4)


@pytest.mark.parametrize("count", [0, -1])
def test_nobody_is_isolated_on_nothing(count: int) -> None:
    with pytest.raises(InvalidValue, match=f"{count} workers for an isolated tenant: expected 1 or more"):
        layout().isolate(b"a", count)


def test_who_is_isolated_already_is_released_first() -> None:
    with pytest.raises(Conflict, match="tenant a is isolated already"):
        layout().isolate(b"a").isolate(b"a", 1)


def test_a_tenant_that_is_released_is_back_where_it_was_and_nobody_else_moves() -> None:
    before = layout().isolate(b"tenant-3").isolate(b"tenant-7")
    after = before.release(b"tenant-3")
    assert [tenant.number for tenant in plan(before, after, everybody(before)).moving_tenants] == [3]
    assert [tenant.number for tenant in plan(layout(), after, everybody(before)).moving_tenants] == [7]
    assert after.release(b"tenant-7") == layout()
    with pytest.raises(NotFound, match="tenant tenant-3 is not isolated"):
        after.release(b"tenant-3")


def test_what_an_isolated_tenant_has_is_replaced_as_elsewhere() -> None:
    before = layout().isolate(b"tenant-3")
    after = before.with_fleet(before.fleet.replace(before.shard(everybody(before)[3]).slot_indexes[0], "new"))
    assert [tenant.number for tenant in plan(before, after, everybody(before)).moving_tenants] == [3]
    assert "new" in workers(after, everybody(after)[3])


def test_a_design_does_not_take_what_somebody_has_alone() -> None:
    isolated = layout().isolate(b"a")
    with pytest.raises(InvalidValue, match=r"tenant a is isolated on slots that are not spare, .* release it"):
        replace(isolated, design_slot_count=21)
    assert replace(isolated.release(b"a"), design_slot_count=21).capacity == 49


@pytest.mark.parametrize(
    "isolated",
    [
        ((b"a", ()),),
        ((b"a", (15, 15)),),
        ((b"a", (0, 16)),),
        ((b"a", (15, 99)),),
        ((b"a", (-1,)),),
        ((b"a", (15, 16)), (b"b", (16, 17))),
        ((b"a", (15,)), (b"a", (16,))),
    ],
)
def test_slots_are_isolated_that_are_spare_and_of_one_tenant(
    isolated: tuple[tuple[bytes, tuple[int, ...]], ...],
) -> None:
    with pytest.raises(InvalidValue, match=r"tenant [ab] is isolated on slots that are not spare, or not its own"):
        replace(layout(), isolated=tuple(IsolatedTenant(*tenant) for tenant in isolated))
    valid = (IsolatedTenant(b"a", (15, 16)), IsolatedTenant(b"b", (17,)))
    assert replace(layout(), isolated=valid).spare_slots == [18, 19, 20]


@pytest.mark.no_cover
@given(
    st.lists(st.tuples(st.sampled_from([b"tenant-1", b"tenant-2", b"tenant-3", b"b"]), st.integers(0, 3)), max_size=12)
)
def test_whatever_is_isolated_and_released_only_those_move(steps: list[tuple[bytes, int]]) -> None:
    """Exactly, over all tenants; and no worker that somebody has alone is anybody else's."""
    found = layout()
    for name, count in steps:
        try:
            after = found.isolate(name, count) if count else found.release(name)
        except (CapacityExhausted, Conflict, NotFound):
            continue
        everyone = [*everybody(found), NumberedTenant(b"b", 0)]
        moved = plan(found, after, everyone).moving_tenants
        assert moved == [tenant for tenant in everyone if tenant.name == name]
        found = after
        seen = [index for _, indexes in found.isolated for index in indexes]
        assert len(seen) == len(set(seen))
        assert sorted([*seen, *found.spare_slots]) == list(range(15, 21))


# Text.

# Whatever can be printed.
names = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=5)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Fleets of one, two or no dimensions, with everything that a layout may have."""
    dimensions = draw(st.sampled_from([(), (3,), (4,), (2, 2)]))
    cells = [()] if not dimensions else [tuple(f"{axis}" for axis in cell) for cell in _cells(dimensions)]
    per_cell = draw(st.integers(5, 6)) if dimensions else 16
    named = draw(st.lists(names, min_size=len(cells) * per_cell + 9, max_size=len(cells) * per_cell + 9, unique=True))
    pool = iter(named)
    slots = tuple(
        Slot(
            worker=next(pool),
            group=cell,
            weight=draw(st.sampled_from([1.0, 0.1, 1e300])),
            is_drained=draw(st.booleans()),
        )
        for cell in cells
        for _ in range(per_cell)
    )
    hosts: Literal["refuse", "allow"] = draw(st.sampled_from(["refuse", "allow"]))
    size, overlap = draw(
        st.sampled_from([(3, 1), (3, 2), (2, 1), (2, 0), (4, 2)] if len(cells) >= 3 else [(4, 2), (2, 1)])
    )
    found = Layout.create(Fleet(slots=slots, shared_host_policy=hosts), size, overlap, key=draw(st.binary(max_size=40)))
    more = [Slot(worker=next(pool), group=cells[0], host=draw(st.none() | st.just("m-1"))) for _ in range(1)]
    more += [Slot(worker=next(pool), group=cells[-1]) for _ in range(3)]
    found = found.with_fleet(found.fleet.add(*more))
    if draw(st.booleans()):
        found = found.with_fleet(found.fleet.share_slot(slots[0].worker, next(pool)))
    if draw(st.booleans()):
        try:
            found = found.double([f"{worker} twin" for worker in (slot.worker for slot in found.fleet.slots)])
        except InvalidValue:
            assert not found.doubling_starts
    for name in draw(st.lists(st.binary(max_size=6), max_size=3, unique=True)):
        found = found.isolate(name, 1)
    return found


def _cells(dimensions: tuple[int, ...]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for count in dimensions:
        found = [(*cell, number) for cell in found for number in range(count)]
    return found


@pytest.mark.no_cover
@given(layouts())
def test_a_layout_is_the_same_when_it_is_read_again(before: Layout) -> None:
    text = before.to_json()
    after = Layout.from_json(text)
    assert after == before
    assert after.key == before.key
    assert after.to_json() == text
    some = range(0, before.capacity, max(1, before.capacity // 20))
    tenants = [NumberedTenant(b"-%d" % number, number) for number in some]
    tenants += [NumberedTenant(name, 0) for name, _ in before.isolated]
    assert [after.shard(tenant) for tenant in tenants] == [before.shard(tenant) for tenant in tenants]


def written(**changes: Any) -> bytes:
    """The text of a layout, with something else in it; `...` for nothing."""
    found: dict[str, object] = msgspec.json.decode(layout().isolate(b"a").to_json()) | changes
    return msgspec.json.encode({name: value for name, value in found.items() if value is not ...})


def test_the_text_is_json_with_what_is_not_the_default() -> None:
    found = Layout.create(Fleet.from_workers("abcd"), 2, 1, key=b"\xff").to_json()
    assert msgspec.json.decode(found) == {
        "slots": [
            {"worker": worker, "group": [], "weight": 1.0, "host": None, "is_drained": False, "shares_slot_of": None}
            for worker in "abcd"
        ],
        "size": 2,
        "overlap": 1,
        "key": "/w==",
        "design_slot_count": 4,
    }


def test_what_a_later_release_may_add_is_not_in_the_way() -> None:
    assert Layout.from_json(written(remark="of a later release")) == layout().isolate(b"a")


@rows(
    "text",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        layout().to_json()[:-1],
        layout().to_json() + b"}",
        layout().to_json().replace(b"az0-0", b"\xff"),
        layout().to_json().replace(b"az0-0", b"\\ud800"),
        layout().to_json().replace(b'"az0-0"', b'""'),
        layout().to_json().replace(b"az0-0", b"az0-1"),
        written(slots=...),
        written(slots=[]),
        written(slots=[{"worker": "a", "weight": -1.0}]),
        written(slots=[{"worker": "a", "shares_slot_of": "a"}]),
        written(size=...),
        written(size=0),
        written(size="3"),
        written(size=10**30),
        written(overlap=3),
        written(overlap=-1),
        written(design_slot_count=0),
        written(design_slot_count=21),
        written(design_slot_count=22),
        written(key=...),
        written(key="no base 64!"),
        written(doubling_starts=[1]),
        written(doubling_starts=[21]),
        written(isolated=[["YQ==", []]]),
        written(isolated=[["YQ==", [0]]]),
        written(isolated=[["YQ==", [15]], ["YQ==", [16]]]),
        written(isolated=[["YQ==", [15]], ["Yg==", [15]]]),
        written(shared_host_policy="perhaps"),
    ],
)
def test_text_that_is_no_layout_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidValue):
        Layout.from_json(text)


@given(st.binary(max_size=100), st.integers(0, 10_000), st.integers(0, 255))
def test_whatever_is_wrong_with_text_it_is_refused_or_a_layout(text: bytes, index: int, byte: int) -> None:
    """Never another error: neither for any bytes, nor for one that went wrong."""
    good = bytearray(layout().isolate(b"a").to_json())
    good[index % len(good)] = byte
    for some in (text, bytes(good)):
        try:
            found = Layout.from_json(some)
        except InvalidValue:
            continue
        assert Layout.from_json(found.to_json()) == found


def test_machines_that_are_shared_stay_allowed_in_text() -> None:
    slots = tuple(Slot(worker=f"w{number}", host="m-1") for number in range(4))
    before = Layout.create(Fleet(slots=slots, shared_host_policy="allow"), 2, 1, key=KEY)
    assert Layout.from_json(before.to_json()).fleet.shared_host_policy == "allow"
    assert math.comb(4, 2) == before.capacity


def test_new_shards_of_all_workers_take_in_spare_and_relieving_ones_and_leave_out_the_drained() -> None:
    fleet = Fleet.from_workers(f"w{number}" for number in range(16))
    old = replace(Layout.create(fleet, 4, 2, key=KEY), version=3)
    grown = old.with_fleet(
        fleet.add(*(Slot(worker=f"s{number}") for number in range(15))).share_slot("w1", "r").drain("w0")
    )
    new = grown.redesign(3, 1)
    assert (len(new.fleet), new.design_slot_count, new.size, new.overlap, new.version) == (31, 31, 3, 1, 3)
    assert new.key == old.key
    assert "w0" not in {slot.worker for slot in new.fleet.slots}
    assert all(slot.shares_slot_of is None for slot in new.fleet.slots)


def test_new_shards_are_not_made_of_the_workers_of_an_isolated_tenant() -> None:
    spare = Fleet.from_workers(f"w{number}" for number in range(20))
    layout = Layout(fleet=spare, size=4, overlap=2, key=KEY, design_slot_count=16).isolate(b"bad")
    with pytest.raises(Conflict, match="new shards would use the workers of isolated tenants: release bad first"):
        layout.redesign(4, 1)


def test_slots_without_a_worker_are_those_that_are_drained_and_not_relieved() -> None:
    fleet = Fleet.from_workers(f"w{number}" for number in range(20))
    layout = Layout(fleet=fleet.drain("w3").drain("w17"), size=4, overlap=2, key=KEY, design_slot_count=16)
    assert layout.empty_slots == [3], "a spare one is in nobody's shard"
    assert layout.with_fleet(layout.fleet.share_slot("w3", "r")).empty_slots == []
    assert layout.with_fleet(layout.fleet.share_slot("w3", "r").drain("r")).empty_slots == [3]


def test_with_slots_that_are_empty_fewer_bad_tenants_are_survived() -> None:
    fleet = Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(5)] for zone in range(3)})
    full = Layout.create(fleet, 3, 1, key=KEY)
    assert full.attackers_survived == full.sharding.attackers_survived == 2
    for count, survives in ((1, 1), (2, 0), (3, 0), (4, 0)):
        drained = full.fleet
        for slot in fleet.slots[:count]:
            drained = drained.drain(slot.worker)
        assert full.with_fleet(drained).attackers_survived == survives
    alone = Layout.create(Fleet.from_workers("abcd"), 2, 0, key=KEY)
    assert (alone.attackers_survived, alone.with_fleet(alone.fleet.drain("a")).attackers_survived) == (1, 1)
    assert alone.with_fleet(alone.fleet.drain("a").drain("b")).attackers_survived == 0


def test_spare_slots_that_are_drained_are_not_ready() -> None:
    layout = Layout(
        fleet=Fleet.from_workers(f"w{number}" for number in range(20)), size=4, overlap=2, key=KEY, design_slot_count=16
    )
    layout = layout.with_fleet(layout.fleet.drain("w17")).isolate(b"bad", 1)
    assert (layout.spare_slots, layout.live_spare_slots) == ([17, 18, 19], [18, 19])


ZONES = ("az0", "az1", "az2")
FIRST = [f"{zone}-{number}" for zone in ZONES for number in range(5)]


def slot(worker: str, *, weight: float = 1.0, host: str | None = None) -> Slot:
    """A worker such as az1-x, in its zone."""
    return Slot(worker=worker, group=(worker.partition("-")[0],), weight=weight, host=host)


def fleet_of(workers: Iterable[str]) -> Fleet:
    return Fleet(slots=tuple(map(slot, workers)))


def layout_with(*spare: str) -> Layout:
    """Three zones of five, shards of three that share one at the most, and spare workers."""
    first = Layout.create(fleet_of(FIRST), 3, 1, key=KEY)
    return first.with_fleet(first.fleet.add(*map(slot, spare)))


def moved(old: Layout, new: Layout) -> Plan[NumberedTenant]:
    return plan(old, new, everybody(old))


def having(of: Layout, worker: str) -> list[NumberedTenant]:
    return [tenant for tenant in everybody(of) if worker in of.shard(tenant).workers]


def worker_names(of: Layout) -> list[str]:
    return [one.worker for one in of.fleet.slots]


def drained(of: Layout) -> list[str]:
    return [one.worker for one in of.fleet.slots if one.is_drained]


def test_the_same_workers_in_any_order_change_nothing() -> None:
    old = layout_with("az0-s")
    assert adapt_layout(old, old.fleet) == old
    assert adapt_layout(old, fleet_of(reversed(worker_names(old)))) == old


def test_a_new_worker_of_the_same_group_takes_the_slot_of_one_that_is_gone() -> None:
    old = layout_with("az1-s")
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name != "az1-2"] + ["az1-new"]))
    assert worker_names(new) == [("az1-new" if name == "az1-2" else name) for name in worker_names(old)]
    assert drained(new) == []
    change = moved(old, new)
    assert list(change.moving_tenants) == having(old, "az1-2")
    assert len(change.moving_tenants) == 5
    assert {(move.leaves, move.joins) for move in change.moves()} == {(("az1-2",), ("az1-new",))}


def test_a_spare_worker_of_the_same_group_takes_it_where_there_is_no_new_one() -> None:
    old = layout_with("az0-s", "az1-s")
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name != "az1-2"] + ["az0-new"]))
    swapped = {"az1-2": "az1-s", "az1-s": "az1-2"}
    assert worker_names(new) == [swapped.get(name, name) for name in worker_names(old)] + ["az0-new"]
    assert drained(new) == ["az1-2"]
    change = moved(old, new)
    assert list(change.moving_tenants) == having(old, "az1-2")
    assert {(move.leaves, move.joins) for move in change.moves()} == {(("az1-2",), ("az1-s",))}
    assert [new.fleet.slots[index].worker for index in new.spare_slots] == ["az0-s", "az1-2", "az0-new"]


def test_where_there_is_neither_the_slot_stays_empty_and_nobody_moves() -> None:
    old = layout_with("az0-s")
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name != "az1-2"] + ["az0-new"]))
    assert worker_names(new) == [*worker_names(old), "az0-new"]
    assert drained(new) == ["az1-2"]
    change = moved(old, new)
    assert (list(change.moving_tenants), change.degraded) == ([], 5)


def test_slots_with_tenants_get_the_new_workers_before_spare_ones_do() -> None:
    old = layout_with("az1-s")
    new = adapt_layout(
        old, fleet_of([name for name in worker_names(old) if name not in ("az1-2", "az1-s")] + ["az1-new"])
    )
    assert new.fleet.slots[7] == slot("az1-new")
    assert drained(new) == ["az1-s"]
    both = [name for name in worker_names(old) if name not in ("az1-2", "az1-s")] + ["az1-new", "az1-more"]
    assert worker_names(adapt_layout(old, fleet_of(both))) == [*worker_names(new)[:15], "az1-more"]


def test_a_slot_of_an_isolated_tenant_comes_before_a_spare_one_that_is_older() -> None:
    old = layout_with("az1-s", "az1-t").isolate(b"tenant-3", 1).isolate(b"tenant-4", 1).release(b"tenant-3")
    assert old.shard(NumberedTenant(b"tenant-4", 4)).workers == ("az1-t",)
    new = adapt_layout(old, fleet_of([*FIRST, "az1-new"]))
    assert new.shard(NumberedTenant(b"tenant-4", 4)).workers == ("az1-new",)
    assert drained(new) == ["az1-s"]


def test_a_spare_worker_that_is_gone_moves_nobody_and_takes_nobodys_place() -> None:
    old = layout_with("az1-s", "az1-t")
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name not in ("az1-2", "az1-s")]))
    assert new.fleet.slots[7].worker == "az1-t"
    assert drained(new) == ["az1-s", "az1-2"]


def test_a_spare_worker_takes_one_place_only() -> None:
    old = layout_with("az1-s")
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name not in ("az1-2", "az1-3")]))
    assert [one.worker for one in new.fleet.slots[7:9]] == ["az1-s", "az1-3"]
    assert drained(new) == ["az1-3", "az1-2"]
    assert moved(old, new).degraded == 5


def test_workers_that_no_slot_needs_are_spare_also_in_a_new_zone() -> None:
    old = layout_with()
    new = adapt_layout(old, fleet_of([*FIRST, "az1-new", "az9-new"]))
    assert [new.fleet.slots[index].worker for index in new.spare_slots] == ["az1-new", "az9-new"]
    assert list(moved(old, new).moving_tenants) == []


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
        adapt_layout(layout_with(), Fleet(slots=(Slot(worker="az1-2", group=moved_to),)))


def test_a_worker_that_was_in_no_group_is_refused_in_one() -> None:
    old = Layout.create(Fleet.from_workers("abcdefgh"), 2, 1, key=KEY)
    with pytest.raises(InvalidValue, match="worker c was in no group and is in az1"):
        adapt_layout(old, Fleet(slots=(Slot(worker="c", group=("az1",)),)))


def test_machines_and_weights_are_those_of_the_new_list() -> None:
    old = layout_with("az0-s")
    slots = [slot(name, weight=2.0, host=f"machine of {name}") for name in worker_names(old) if name != "az2-4"]
    new = adapt_layout(old, Fleet(slots=(*slots, slot("az2-new", weight=3.0, host="another"))))
    assert new.fleet.slots[:14] == tuple(slots[:14])
    assert new.fleet.slots[14] == slot("az2-new", weight=3.0, host="another")
    assert new.fleet.slots[15] == slots[14]


def test_a_new_worker_may_be_on_the_machine_of_one_that_is_gone() -> None:
    old = layout_with()
    old = old.with_fleet(Fleet(slots=tuple(slot(name, host=f"machine-{name}") for name in FIRST)))
    new = adapt_layout(
        old,
        Fleet(
            slots=(
                *(slot(name, host=f"machine-{name}") for name in FIRST[2:]),
                slot("az0-x", host="machine-az0-1"),
                slot("az0-y", host="machine-az0-0"),
            )
        ),
    )
    assert worker_names(new) == ["az0-x", "az0-y", *FIRST[2:]]
    gone = adapt_layout(old, Fleet(slots=(*old.fleet.slots[1:], slot("az1-x", host="machine-az0-0"))))
    assert drained(gone) == ["az0-0"], "it is on no machine, and does not fail with the new one"


def test_whether_machines_may_be_shared_is_as_the_new_list_says() -> None:
    allowed = Fleet(slots=tuple(slot(name, host="one") for name in FIRST), shared_host_policy="allow")
    assert adapt_layout(layout_with(), allowed).fleet.shared_host_policy == "allow"
    assert adapt_layout(adapt_layout(layout_with(), allowed), fleet_of(FIRST)).fleet.shared_host_policy == "refuse"


def test_a_worker_that_comes_back_has_its_slot_again() -> None:
    old = layout_with()
    gone = adapt_layout(old, fleet_of(FIRST[1:]))
    assert drained(gone) == [FIRST[0]]
    assert adapt_layout(gone, fleet_of(FIRST)) == old


def test_a_worker_that_relieves_another_is_replaced_by_new_ones_alone() -> None:
    old = layout_with("az1-s")
    old = old.with_fleet(old.fleet.share_slot("az1-2", "az1-help"))
    left = [name for name in worker_names(old) if name != "az1-help"]
    new = adapt_layout(old, fleet_of(left))
    assert drained(new) == ["az1-help"]
    assert list(moved(old, new).moving_tenants) == having(old, "az1-help"), "whom it relieved has them again"
    new = adapt_layout(old, fleet_of([*left, "az1-new"]))
    assert (new.fleet.slots[-1].worker, new.fleet.slots[-1].shares_slot_of) == ("az1-new", "az1-2")
    assert drained(new) == []


def test_whoever_relieved_one_that_is_gone_relieves_the_one_in_its_place() -> None:
    old = layout_with("az1-s")
    old = old.with_fleet(old.fleet.share_slot("az1-2", "az1-help"))
    new = adapt_layout(old, fleet_of([name for name in worker_names(old) if name != "az1-2"]))
    assert new.fleet.slots[7].worker == "az1-s"
    assert new.fleet.slots[-1].shares_slot_of == "az1-s"
    assert {worker for tenant in having(old, "az1-2") for worker in new.shard(tenant).workers} >= {"az1-s"}


def test_a_tenant_on_workers_of_its_own_gets_another_of_them() -> None:
    old = layout_with("az0-s", "az1-s", "az1-t").isolate(b"tenant-3", 2)
    mine = NumberedTenant(b"tenant-3", 3)
    assert old.shard(mine).workers == ("az0-s", "az1-s")
    left = [name for name in worker_names(old) if name != "az1-s"]
    assert adapt_layout(old, fleet_of(left)).shard(mine).workers == ("az0-s", "az1-t")
    new = adapt_layout(old, fleet_of([*left, "az1-new"]))
    assert new.shard(mine).workers == ("az0-s", "az1-new")
    assert list(moved(old, new).moving_tenants) == [mine]


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
    old = layout_with(*spare)
    there = [name for name in worker_names(old) if name not in gone] + new
    if not there:
        return
    found = adapt_layout(old, fleet_of(there))
    assert {*worker_names(found)} - {*drained(found)} == {*there}, "who is there gets work, and nobody else"
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
    moving_tenants = moved(old, found)
    expected = [tenant for tenant in everybody(old) if replaced & {*old.shard(tenant).workers}]
    assert list(moving_tenants.moving_tenants) == expected
    assert all({*move.leaves} <= gone and {*move.joins} <= {*there} for move in moving_tenants.moves())

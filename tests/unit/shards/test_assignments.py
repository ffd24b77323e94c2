"""Tenants keep their shards, in every process, until a plan that moves them is applied."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast._clock import SystemClock
from holdfast.shards import Assignments, Fleet, Layout, ShardStore, Slot, StoredLayout
from holdfast.shards import assignments as module
from holdfast.shards.stores import MemoryShardStore
from holdfast.testing import FakeClock

KEY = b"a secret of sixteen bytes or more"
NOTICE = 1.0


def first_layout() -> Layout:
    """Three zones of five, shards of three that share one at the most: 25; and two more workers in each zone."""
    fleet = Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(5)] for zone in range(3)})
    more = [Slot(worker=f"az{zone}-s{number}", group=(f"az{zone}",)) for zone in range(3) for number in range(2)]
    found = Layout.create(fleet, 3, 1, key=KEY)
    return found.with_fleet(fleet.add(*more))


def twins(of: Layout) -> Layout:
    return of.double([f"{slot.worker} twin" for slot in of.fleet.slots])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> MemoryShardStore:
    return MemoryShardStore()


@pytest.fixture
def empty(store: ShardStore, clock: FakeClock) -> Assignments:
    return Assignments(store, clock=clock, refresh_interval=NOTICE)


@pytest.fixture
def assignments(empty: Assignments) -> Assignments:
    """At version 1."""
    empty.apply(empty.plan(first_layout()))
    return empty


@pytest.fixture
def other(assignments: Assignments, store: ShardStore, clock: FakeClock) -> Assignments:
    """Another process, which has looked at what there is."""
    found = Assignments(store, clock=clock, refresh_interval=NOTICE)
    assert found.current.number == 1
    return found


def change(assignments: Assignments, layout: Layout) -> None:
    assignments.apply(assignments.plan(layout))


def replaced(assignments: Assignments, tenant: str, by: str) -> str:
    """Apply a layout in which the first worker of a tenant is another; returns which it was."""
    shard = assignments.find(tenant)
    change(assignments, assignments.layout.with_fleet(assignments.layout.fleet.replace(shard.slot_indexes[0], by)))
    return shard.workers[0]


# Shards.


def test_a_tenant_keeps_its_shard_wherever_it_is_asked_for(
    assignments: Assignments, store: ShardStore, clock: FakeClock
) -> None:
    names = [f"tenant-{number}" for number in range(20)]
    found = {name: assignments.assign(name) for name in names}
    assert len({frozenset(shard.workers) for shard in found.values()}) == 20
    again = Assignments(store, clock=clock)
    assert again.assign_many(reversed(names)) == [found[name] for name in reversed(names)]
    assert again.find("tenant-7") == found["tenant-7"]
    assert again.count() == 20


def test_without_a_clock_it_is_the_machines(store: ShardStore) -> None:
    found = Assignments(store)
    before = SystemClock().wall()
    assert before <= found.apply(found.plan(first_layout())).at <= SystemClock().wall()


def test_without_a_layout_there_are_no_shards(empty: Assignments) -> None:
    for ask in (
        lambda: empty.assign("a"),
        lambda: empty.layout,
        lambda: empty.current,
        lambda: empty.find_suspects(["a"]),
    ):
        with pytest.raises(NotFound, match="no layout of shards yet"):
            ask()
    assert empty.count() == 0
    assert empty.remove(["a"]) == 0


def test_who_only_asks_is_given_nothing(assignments: Assignments) -> None:
    for ask in (
        assignments.find,
        assignments.isolate,
        assignments.release,
        lambda name: assignments.find_previous(name, 9),
    ):
        with pytest.raises(NotFound, match=r"tenant a (has no shard yet|is not isolated)"):
            ask("a")
    assert assignments.count() == 0


@pytest.mark.parametrize("name", ["", "ä", "\udcff", "\0", b"\xff", b"\0", b"", "x" * 500])
def test_a_tenant_has_any_name(assignments: Assignments, name: str | bytes) -> None:
    shard = assignments.assign(name)
    assert assignments.find(name) == shard
    [tenant] = assignments.iter_tenants()
    assert tenant.name == (name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass"))
    assert assignments.isolate(name) != shard
    assert assignments.find_previous(name, 60) == [shard]
    assert [suspect.tenant for suspect in assignments.find_suspects(assignments.find(name).workers)] == [tenant.name]
    assert assignments.release(name) == shard
    assert assignments.remove([name]) == 1


def test_past_the_capacity_nobody_gets_one_and_it_is_said_what_gives_more(assignments: Assignments) -> None:
    assert len(assignments.assign_many(f"t{number}" for number in range(25))) == 25
    with pytest.raises(
        CapacityExhausted,
        match=r"too few shards for 1 more tenant, 0 of 25 are left: .*: allow an overlap of 2, or add workers",
    ):
        assignments.assign_many(["t1", "new"])
    assert assignments.count() == 25
    change(assignments, twins(assignments.layout))
    assert assignments.assign("new").workers


def test_tenants_are_listed_little_by_little(assignments: Assignments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE_SIZE", 4)
    names = sorted(f"t{number}".encode() for number in range(21))
    numbers = dict(zip(sorted(names, reverse=True), range(21), strict=True))
    assignments.assign_many(numbers)
    assert [*assignments.iter_tenants()] == [(name, numbers[name]) for name in names]


def test_who_is_removed_leaves_a_shard_for_the_next(assignments: Assignments) -> None:
    one, _ = assignments.assign_many(["a", "b"])
    assert assignments.remove(["a", "z"]) == 1
    with pytest.raises(NotFound):
        assignments.find("a")
    assert assignments.assign("c") == one


def test_who_is_isolated_is_not_removed(assignments: Assignments, other: Assignments) -> None:
    assignments.assign_many(["a", "b"])
    assignments.isolate("a")
    for one in (assignments, other):
        with pytest.raises(Conflict, match="tenant a is isolated: release it"):
            one.remove(["b", "a"])
    assert assignments.count() == 2
    assignments.release("a")
    assert assignments.remove(["b", "a"]) == 2


# Changes.


def test_a_plan_changes_nothing(assignments: Assignments, store: ShardStore) -> None:
    shard = assignments.assign("a")
    planned = assignments.plan(
        assignments.layout.with_fleet(assignments.layout.fleet.replace(shard.slot_indexes[0], "new"))
    )
    assert [tenant.name for tenant in planned.plan.moving_tenants] == [b"a"]
    assert planned.expected_version == 1
    assert assignments.assign("a") == shard
    assert len(store.list_layouts(0)) == 1
    version = assignments.apply(planned)
    assert (version.number, version.layout) == (2, planned.layout)
    assert assignments.find("a").workers == ("new", *shard.workers[1:])


def test_a_first_layout_moves_nobody(empty: Assignments, store: ShardStore, clock: FakeClock) -> None:
    store.assign([b"a", b"b"], 25)
    planned = empty.plan(first_layout())
    assert (planned.expected_version, planned.plan.tenants, planned.plan.moving_tenants) == (0, 2, [])
    version = empty.apply(planned)
    assert (version.number, version.at, empty.current) == (1, clock.wall(), version)


def test_a_layout_that_has_no_shard_for_somebody_is_not_planned(assignments: Assignments) -> None:
    assignments.assign_many(f"t{number}" for number in range(25))
    with pytest.raises(CapacityExhausted) as raised:
        assignments.plan(replace(assignments.layout, overlap=0))
    assert str(raised.value) == (
        "5 shards for 25 tenants, and a tenant has a number of 5 or more: allow an overlap of 1, or add workers; or "
        "remove tenants that are gone"
    )
    assert "has no shard of its own" in str(raised.value.__cause__), "and which of them was found first"
    assert assignments.current.number == 1


def test_numbers_that_do_not_fit_are_told_though_there_are_few_tenants(assignments: Assignments) -> None:
    """Who is left has a high number, and keeps it."""
    assignments.assign_many(f"t{number}" for number in range(25))
    assignments.remove(f"t{number}" for number in range(24))
    with pytest.raises(CapacityExhausted, match="5 shards for 1 tenant, and a tenant has a number of 5 or more: "):
        assignments.plan(replace(assignments.layout, overlap=0))
    assignments.remove(["t24"])
    assert assignments.assign("new").workers
    assert assignments.plan(replace(assignments.layout, overlap=0)).plan.tenants == 1


@pytest.mark.parametrize("name", ["tenant", b"tenant"])
def test_one_name_in_place_of_many_is_refused(assignments: Assignments, name: Any) -> None:
    for ask in (assignments.assign_many, assignments.remove):
        with pytest.raises(InvalidValue, match=r"tenants b?'tenant': expected several names"):
            ask(name)
    assert assignments.count() == 0


@pytest.mark.parametrize("name", [17, None])
def test_what_is_no_name_is_refused(assignments: Assignments, name: Any) -> None:
    asks: list[Callable[[], object]] = [
        lambda: assignments.assign(name),
        lambda: assignments.assign_many([name]),
        lambda: assignments.find(name),
        lambda: assignments.find_previous(name, 1.0),
        lambda: assignments.remove([name]),
        lambda: assignments.isolate(name),
        lambda: assignments.release(name),
    ]
    for ask in asks:
        with pytest.raises(InvalidValue, match="expected text or bytes"):
            ask()
    assert assignments.count() == 0


def test_who_would_be_left_without_a_worker_is_in_the_plan(assignments: Assignments) -> None:
    assignments.assign_many(["a", "b"])
    fleet = assignments.layout.fleet
    for worker in assignments.find("a").workers:
        fleet = fleet.drain(worker)
    planned = assignments.plan(assignments.layout.with_fleet(fleet))
    assert [tenant.name for tenant in planned.plan.down] == [b"a"]
    assignments.apply(planned)
    assert assignments.find("a").live_workers == ()
    assert assignments.plan(assignments.layout).plan.down == []


def test_a_stale_plan_is_not_applied(assignments: Assignments, other: Assignments) -> None:
    assignments.assign("a")
    planned = other.plan(twins(other.layout))
    replaced(assignments, "a", "new")
    with pytest.raises(Conflict, match=r"at version 2, and 1 was expected.*plan again"):
        other.apply(planned)
    assert assignments.current.number == 2
    other.refresh()
    assert other.apply(other.plan(twins(other.layout))).number == 3
    assert "new" in other.find("a").workers, "what came first is still there"


def test_a_plan_from_a_stale_layout_does_not_undo_what_came_first(assignments: Assignments, other: Assignments) -> None:
    assignments.assign("a")
    stale = other.layout
    replaced(assignments, "a", "new")
    with pytest.raises(Conflict):
        other.plan(twins(stale))


def test_another_process_notices_in_time(assignments: Assignments, other: Assignments, clock: FakeClock) -> None:
    before = other.assign("a")
    replaced(assignments, "a", "new")
    assert "new" in assignments.find("a").workers, "whoever applied it sees it at once"
    clock.advance(NOTICE * 0.99)
    assert other.find("a") == before
    clock.advance(NOTICE * 0.02)
    assert other.find("a") == assignments.find("a") != before


def test_another_process_notices_at_once_when_it_plans(assignments: Assignments, other: Assignments) -> None:
    other.assign("a")
    gone = replaced(assignments, "a", "new")
    with pytest.raises(Conflict, match="at version 2, and 1 was expected"):
        other.plan(other.layout)
    assert other.plan(other.layout).expected_version == 2
    assert "new" in other.find("a").workers
    assert gone not in other.find("a").workers


@pytest.mark.parametrize("tenant", ["a", "b"])
def test_another_process_isolates_and_releases_from_what_there_is(
    assignments: Assignments, other: Assignments, tenant: str
) -> None:
    """At once, when every second counts: not from what it saw last."""
    assignments.assign_many(["a", "b"])
    mine = assignments.isolate("a")
    if tenant == "a":
        assert other.release("a") == assignments.layout.release(b"a").shard(next(iter(assignments.iter_tenants())))
    else:
        assert not set(other.isolate("b").workers) & set(mine.workers)
    assert other.current.number == 3


class CountingStore(MemoryShardStore):
    looked = 0

    def list_layouts(self, after: int) -> list[StoredLayout]:
        self.looked += 1
        return super().list_layouts(after)


def test_who_only_asks_for_shards_looks_for_layouts_no_more_often_than_it_must(clock: FakeClock) -> None:
    store = CountingStore()
    found = Assignments(store, clock=clock, refresh_interval=NOTICE)
    change(found, first_layout())
    before = store.looked
    for _ in range(100):
        found.assign("a")
    assert store.looked == before
    for _ in range(3):
        clock.advance(NOTICE)
        found.assign("a")
        found.assign("b")
    assert store.looked == before + 3


def test_a_clock_that_is_set_does_not_keep_anybody_from_noticing(
    assignments: Assignments, other: Assignments, clock: FakeClock
) -> None:
    other.assign("a")
    clock.jump_wall(-1e6)
    replaced(assignments, "a", "new")
    clock.advance(NOTICE)
    assert "new" in other.find("a").workers


def test_another_process_finds_who_came_after_a_doubling(assignments: Assignments, other: Assignments) -> None:
    assignments.assign_many(f"t{number}" for number in range(25))
    change(assignments, twins(assignments.layout))
    shard = assignments.assign("new")
    assert other.assign("new") == shard


def test_another_process_makes_use_of_the_room_that_a_doubling_made(
    assignments: Assignments, other: Assignments
) -> None:
    """Without waiting until it would have noticed."""
    assignments.assign_many(f"t{number}" for number in range(25))
    change(assignments, twins(assignments.layout))
    shard = other.assign("new")
    assert assignments.find("new") == shard


def test_who_came_between_a_plan_and_its_change_is_not_left_without_a_shard(
    assignments: Assignments, other: Assignments
) -> None:
    """A change to fewer shards is refused, and a process that does not know of it yet gives no number past them."""
    assignments.assign_many(f"t{number}" for number in range(5))
    smaller = assignments.plan(assignments.layout.redesign(3, 0))
    assert smaller.layout.capacity < assignments.layout.capacity
    other.assign_many(f"late-{number}" for number in range(smaller.layout.capacity))
    with pytest.raises(Conflict, match="it was assigned after the plan"):
        assignments.apply(smaller)
    assignments.remove(f"late-{number}" for number in range(smaller.layout.capacity))
    assignments.apply(assignments.plan(smaller.layout))
    room = smaller.layout.capacity - assignments.count()
    with pytest.raises(CapacityExhausted):
        other.assign_many(f"later-{number}" for number in range(room + 1))
    assert [len(shard.workers) for shard in other.assign_many(f"later-{number}" for number in range(room))] == [
        3
    ] * room


def test_an_isolated_tenant_that_was_removed_meanwhile_is_released_all_the_same(
    assignments: Assignments, store: MemoryShardStore
) -> None:
    assignments.assign("a")
    assignments.isolate("a")
    store.remove([b"a"])  # as by a process that looked just before
    spare = len(assignments.layout.spare_slots)
    assert assignments.release("a") is None
    assert len(assignments.layout.spare_slots) > spare


@pytest.mark.parametrize("notice", [-1.0, math.nan])
def test_a_notice_that_is_no_time_is_refused(store: MemoryShardStore, notice: float) -> None:
    with pytest.raises(InvalidValue, match="expected 0 or more"):
        Assignments(store, refresh_interval=notice)


# What was before.


def test_where_a_tenant_was_is_remembered_latest_first(
    assignments: Assignments, other: Assignments, clock: FakeClock
) -> None:
    was = [assignments.assign("a").workers]
    for number in range(3):
        clock.advance(100)
        replaced(assignments, "a", f"new-{number}")
        was.append(assignments.find("a").workers)
    clock.advance(100)
    # The layouts ended 300, 200 and 100 seconds ago.
    for lookback, count in ((99.0, 0), (100.0, 1), (199.0, 1), (200.0, 2), (299.0, 2), (300.0, 3), (1e9, 3)):
        for one in (assignments, other):
            assert [shard.workers for shard in one.find_previous("a", lookback)] == was[-2::-1][:count]


def test_who_has_not_moved_was_nowhere_else(assignments: Assignments, clock: FakeClock) -> None:
    assignments.assign_many(["a", "b"])
    layout = assignments.layout
    stays = next(index for index in range(15) if index not in assignments.find("a").slot_indexes)
    change(assignments, layout.with_fleet(layout.fleet.replace(stays, "new")))
    change(assignments, twins(assignments.layout))
    assert assignments.find_previous("a", 1e9) == []


def test_where_a_tenant_was_twice_is_said_once_and_where_it_is_not_at_all(assignments: Assignments) -> None:
    """There and back, and there again."""
    home = assignments.assign("a")
    away = assignments.isolate("a")
    assert assignments.find_previous("a", 60) == [home]
    assignments.release("a")
    assert assignments.find("a") == home
    assert assignments.find_previous("a", 60) == [away]
    assert assignments.isolate("a") == away
    assert assignments.find_previous("a", 60) == [home]
    assignments.release("a")
    old = replaced(assignments, "a", "new")
    assert [shard.workers for shard in assignments.find_previous("a", 60)] == [home.workers, away.workers]
    assert old in home.workers


def test_a_number_that_older_layouts_had_no_shard_for_was_nowhere(assignments: Assignments) -> None:
    assignments.assign_many(f"t{number}" for number in range(25))
    change(assignments, twins(assignments.layout))
    assignments.assign("late")
    replaced(assignments, "late", "new")
    assert len(assignments.find_previous("late", 1e9)) == 1
    assert assignments.isolate("late").workers
    assert len(assignments.find_previous("late", 1e9)) == 2


def test_what_is_forgotten_is_no_longer_remembered(
    assignments: Assignments, other: Assignments, clock: FakeClock, store: ShardStore
) -> None:
    assignments.assign("a")
    for number in range(3):
        clock.advance(100)
        replaced(assignments, "a", f"new-{number}")
    clock.advance(100)
    now = assignments.find("a")
    assert other.find("a") == now
    assert assignments.delete_old_layouts(250) == 1
    assert len(assignments.find_previous("a", 1e9)) == 2
    assert assignments.delete_old_layouts(0) == 2
    assert assignments.find_previous("a", 1e9) == []
    assert assignments.find("a") == now
    assert Assignments(store, clock=clock).current.number == 4, "what holds is never forgotten"
    replaced(other, "a", "newer")
    clock.advance(NOTICE)
    assert "newer" in assignments.find("a").workers
    with pytest.raises(InvalidValue, match="a lookback of -1 s: expected 0 or more"):
        assignments.delete_old_layouts(-1)


def test_who_forgets_looks_first(assignments: Assignments, other: Assignments, clock: FakeClock) -> None:
    """All that it knew of may be what is forgotten."""
    shard = other.assign("a")
    replaced(assignments, "a", "new")
    clock.advance(NOTICE / 2)
    assert other.delete_old_layouts(0) == 1
    assert other.find("a") == assignments.find("a") != shard


# Isolation and suspicion.


def test_isolating_moves_one_tenant_and_nobody_else(assignments: Assignments, other: Assignments) -> None:
    names = [f"t{number}" for number in range(25)]
    before = dict(zip(names, assignments.assign_many(names), strict=True))
    alone = assignments.isolate("t7")
    after = dict(zip(names, other.assign_many(names), strict=True))
    assert after == before, "another process has not noticed yet"
    other.refresh()
    after = dict(zip(names, other.assign_many(names), strict=True))
    assert {name for name in names if after[name] != before[name]} == {"t7"}
    assert after["t7"] == alone == assignments.find("t7")
    assert all(not set(alone.workers) & set(shard.workers) for name, shard in after.items() if name != "t7")
    with pytest.raises(Conflict, match="isolated already"):
        assignments.isolate("t7")
    assert len(assignments.isolate("t8", 1).workers) == 1
    with pytest.raises(CapacityExhausted, match="2 spare workers for tenant t9, and 3 are wanted"):
        assignments.isolate("t9")
    assert assignments.release("t7") == before["t7"]
    with pytest.raises(NotFound, match="tenant t7 is not isolated"):
        assignments.release("t7")


def test_a_poison_tenant_is_found_isolated_and_found_again(assignments: Assignments) -> None:
    names = [f"t{number}" for number in range(25)]
    assignments.assign_many(names)
    first, *_ = assignments.find_suspects(assignments.find("t7").workers)
    assert (first.tenant, first.score, first.is_likely) == (b"t7", 1.0, True)
    alone = assignments.isolate(first.tenant)
    assert [suspect.tenant for suspect in assignments.find_suspects(alone.workers)] == [b"t7"]
    assert len(assignments.find_suspects(["az0-0", "az1-0"], limit=2)) == 2
    with pytest.raises(NotFound, match="no worker z"):
        assignments.find_suspects(["az0-0", "z"])


# Many at once.


def test_threads_see_the_same_shards_while_layouts_change(assignments: Assignments) -> None:
    """Eight threads ask for the same tenants, and one isolates and releases: nobody gets a third shard."""
    names = [f"t{number}" for number in range(20)]

    def ask(turn: int) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, assignments.assign(name).workers) for name in (*names[turn % 20 :], *names[: turn % 20])]

    def move() -> None:
        for _ in range(20):
            assignments.isolate("t0")
            assignments.release("t0")

    assignments.assign("t0")
    with ThreadPoolExecutor(9) as threads:
        moving = threads.submit(move)
        asked = [entry for some in threads.map(ask, range(80)) for entry in some]
        moving.result()
    assert assignments.count() == 20
    assert assignments.current.number == 41
    home, away = assignments.find("t0").workers, assignments.isolate("t0").workers
    for name in names[1:]:
        assert {workers for asked_name, workers in asked if asked_name == name} == {assignments.find(name).workers}
    assert {workers for name, workers in asked if name == "t0"} <= {home, away}


def test_of_threads_that_change_at_once_each_change_is_kept_or_refused(assignments: Assignments) -> None:
    def turn(number: int) -> int:
        layout = assignments.layout
        try:
            change(assignments, layout.with_fleet(layout.fleet.replace(number, f"new-{number}")))
        except Conflict:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        kept = sum(threads.map(turn, range(8)))
    assert 1 <= kept <= 8
    assert assignments.current.number == 1 + kept


@pytest.mark.no_cover
@settings(max_examples=30)
@given(st.lists(st.sampled_from(["replace", "isolate", "release", "double", "wait", "forget"]), max_size=10))
def test_any_changes_keep_each_tenant_where_the_plans_say(steps: list[str]) -> None:
    """Two processes, in turn: what one did, the other goes on from."""
    store, clock = MemoryShardStore(), FakeClock()
    both = [Assignments(store, clock=clock, refresh_interval=NOTICE) for _ in range(2)]
    change(both[0], first_layout())
    names = [f"t{number}" for number in range(25)]
    expected = dict(zip(names, (shard.workers for shard in both[0].assign_many(names)), strict=True))
    fresh: Iterator[str] = iter(f"new-{number}" for number in range(1000))
    for number, step in enumerate(steps):
        one = both[number % 2]
        one.refresh()
        match step:
            case "replace":
                gone, came = one.layout.fleet.slots[3].worker, next(fresh)
                planned = one.plan(one.layout.with_fleet(one.layout.fleet.replace(3, came)))
                for move in planned.plan.moves():
                    assert (move.leaves, move.joins) == ((gone,), (came,))
                    name = move.tenant.name.decode()
                    expected[name] = tuple(came if worker == gone else worker for worker in expected[name])
                one.apply(planned)
            case "isolate":
                try:
                    expected["t1"] = one.isolate("t1").workers
                except Conflict:
                    assert one.layout.is_isolated(b"t1")
            case "release":
                try:
                    released = one.release("t1")
                    assert released is not None
                    expected["t1"] = released.workers
                except NotFound:
                    assert not one.layout.is_isolated(b"t1")
            case "double":
                planned = one.plan(one.layout.double([next(fresh) for _ in one.layout.fleet.slots]))
                if len(planned.layout.fleet) < 200:
                    assert planned.plan.moving_tenants == []
                    one.apply(planned)
            case "wait":
                clock.advance(10)
            case "forget":
                one.delete_old_layouts(5)
        assert {name: one.find(name).workers for name in names} == expected
    clock.advance(NOTICE)
    for one in both:
        assert {name: one.find(name).workers for name in names} == expected

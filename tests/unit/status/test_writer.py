"""Taking a zone out and bringing it in: what may be done, and that two who do it at once do not harm anybody."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Conflict, EngineUnavailable, InvalidValue, OutcomeUnknown, StatusStore, Zone, ZoneState, ZoneStatus
from holdfast._names import check_workload_name, parse_zone
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import (
    MAX_ATTEMPTS,
    MAX_REASON_CHARACTERS,
    PROVISIONAL_SECONDS,
    StatusWriter,
    find_others_out,
)
from holdfast.testing import FakeClock, seeded
from tests.table import rows

AZ1, AZ2, AZ3 = Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3")
STUCK = 30.0


class Store(MemoryStatusStore):
    """A store in which something else happens right before the next reading or write."""

    def __init__(self) -> None:
        super().__init__()
        self.before_read: list[Callable[[], object]] = []
        self.before_write: list[Callable[[], object]] = []

    def read(self) -> Sequence[ZoneStatus]:
        if self.before_read:
            self.before_read.pop(0)()
        return super().read()

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        if self.before_write:
            self.before_write.pop(0)()
        return super().write(status, expected)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.changes = StatusWriter(self.store, self.clock)

    def take_out(
        self,
        zone: Zone,
        workload: str | None = None,
        *,
        by: str = "somebody",
        reason: str = "test",
        seconds: float | None = None,
        force: bool = False,
    ) -> ZoneStatus:
        return self.changes.take_out(zone, workload, by=by, reason=reason, seconds=seconds, force=force)

    def bring_in(self, zone: Zone, workload: str | None = None) -> ZoneStatus:
        return self.changes.bring_in(zone, workload, by="somebody else", reason="mended")

    @property
    def out(self) -> set[tuple[str, str | None]]:
        return {(each.zone, each.workload) for each in self.store.read() if each.is_out(self.clock.wall())}


@pytest.fixture
def world() -> World:
    return World()


class TestTakingOut:
    def test_it_is_recorded_with_who_when_why_and_for_how_long(self, world: World) -> None:
        written = world.take_out(AZ1, "shop", by="credential 1", reason="  gray failure ", seconds=60)
        now = world.clock.wall()
        assert written == ZoneStatus(
            zone=AZ1,
            workload="shop",
            state=ZoneState.OUT,
            since=now,
            by="credential 1",
            reason="gray failure",
            expires=now + 60,
            version=written.version,
        )
        assert list(world.store.read()) == [written]

    def test_without_an_end_it_is_out_until_it_is_brought_in(self, world: World) -> None:
        assert world.take_out(AZ1).expires is None

    @pytest.mark.parametrize("first", [None, "shop"])
    @pytest.mark.parametrize("second", [None, "shop"])
    def test_a_second_zone_is_refused_while_one_is_out_for_anybody_concerned(
        self, world: World, first: str | None, second: str | None
    ) -> None:
        world.take_out(AZ1, first)
        with pytest.raises(Conflict, match="zone use1-az1 is out, and only one zone of a region may be out"):
            world.take_out(AZ2, second)
        assert world.out == {(AZ1, first)}
        world.take_out(AZ2, second, force=True)
        assert world.out == {(AZ1, first), (AZ2, second)}

    def test_another_workload_may_leave_another_zone(self, world: World) -> None:
        world.take_out(AZ1, "shop")
        world.take_out(AZ2, "cart")
        with pytest.raises(Conflict, match="zones use1-az1, use1-az2 are out"):
            world.take_out(AZ3)

    def test_a_zone_that_is_out_for_one_workload_can_be_taken_out_for_all(self, world: World) -> None:
        world.take_out(AZ1, "shop")
        world.take_out(AZ1)
        assert world.out == {(AZ1, "shop"), (AZ1, None)}

    def test_a_zone_whose_time_is_over_keeps_nobody_from_leaving_another(self, world: World) -> None:
        world.take_out(AZ1, seconds=60)
        world.clock.advance(60)
        world.take_out(AZ2)
        assert world.out == {(AZ2, None)}

    def test_one_that_is_out_already_gets_the_new_reason_and_end_and_stays_out_since_it_first_was(
        self, world: World
    ) -> None:
        first = world.take_out(AZ1, seconds=60)
        world.clock.advance(30)
        renewed = world.take_out(AZ1, reason="still", seconds=60)
        assert (renewed.since, renewed.reason) == (first.since, "still")
        assert renewed.expires == world.clock.wall() + 60
        world.clock.advance(60)
        assert world.take_out(AZ1).since == world.clock.wall(), "it was in for a moment"

    @pytest.mark.parametrize("reason", ["", " \n ", "x" * (MAX_REASON_CHARACTERS + 1)])
    def test_a_reason_is_needed_and_not_a_log(self, world: World, reason: str) -> None:
        for change in (world.changes.take_out, world.changes.bring_in):
            with pytest.raises(InvalidValue, match=f"expected 1 to {MAX_REASON_CHARACTERS}"):
                change(AZ1, by="somebody", reason=reason)
        assert world.take_out(AZ1, reason=f" {'x' * MAX_REASON_CHARACTERS} ").reason == "x" * MAX_REASON_CHARACTERS

    def test_a_collision_is_tried_again_and_too_many_are_told(self, world: World) -> None:
        def renew() -> None:
            [version] = [each.version for each in world.store.read()] or [0]
            MemoryStatusStore.write(world.store, _status(AZ1, out=True), version)

        world.store.before_write = [renew] * (MAX_ATTEMPTS - 1)
        assert world.take_out(AZ1, reason="mine").reason == "mine"
        world.store.before_write = [renew] * MAX_ATTEMPTS
        with pytest.raises(Conflict, match="not at version"):
            world.take_out(AZ1)

    def test_who_sees_a_second_zone_only_afterwards_steps_back(self, world: World) -> None:
        world.store.before_write = [lambda: MemoryStatusStore.write(world.store, _status(AZ2, out=True), 0)]
        with pytest.raises(Conflict, match="zone use1-az2 was taken out at the same time, so use1-az1 was not"):
            world.take_out(AZ1, seconds=60)
        assert world.out == {(AZ2, None)}
        [back] = [each for each in world.store.read() if each.zone == AZ1]
        assert (back.state.is_out, back.expires, back.reason) == (
            False,
            None,
            "another zone was taken out at the same time",
        )

    def test_who_steps_back_leaves_a_zone_that_was_out_before_as_it_was(self, world: World) -> None:
        before = world.take_out(AZ1, reason="since yesterday")
        world.store.before_write = [lambda: MemoryStatusStore.write(world.store, _status(AZ2, out=True), 0)]
        with pytest.raises(Conflict, match="at the same time"):
            world.take_out(AZ1, reason="renewed")
        assert world.out == {(AZ1, None), (AZ2, None)}, "whoever took the second did so by force"
        [kept] = [each for each in world.store.read() if each.zone == AZ1]
        assert (kept.reason, kept.since) == (before.reason, before.since)

    def test_by_force_nobody_steps_back(self, world: World) -> None:
        world.store.before_write = [lambda: MemoryStatusStore.write(world.store, _status(AZ2, out=True), 0)]
        world.take_out(AZ1, force=True)
        assert world.out == {(AZ1, None), (AZ2, None)}

    def test_it_is_out_for_a_moment_before_it_is_certain_that_no_other_zone_is(self, world: World) -> None:
        seen: list[ZoneStatus] = []
        world.store.before_read = [lambda: None, lambda: seen.extend(MemoryStatusStore.read(world.store))]
        world.take_out(AZ1)
        [provisional] = seen
        assert (provisional.state.is_out, provisional.expires) == (True, world.clock.wall() + PROVISIONAL_SECONDS)

    @pytest.mark.parametrize("step", ["second look", "second write"])
    def test_a_store_that_fails_half_way_leaves_the_zone_out_for_a_moment_only(self, world: World, step: str) -> None:
        """Also what a process leaves that dies there."""

        def fail() -> None:
            raise EngineUnavailable("the store is away")

        if step == "second look":
            world.store.before_read = [lambda: None, fail]
        else:
            world.store.before_write = [lambda: None, fail]
        with pytest.raises(OutcomeUnknown, match="perhaps only for 30 s"):
            world.take_out(AZ1)
        assert world.out == {(AZ1, None)}
        world.clock.advance(PROVISIONAL_SECONDS)
        assert world.out == set()

    def test_a_zone_that_is_out_stays_so_if_renewing_it_fails(self, world: World) -> None:
        def fail() -> None:
            raise EngineUnavailable("the store is away")

        world.take_out(AZ1)
        world.store.before_write = [lambda: None, fail]
        with pytest.raises(OutcomeUnknown):
            world.take_out(AZ1, seconds=60)
        world.clock.advance(PROVISIONAL_SECONDS)
        assert world.out == {(AZ1, None)}

    def test_who_steps_back_does_not_revive_the_provisional_status_of_another(self, world: World) -> None:
        """One writer takes a zone out provisionally, a second the same zone, a third another zone; all undo it."""
        first = StatusWriter(world.store, world.clock)
        other = replace(_status(AZ2, out=True), expires=None)

        def second() -> None:
            MemoryStatusStore.write(world.store, other, 0)
            with pytest.raises(Conflict):
                StatusWriter(world.store, world.clock).take_out(AZ1, by="second", reason="test")

        world.store.before_read = [lambda: None, second]
        with pytest.raises(Conflict, match="at the same time"):
            first.take_out(AZ1, by="first", reason="test")
        world.clock.advance(PROVISIONAL_SECONDS)
        assert world.out == {(AZ2, None)}

    def test_what_somebody_took_out_meanwhile_is_left_alone_where_nothing_is_to_be_renewed(self, world: World) -> None:
        mine = world.take_out(AZ1, "shop", by="operator", seconds=60)
        assert world.changes.take_out(AZ1, "shop", by="holdfast", reason="verdict", renew=False) == mine
        assert list(world.store.read()) == [mine]

    def test_a_zone_of_another_region_does_not_stand_in_the_way(self, world: World) -> None:
        world.take_out(AZ1)
        world.take_out(Zone("euw1-az1"))
        with pytest.raises(Conflict, match="zone euw1-az1 is out"):
            world.take_out(Zone("euw1-wl1-az2"), "shop")

    @pytest.mark.parametrize("reason", ["two\nlines", "a\x1b[31mb", "bell\a", "a\u202eb", "a\u2066b"])
    def test_a_reason_is_one_line_that_a_terminal_can_show(self, world: World, reason: str) -> None:
        with pytest.raises(InvalidValue, match="one line of text"):
            world.take_out(AZ1, reason=reason)


class TestBringingIn:
    def test_one_that_is_out_for_another_workload_is_in_for_this_one(self, world: World) -> None:
        world.take_out(AZ1, "cart")
        assert not world.bring_in(AZ1, "shop").state.is_out
        assert world.out == {(AZ1, "cart")}

    def test_what_is_out_for_single_workloads_stays_so_when_it_comes_in_for_all(self, world: World) -> None:
        world.take_out(AZ1)
        world.take_out(AZ1, "shop")
        assert not world.bring_in(AZ1).state.is_out
        assert world.out == {(AZ1, "shop")}

    def test_it_is_in_from_now_on_and_says_who_did_it_and_why(self, world: World) -> None:
        out = world.take_out(AZ1, "shop", seconds=600)
        world.clock.advance(60)
        back = world.bring_in(AZ1, "shop")
        assert (back.state.is_out, back.since, back.by, back.reason) == (
            False,
            world.clock.wall(),
            "somebody else",
            "mended",
        )
        assert back.expires is None
        assert back.version > out.version
        assert world.out == set()

    def test_one_that_is_in_stays_as_it_is(self, world: World) -> None:
        assert world.bring_in(AZ1).version == 0
        assert list(world.store.read()) == []
        world.take_out(AZ1)
        back = world.bring_in(AZ1)
        world.clock.advance(60)
        assert world.bring_in(AZ1) == back

    def test_one_whose_time_is_over_is_brought_in(self, world: World) -> None:
        world.take_out(AZ1, seconds=60)
        world.clock.advance(60)
        assert world.bring_in(AZ1).reason == "mended"

    def test_one_that_is_out_for_all_cannot_come_in_for_one_workload(self, world: World) -> None:
        world.take_out(AZ1)
        with pytest.raises(Conflict, match="use1-az1 is out for all workloads: it cannot be brought in for shop alone"):
            world.bring_in(AZ1, "shop")
        assert world.out == {(AZ1, None)}

    def test_one_that_is_out_for_some_workloads_says_for_which(self, world: World) -> None:
        world.take_out(AZ1, "shop")
        world.take_out(AZ1, "cart")
        with pytest.raises(Conflict, match="not out for all workloads, but for cart, shop: name the workload"):
            world.bring_in(AZ1)
        assert len(world.out) == 2

    def test_a_collision_is_tried_again_and_too_many_are_told(self, world: World) -> None:
        def renew() -> None:
            [version] = [each.version for each in world.store.read()]
            MemoryStatusStore.write(world.store, _status(AZ1, out=True), version)

        world.take_out(AZ1)
        world.store.before_write = [renew] * (MAX_ATTEMPTS - 1)
        assert not world.bring_in(AZ1).state.is_out
        world.take_out(AZ1)
        world.store.before_write = [renew] * MAX_ATTEMPTS
        with pytest.raises(Conflict):
            world.bring_in(AZ1)


class TestNames:
    @pytest.mark.parametrize("name", ["us-east-1a", "eu-central-1b", "us-gov-west-1a", "ap-southeast-2c"])
    def test_the_name_of_a_zone_is_refused_because_it_means_another_one_elsewhere(self, name: str) -> None:
        with pytest.raises(InvalidValue, match=f"{name} is the name of a zone.*AZ-ID, such as use1-az1"):
            parse_zone(name)

    @pytest.mark.parametrize("name", ["use1-az1", "euc1-az3", "use1-bos1-az1", "usgw1-az1", "az1", "x" * 64])
    def test_what_can_be_an_id_is_one(self, name: str) -> None:
        assert parse_zone(name) == name

    @rows("name", ["", "-az1", "use1/az1", "use1 az1", "use1-az1\n", "x" * 65, "zonë", "é"])
    def test_what_cannot_be_an_id_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidValue, match="expected an AZ-ID such as use1-az1"):
            parse_zone(name)

    @pytest.mark.parametrize("name", ["USE1-AZ1", "use1-AZ1"])
    def test_capital_letters_are_refused_because_no_status_has_them(self, name: str) -> None:
        with pytest.raises(InvalidValue, match=f"zone {name}: AZ-IDs have small letters only; expected use1-az1"):
            parse_zone(name)

    @pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 129, "a\n"])
    def test_what_cannot_be_a_workload_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidValue, match="expected 1 to 128 letters"):
            check_workload_name(name)
        assert check_workload_name("Shop_1.front-end") == "Shop_1.front-end"


class TestTwoAtOnce:
    @pytest.fixture(autouse=True)
    def in_turns(self) -> Iterator[None]:
        """Threads take turns as often as they can: a store in memory is done before they would otherwise."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    @pytest.fixture(params=["memory", "sqlite"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StatusStore]:
        if request.param == "memory":
            yield MemoryStatusStore()
            return
        with SqliteDatabase(tmp_path / "status.sqlite") as database:
            yield SqlStatusStore(database)

    @pytest.mark.no_cover
    def test_there_are_never_two_zones_out_without_force(self, store: StatusStore) -> None:
        """Of those who try at once, one or none succeeds; who is told that it did, did."""
        clock, chance, won = FakeClock(), seeded("two at once"), 0
        with ThreadPoolExecutor(3) as threads:
            for number in range(300):
                workloads = [chance.choice([None, f"shop-{number}"]) for _ in range(3)]
                start = threading.Barrier(3)

                def attempt(
                    zone: Zone, workload: str | None, start: threading.Barrier = start
                ) -> tuple[Zone, str | None] | None:
                    start.wait(STUCK)
                    try:
                        StatusWriter(store, clock).take_out(zone, workload, by=zone, reason="test")
                    except Conflict:
                        return None
                    return zone, workload

                tried = threads.map(attempt, (AZ1, AZ2, AZ3), workloads, timeout=STUCK)
                succeeded = [result for result in tried if result is not None]
                assert {(each.zone, each.workload) for each in store.read() if each.state.is_out} == set(succeeded)
                assert len(succeeded) <= 1
                won += len(succeeded)
                for zone, workload in succeeded:
                    StatusWriter(store, clock).bring_in(zone, workload, by="test", reason="next")
        assert won > 0

    def test_two_who_take_the_same_zone_out_and_one_another_never_leave_two_out(self, store: StatusStore) -> None:
        clock = FakeClock()
        with ThreadPoolExecutor(3) as threads:
            for _ in range(200):
                start = threading.Barrier(3)

                def attempt(zone: Zone, start: threading.Barrier = start) -> Zone | None:
                    start.wait(STUCK)
                    try:
                        StatusWriter(store, clock).take_out(zone, by=zone, reason="test")
                    except Conflict:
                        return None
                    return zone

                told = {zone for zone in threads.map(attempt, (AZ1, AZ1, AZ2), timeout=STUCK) if zone is not None}
                clock.advance(PROVISIONAL_SECONDS)
                out = {each.zone for each in store.read() if each.is_out(clock.wall())}
                assert told == out
                assert len(out) <= 1
                for zone in out:
                    StatusWriter(store, clock).bring_in(zone, by="test", reason="next")

    def test_of_two_who_take_the_same_zone_out_both_may_succeed_and_it_is_out(self, store: StatusStore) -> None:
        clock = FakeClock()
        with ThreadPoolExecutor(2) as threads:
            taken = threads.map(
                lambda by: StatusWriter(store, clock).take_out(AZ1, by=by, reason="test"), ["one", "two"], timeout=STUCK
            )
            assert {each.by for each in taken} == {"one", "two"}
        assert [each.state.is_out for each in store.read()] == [True]


def test_only_what_concerns_the_same_workload_stands_in_the_way() -> None:
    statuses: Sequence[ZoneStatus] = [
        _status(AZ1, out=True),
        _status(AZ2, out=True, workload="shop"),
        _status(AZ3, out=False),
    ]
    assert find_others_out(statuses, AZ3, None, 10.0) == {AZ1, AZ2}
    assert find_others_out(statuses, AZ3, "shop", 10.0) == {AZ1, AZ2}
    assert find_others_out(statuses, AZ3, "cart", 10.0) == {AZ1}
    assert find_others_out(statuses, AZ1, "cart", 10.0) == frozenset()


def _status(zone: Zone, *, out: bool, workload: str | None = None) -> ZoneStatus:
    return ZoneStatus(
        zone=zone,
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=1.0,
        by="somebody",
        reason="test",
    )

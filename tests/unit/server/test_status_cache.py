"""What the server knows of zones: what the store said last, whoever wrote it, and never later than it can be known."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Conflict, EngineError, EngineUnavailable, Zone, ZoneState, ZoneStatus
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server import status_cache as module
from holdfast.server.status_cache import StatusCache
from holdfast.server.status_log import StatusLog
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.wire import StatusChange
from holdfast.testing import FakeClock

STUCK = 30.0
AZ1, AZ2 = Zone("use1-az1"), Zone("use1-az2")
Key: TypeAlias = tuple[Zone, str | None]


class Gate:
    """A place at which a thread can be held, and released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.reached.set()
            assert self._open.wait(STUCK)


class Store(MemoryStatusStore):
    """A store that can be away, that forgets, and that can be slow to say what it has found or done."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self._forgotten: dict[Key, int] = {}
        self.keeps_expired = False
        self.reading = Gate()
        self.written = Gate()

    def read(self) -> Sequence[ZoneStatus]:
        found = super().read()
        self.reading.pass_through()
        if self.away:
            raise EngineUnavailable("the store is away")
        return found

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        if self.away:
            raise EngineUnavailable("the store is away")
        written = super().write(status, expected)
        before = self._forgotten.get((status.zone, status.workload), 0)
        if written.version <= before:  # versions grow, also when it was removed in between
            written = self._statuses[written.zone, written.workload] = replace(written, version=before + 1)
        self.written.pass_through()
        return written

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        if self.keeps_expired:
            raise EngineError("nothing may be cleared away")
        return super().expire(now)

    def forget(self, zone: Zone, workload: str | None = None) -> None:
        gone = self._statuses.pop((zone, workload), None)
        if gone is not None:
            self._forgotten[zone, workload] = gone.version


class Log(StatusLog):
    """A record whose database can be away, or hang."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self.error: Exception | None = None
        self.appending = Gate()

    def append(self, status: ZoneStatus, at: float) -> None:
        self.appending.pass_through()
        if self.error is not None:
            raise self.error
        super().append(status, at)


class World:
    def __init__(self, database: SqliteDatabase) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.log = Log(database)
        self.told: list[StatusChange] = []
        self.statuses = self.again()
        self.threads = ThreadPoolExecutor(4)

    def again(self, refresh_interval: float = 0.01) -> StatusCache:
        """What the server knows after a restart."""
        return StatusCache(
            self.store, self.log, clock=self.clock, refresh_interval=refresh_interval, on_change=self.told.append
        )

    def aside(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self.threads.submit(call, *arguments)

    @property
    def news(self) -> list[tuple[str, str | None, bool, str]]:
        return [
            (each.status.zone, each.status.workload, each.status.state.is_out, each.status.reason) for each in self.told
        ]

    @property
    def recorded(self) -> list[str]:
        return [entry.status.reason for entry in reversed(self.log.list())]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SqliteDatabase(tmp_path / "status.sqlite") as database:
        world = World(database)
        yield world
        for gate in (world.store.reading, world.store.written, world.log.appending):
            gate.open()
        world.threads.shutdown()


def status(
    zone: Zone = AZ1,
    *,
    out: bool = True,
    workload: str | None = None,
    reason: str = "test",
    expires: float | None = None,
) -> ZoneStatus:
    return ZoneStatus(
        zone=zone,
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=5.0,
        by="operator",
        reason=reason,
        expires=expires,
    )


def eventually(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + STUCK
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


class TestWhatIsTold:
    def test_what_others_write_is_known_and_told_with_the_next_reading_and_only_once(self, world: World) -> None:
        written = world.store.write(status(), 0)
        assert world.statuses.find_out_status(AZ1, None) is None
        world.statuses.refresh()
        assert world.statuses.find_out_status(AZ1, None) == written
        assert world.statuses.snapshot().statuses == (written,)
        world.statuses.refresh()
        [change] = world.told
        assert (change.status, change.revision, change.at) == (written, 1, world.clock.wall())
        assert change.run == world.statuses.snapshot().run

    def test_what_is_written_by_hand_again_and_again_is_told_and_recorded_every_time(self, world: World) -> None:
        """It has no version, and the same reason each time: so it gets a version of its own, which grows."""
        by_hand = replace(status(), since=0.0, by="unknown", reason="none was given", version=0)
        for _ in range(3):
            world.store._statuses[AZ1, None] = by_hand
            world.clock.advance(1)
            world.statuses.refresh()
            world.store.forget(AZ1)
            world.clock.advance(1)
            world.statuses.refresh()
        assert [change.status.state.is_out for change in world.told] == [True, False] * 3
        versions = [change.status.version for change in world.told]
        assert versions == sorted(set(versions)), "whoever drops what is older drops none of them"
        assert [entry.status.state.is_out for entry in reversed(world.log.list())] == [True, False] * 3
        assert not world.log.latest()[0].state.is_out

    def test_what_is_written_here_is_known_at_once_and_told_once(self, world: World) -> None:
        written = world.statuses.write(status(), 0)
        assert world.statuses.find_out_status(AZ1, None) == written
        world.statuses.refresh()
        world.statuses.write(status(out=False, reason="mended"), written.version)
        world.statuses.refresh()
        assert world.news == [(AZ1, None, True, "test"), (AZ1, None, False, "mended")]
        assert [change.revision for change in world.told] == [1, 2]
        assert world.recorded == ["test", "mended"]

    def test_a_write_that_the_store_refuses_is_not_told(self, world: World) -> None:
        world.store.write(status(), 0)
        with pytest.raises(Conflict):
            world.statuses.write(status(AZ1, reason="too late"), 0)
        assert world.told == []

    def test_a_reading_that_began_before_a_write_does_not_undo_it(self, world: World) -> None:
        world.store.reading.close()
        reading = world.aside(world.statuses.refresh)
        assert world.store.reading.reached.wait(STUCK)
        written = world.statuses.write(status(), 0)
        world.store.reading.open()
        reading.result(STUCK)
        assert world.statuses.find_out_status(AZ1, None) == written
        world.statuses.refresh()
        assert world.news == [(AZ1, None, True, "test")]

    def test_a_write_that_is_known_late_does_not_undo_a_later_one(self, world: World) -> None:
        world.store.written.close()
        first = world.aside(world.statuses.write, status(reason="first"), 0)
        assert world.store.written.reached.wait(STUCK)
        world.store.written.reached.clear()
        second = world.aside(world.statuses.write, status(out=False, reason="second"), 1)
        assert world.store.written.reached.wait(STUCK)
        world.statuses.refresh()  # knows of both before either of the writers does
        world.store.written.open()
        assert (first.result(STUCK).version, second.result(STUCK).version) == (1, 2)
        assert world.statuses.find_out_status(AZ1, None) is None
        assert world.news == [(AZ1, None, False, "second")]

    def test_what_has_expired_counts_as_in_at_once_and_is_cleared_away_and_told(self, world: World) -> None:
        now = world.clock.wall()
        world.statuses.write(status(expires=now + 60), 0)
        world.clock.advance(60)
        assert world.statuses.find_out_status(AZ1, None) is None
        world.statuses.refresh()
        assert [each.state.is_out for each in world.store.read()] == [False]
        assert [(change.status.state.is_out, change.status.by) for change in world.told] == [
            (True, "operator"),
            (False, "expiry"),
        ]

    def test_what_cannot_be_cleared_away_counts_as_in_all_the_same(self, world: World) -> None:
        world.store.keeps_expired = True
        world.statuses.write(status(expires=world.clock.wall() + 60), 0)
        world.statuses.write(status(workload="shop"), 0)
        world.clock.advance(60)
        world.statuses.refresh()
        assert world.statuses.find_out_status(AZ1, None) is None
        found = world.statuses.find_out_status(AZ1, "shop")
        assert found is not None
        assert found.workload == "shop", "the one that has expired does not hide the one that has not"
        world.store.keeps_expired = False
        world.statuses.refresh()
        assert world.news[-1][2] is False

    def test_what_was_removed_from_the_store_is_told_as_in(self, world: World) -> None:
        written = world.statuses.write(status(), 0)
        world.store.forget(AZ1)
        world.statuses.refresh()
        world.statuses.refresh()
        assert world.statuses.find_out_status(AZ1, None) is None
        assert world.news == [(AZ1, None, True, "test"), (AZ1, None, False, "no longer in the store")]
        assert world.told[-1].status.version > written.version
        assert world.statuses.snapshot().revision == world.told[-1].revision

    def test_what_expired_and_was_removed_by_somebody_else_is_told_the_same_by_every_server(self, world: World) -> None:
        end = world.clock.wall() + 60
        world.statuses.write(status(expires=end), 0)
        other = world.again()
        world.clock.advance(90)
        world.store.forget(AZ1)
        world.statuses.refresh()
        world.clock.advance(1)
        other.refresh()
        first, second = (change.status for change in world.told[-2:])
        assert first == second
        assert (first.state.is_out, first.by, first.since) == (False, "expiry", end)
        assert world.recorded == ["test", "the status has expired (its reason was: test)"]

    def test_what_was_in_and_was_removed_is_nothing_new(self, world: World) -> None:
        world.statuses.write(status(out=False), 0)
        world.store.forget(AZ1)
        world.statuses.refresh()
        assert len(world.told) == 1

    def test_a_zone_can_be_out_for_one_workload_or_for_all(self, world: World) -> None:
        world.store.write(status(AZ1, workload="shop"), 0)
        world.store.write(status(AZ2), 0)
        world.statuses.refresh()
        answers = {
            (zone, workload): world.statuses.find_out_status(zone, workload) is not None
            for zone in (AZ1, AZ2, "use1-az3")
            for workload in (None, "shop", "cart")
        }
        assert {key for key, is_out in answers.items() if is_out} == {
            (AZ1, "shop"),
            (AZ2, None),
            (AZ2, "shop"),
            (AZ2, "cart"),
        }

    @settings(max_examples=50)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["ours", "theirs", "forget", "refresh", "away", "back", "later"]),
                st.sampled_from([AZ1, AZ2]),
                st.sampled_from([None, "shop"]),
                st.booleans(),
                st.sampled_from([None, 30.0]),
            ),
            max_size=25,
        )
    )
    def test_who_follows_what_is_told_knows_what_the_store_says(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Zone, str | None, bool, float | None]]
    ) -> None:
        with SqliteDatabase(tmp_path_factory.mktemp("example") / "status.sqlite") as database:
            world = World(database)
            for step, zone, workload, out, seconds in steps:
                versions = {(each.zone, each.workload): each.version for each in MemoryStatusStore.read(world.store)}
                end = None if seconds is None else world.clock.wall() + seconds
                wanted = status(zone, workload=workload, out=out, expires=end if out else None)
                with suppress(EngineUnavailable):
                    match step:
                        case "ours":
                            world.statuses.write(wanted, versions.get((zone, workload), 0))
                        case "theirs":
                            world.store.write(wanted, versions.get((zone, workload), 0))
                        case "forget":
                            world.store.forget(zone, workload)
                        case "away" | "back":
                            world.store.away = step == "away"
                        case "later":
                            world.clock.advance(20)
                        case _:
                            world.statuses.refresh()
            world.store.away = False
            world.statuses.refresh()
            assert [change.revision for change in world.told] == list(range(1, len(world.told) + 1))
            followed = {(each.status.zone, each.status.workload): each.status for each in world.told}
            now = world.clock.wall()
            stored = {(each.zone, each.workload): each for each in world.store.read()}
            out_now = {key for key, each in stored.items() if each.is_out(now)}
            assert {key for key, each in followed.items() if each.is_out(now)} == out_now
            assert {
                (each.zone, each.workload) for each in world.statuses.snapshot().statuses if each.state.is_out
            } == out_now
            assert {(each.zone, each.workload) for each in world.log.latest() if each.state.is_out} == out_now


class TestWithoutItsStore:
    def test_nothing_is_known_before_the_first_answer_and_nobody_is_sent_away(self, world: World) -> None:
        world.store.away = True
        with pytest.raises(EngineUnavailable, match="has not answered yet"):
            world.statuses.snapshot()
        assert world.statuses.find_out_status(AZ1, None) is None
        assert world.statuses.age is None
        with pytest.raises(EngineUnavailable):
            world.statuses.refresh()
        world.store.away = False
        world.statuses.refresh()
        assert world.statuses.snapshot().statuses == ()

    def test_after_a_restart_what_was_recorded_holds_until_the_store_answers(self, world: World) -> None:
        world.statuses.write(status(), 0)
        world.statuses.write(status(AZ2, workload="shop", out=False), 0)
        world.store.away = True
        world.told.clear()
        again = world.again()
        assert [(each.zone, each.state.is_out) for each in again.snapshot().statuses] == [(AZ1, True), (AZ2, False)]
        assert again.snapshot().age is None
        assert again.find_out_status(AZ1, None) is not None
        with pytest.raises(EngineUnavailable):
            again.refresh()
        assert again.find_out_status(AZ1, None) is not None
        world.store.away = False
        again.refresh()
        assert world.told == [], "the store says the same"
        assert again.age == 0

    def test_what_changed_while_the_server_was_down_is_told_after_its_restart(self, world: World) -> None:
        written = world.statuses.write(status(), 0)
        world.store.write(status(out=False, reason="mended"), written.version)
        world.told.clear()
        world.again().refresh()
        assert world.news == [(AZ1, None, False, "mended")]

    def test_what_is_known_stays_and_grows_old_while_the_store_is_away(self, world: World) -> None:
        world.statuses.write(status(), 0)
        world.statuses.refresh()
        world.store.away = True
        for _ in range(3):
            world.clock.advance(100)
            with pytest.raises(EngineUnavailable):
                world.statuses.refresh()
        assert world.statuses.find_out_status(AZ1, None) is not None
        assert (world.statuses.age, world.statuses.snapshot().age) == (300, 300)
        assert len(world.told) == 1

    def test_a_store_that_comes_and_goes_makes_no_news(self, world: World) -> None:
        world.statuses.write(status(), 0)
        for number in range(20):
            world.store.away = number % 2 == 0
            with suppress(EngineUnavailable):
                world.statuses.refresh()
            assert world.statuses.find_out_status(AZ1, None) is not None
        assert len(world.told) == 1

    def test_a_write_fails_and_changes_nothing_while_the_store_is_away(self, world: World) -> None:
        world.store.away = True
        with pytest.raises(EngineUnavailable):
            world.statuses.write(status(), 0)
        assert (world.statuses.find_out_status(AZ1, None), world.told) == (None, [])


class TestRecording:
    @pytest.mark.parametrize("error", [EngineUnavailable("away"), Conflict("at the same moment"), ValueError("odd")])
    def test_what_cannot_be_recorded_now_is_recorded_later_and_in_order(self, world: World, error: Exception) -> None:
        world.log.error = error
        written = world.statuses.write(status(reason="first"), 0)
        world.statuses.write(status(reason="second"), written.version)
        world.statuses.refresh()
        assert (world.recorded, len(world.told)) == ([], 2)
        world.log.error = None
        world.statuses.refresh()
        assert world.recorded == ["first", "second"]
        world.statuses.refresh()
        assert world.recorded == ["first", "second"]

    def test_what_is_left_is_recorded_also_while_the_store_is_away(self, world: World) -> None:
        world.log.error = EngineUnavailable("away")
        world.statuses.write(status(), 0)
        world.store.away, world.log.error = True, None
        with pytest.raises(EngineUnavailable):
            world.statuses.refresh()
        assert world.recorded == ["test"]

    def test_a_record_that_is_away_for_long_is_complained_of_once(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.log.error = EngineUnavailable("away")
        world.statuses.write(status(), 0)
        for _ in range(5):
            world.statuses.refresh()
        assert (
            sum("cannot record a change of a zone status in the history yet" in message for message in caplog.messages)
            == 1
        )


class TestNobodyWaits:
    def readers_are_answered(self, world: World, *, out: bool) -> None:
        begun = time.monotonic()
        assert (world.statuses.find_out_status(AZ1, None) is not None) is out
        assert any(each.state.is_out for each in world.statuses.snapshot().statuses) is out
        assert world.statuses.age is not None
        assert time.monotonic() - begun < STUCK / 10

    def test_reading_is_answered_while_the_store_hangs(self, world: World) -> None:
        world.statuses.refresh()
        world.statuses.write(status(), 0)
        world.store.reading.close()
        hanging = world.aside(world.statuses.refresh)
        assert world.store.reading.reached.wait(STUCK)
        self.readers_are_answered(world, out=True)
        assert not hanging.done()

    def test_reading_is_answered_while_a_write_hangs(self, world: World) -> None:
        world.statuses.refresh()
        world.store.written.close()
        hanging = world.aside(world.statuses.write, status(), 0)
        assert world.store.written.reached.wait(STUCK)
        self.readers_are_answered(world, out=False)
        world.statuses.refresh()
        self.readers_are_answered(world, out=True)
        assert not hanging.done()

    def test_changes_are_known_and_told_while_the_record_hangs(self, world: World) -> None:
        world.statuses.refresh()
        world.log.appending.close()
        hanging = world.aside(world.statuses.write, status(), 0)
        assert world.log.appending.reached.wait(STUCK)
        self.readers_are_answered(world, out=True)
        world.store.write(status(AZ2, reason="by somebody else"), 0)
        world.aside(world.statuses.refresh).result(STUCK)
        assert [reason for *_, reason in world.news] == ["test", "by somebody else"]
        assert not hanging.done()
        world.log.appending.open()
        hanging.result(STUCK)
        world.statuses.refresh()
        assert world.recorded == ["test", "by somebody else"]


class TestItsThread:
    def test_starting_waits_for_the_first_answer(self, world: World) -> None:
        world.store.write(status(), 0)
        world.statuses.start()
        assert world.statuses.find_out_status(AZ1, None) is not None
        world.store.write(status(AZ2), 0)
        eventually(lambda: world.statuses.find_out_status(AZ2, None) is not None)
        world.statuses.close()
        world.statuses.close()
        world.store.write(status(Zone("use1-az3")), 0)
        assert not any(thread.name == "holdfast-status" and thread.is_alive() for thread in threading.enumerate())

    def test_starting_and_stopping_do_not_wait_for_a_store_that_hangs(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "START_TIMEOUT_SECONDS", 0.05)
        monkeypatch.setattr(module, "STOP_TIMEOUT_SECONDS", 0.05)
        world.store.reading.close()
        begun = time.monotonic()
        world.statuses.start()
        world.statuses.close()
        assert time.monotonic() - begun < STUCK / 10

    @pytest.mark.parametrize("error", [EngineUnavailable("away"), RuntimeError("nobody foresaw this")])
    def test_it_goes_on_whatever_the_store_does_and_says_so_once(
        self, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        caplog.set_level(logging.WARNING, "holdfast.status")
        readings: list[int] = []

        def read() -> Sequence[ZoneStatus]:
            readings.append(1)
            if len(readings) < 5:
                raise error
            return MemoryStatusStore.read(world.store)

        monkeypatch.setattr(world.store, "read", read)
        world.statuses.start()
        eventually(lambda: any("can read zone statuses again" in message for message in caplog.messages))
        world.statuses.close()
        [complaint] = [record for record in caplog.records if "cannot read zone statuses" in record.getMessage()]
        assert str(error) in complaint.getMessage()
        assert (complaint.exc_info is None) is isinstance(error, EngineUnavailable)

    def test_a_store_that_is_closed_while_it_stops_is_no_news(
        self, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "STOP_TIMEOUT_SECONDS", 0.0)
        world.statuses.start()
        world.store.reading.close()
        assert world.store.reading.reached.wait(STUCK)
        world.statuses.close()
        world.store.away = True
        world.store.reading.open()
        eventually(lambda: not any(thread.name == "holdfast-status" for thread in threading.enumerate()))
        assert caplog.messages == []


def test_the_time_of_a_snapshot_is_the_servers(world: World) -> None:
    world.statuses.refresh()
    world.clock.jump_wall(-3600)
    assert world.statuses.snapshot().at == world.clock.wall()
    assert replace(status(), version=1) == world.statuses.write(status(), 0)

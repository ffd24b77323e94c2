"""The loop evaluates alarms, saves their states, and reports what changed."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, Side
from holdfast.alarms import StateValue
from holdfast.alarms.declaration import AlarmDeclaration, AlarmOptions
from holdfast.alarms.engine import SavedAlarms
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import Bin, BinDelta, BinKey
from holdfast.telemetry.history import load_store
from holdfast.telemetry.store import Tier
from holdfast.testing import FakeClock
from holdfast.watch import AlarmChanges, WatchedWorkload, WatchStore, WorkloadWatcher
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarms import MAX_PERIODS, AlarmWatch
from holdfast.watch.store import MIGRATIONS, SUBSYSTEM
from tests.unit.alarms.world import HOME, bins
from tests.unit.alarms.world import ZONES as AZ_IDS
from tests.unit.alarms.world import World as Measured
from tests.unit.watch.world import ZONES, Events, World

START = 1_700_000_400.0


class UnreliableDatabase(SqliteDatabase):
    """A database that is away on demand."""

    is_away = False

    def write(self, work: Callable[[Transaction], Any]) -> Any:
        if self.is_away:
            raise EngineUnavailable("the store is away")
        return super().write(work)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[UnreliableDatabase]:
    with UnreliableDatabase(tmp_path / "watch.sqlite") as opened:
        yield opened


def watch_alarms(world: World, history: SqliteDatabase, bin_seconds: float = 10.0, period: int = 60) -> None:
    """Let a world evaluate alarms, too."""
    options = AlarmOptions(contributors=1, period=period)
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, options=options)
    world.events = Events()
    world.watch = WorkloadWatcher(
        [WatchedWorkload(name="shop", zones=ZONES, alarms=declaration)],
        world.log,
        events=world.events,
        history=history,
        bin_seconds=bin_seconds,
        clock=world.clock,
    )


def get_changes(world: World) -> list[tuple[str, str]]:
    changes = [event for event in world.events.reported if isinstance(event, AlarmChanges)]
    return [(each.name, each.new) for event in changes for each in event.changes]


def test_a_failing_zone_reaches_its_last_alarm_which_is_an_event_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history)
        with caplog.at_level(logging.INFO, logger="holdfast.alarms"):
            world.seconds(182, failing="az2")
        changes = get_changes(world)
        assert ("az2-availability", StateValue.ALARM) in changes
        assert changes[-1] == ("az2-isolated-impact", StateValue.ALARM)
        assert not [name for name, _ in changes if "/" in name]
        records = [each for each in caplog.records if each.name == "holdfast.alarms"]
        warnings = [each.getMessage() for each in records if each.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "alarm az2-isolated-impact changed from OK to ALARM" in warnings[0]
        saved = AlarmStore(world.database).load("shop")
        assert saved.states["az2-isolated-impact"].state_value is StateValue.ALARM
        assert saved.evaluated_at == START + 180

        watch_alarms(world, history)  # a restart
        world.seconds(60, failing="az2")
        assert get_changes(world) == []
        assert AlarmStore(world.database).load("shop").evaluated_at == START + 240


def test_a_watcher_that_stops_between_the_ends_of_two_bins_saves_late_measurements(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history)
        world.seconds(12)
        late = BinDelta(BinKey("shop", HOME, ZONES[0], "late", Side.SERVER), START, 10.0, Bin(count_2xx=7))
        assert world.watch.ingest([late]).late == 7
        world.watch.close()
        stored, _ = load_store(history, "shop", 10.0, [Tier.INSTANCES], (START, START + 10))
        [block] = stored.read_instances("shop", START, 10.0)
        assert 7 in block.counts[:, 0].tolist()


def test_a_zone_is_not_silent_for_the_time_in_which_the_process_was_paused(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history, period=10)
        world.seconds(62)
        silent = frozenset({"az1"})
        world.seconds(10, silent=silent)
        world.clock.advance(45)  # nothing runs
        world.seconds(20, silent=silent)
        assert get_changes(world) == []
        world.seconds(30, silent=silent)
        assert ("az1-silent", StateValue.ALARM) in get_changes(world)


@pytest.mark.parametrize("seconds", [45, 300])
def test_an_alarm_lasts_while_the_process_is_paused(seconds: int, tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history, period=10)
        world.seconds(62, failing="az2")
        before = get_changes(world)
        assert ("az2-isolated-impact", StateValue.ALARM) in before
        world.clock.advance(seconds)
        world.seconds(60, failing="az2")
        assert get_changes(world) == before
        world.seconds(60)
        assert ("az2-isolated-impact", StateValue.OK) in get_changes(world)


def test_bins_that_do_not_fit_mean_no_alarms_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history, bin_seconds=90.0)
    assert "no alarms are evaluated: alarms of workload shop: no bins" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        "update holdfast_alarm_state set value = 'BROKEN'",
        "update holdfast_alarm_evaluation set operations = '[7]'",
        "update holdfast_alarm_evaluation set operations = '['",
    ],
)
def test_damaged_alarms_in_the_store_do_not_stop_the_detection(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history)
        world.seconds(62)
        world.database.write_statement(damage, (), is_idempotent=True)
        watch_alarms(world, history)
        assert "no alarms are evaluated: saved alarms of workload shop cannot be read" in caplog.text
        world.seconds(60, failing="az2")
        assert world.watch.current_verdicts()["shop"].zone == "az2"


def test_states_that_could_not_be_saved_are_saved_later(tmp_path: Path, database: UnreliableDatabase) -> None:
    measured, store = Measured(), AlarmStore(database)
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, store)
    watch.save()
    assert store.load("shop").evaluated_at is None
    database.is_away = True
    for _ in range(3):
        measured.fill(bins(faults=20))
        watch.evaluate(measured.at)
        with pytest.raises(EngineUnavailable):
            watch.save()
    database.is_away = False
    watch.save()
    assert store.load("shop").states["az1-availability"].state_value is StateValue.ALARM
    watch.save()
    assert len(store.list_history("shop", ["az1-availability"])) == 2


def test_alarms_that_were_saved_before_there_were_notes_about_periods_are_loaded(database: UnreliableDatabase) -> None:
    database.migrate(SUBSYSTEM, MIGRATIONS[:3])
    insert = "insert into holdfast_alarm_evaluation (workload, evaluated_at, operations) values ('shop', 60.0, '[]')"
    database.write_statement(insert)
    assert AlarmStore(database).load("shop") == SavedAlarms({}, [], 60.0, [])


def test_while_the_store_is_away_only_the_newest_of_very_many_changes_is_kept(
    database: UnreliableDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.watch.alarms.MAX_UNSAVED", 100)
    measured, store = Measured(), AlarmStore(database)
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, store)
    for minute in range(40):
        measured.fill(bins(faults=20 if minute % 8 < 4 else 0))
        watch.evaluate(measured.at)
    states = watch._engine.states
    assert len(watch._unsaved) <= 100 + len(states)
    watch.save()
    assert store.load("shop").states == states


def test_a_failing_store_of_alarms_does_not_stop_the_detection(tmp_path: Path, database: UnreliableDatabase) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        clock = FakeClock(wall=START)
        store = WatchStore(database)
        declaration = AlarmDeclaration(workload="shop", zones=ZONES)
        workload = WatchedWorkload(name="shop", zones=ZONES, alarms=declaration)
        watch = WorkloadWatcher([workload], store, history=history, clock=clock)
        clock.advance(59.0)
        watch.tick()
        clock.advance(3.0)
        database.is_away = True
        with pytest.raises(EngineUnavailable):
            watch.tick()
        database.is_away = False
        clock.advance(60.0)
        watch.tick()
        assert AlarmStore(database).load("shop").evaluated_at == START + 120


def test_alarms_of_a_workload_that_left_the_settings_are_removed_after_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        world = World(tmp_path, clock=FakeClock(wall=START))
        watch_alarms(world, history)
        world.seconds(62)
        store = AlarmStore(world.database)
        workload = WatchedWorkload(name="cart", zones=ZONES)
        watch = WorkloadWatcher([workload], world.log, history=history, clock=world.clock)
        world.clock.advance(23 * 3600)
        watch.tick()
        assert store.load("shop").states
        with caplog.at_level(logging.INFO, logger="holdfast.watch"):
            world.clock.advance(3700)
            watch.tick()
        assert (store.load("shop").states, store.list_history("shop")) == ({}, [])
        assert "removed the alarms of workload shop: no server has evaluated them for a day" in caplog.text


@pytest.mark.parametrize(
    ("ends", "evaluated"),
    [
        ([60.0, 70.0, 119.0, 120.0], [60.0, 120.0]),
        ([60.0, 240.0], [60.0, 120.0, 180.0, 240.0]),
        ([60.0, 6000.0], [60.0, *(6000.0 - 60 * age for age in range(MAX_PERIODS - 1, -1, -1))]),
        ([6000.0, 60.0, 120.0], [6000.0, 60.0, 120.0]),
        ([60.0, 10.0], [60.0]),
    ],
)
def test_every_period_is_evaluated_once_in_order(
    ends: list[float], evaluated: list[float], database: UnreliableDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured()
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, AlarmStore(database))
    found: list[float] = []
    evaluate = watch._engine.evaluate

    def note(end: float, *arguments: Any, **named: Any) -> Any:
        found.append(end - START)
        return evaluate(end, *arguments, **named)

    monkeypatch.setattr(watch._engine, "evaluate", note)
    for end in ends:
        watch.evaluate(START + end)
    assert found == evaluated


def test_zones_that_are_out_on_purpose_have_no_alarm_on_their_traffic(database: UnreliableDatabase) -> None:
    measured = Measured()
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, AlarmStore(database))
    for _ in range(20):
        measured.fill(bins())
        watch.evaluate(measured.at)
    for _ in range(4):
        measured.fill(bins(AZ_IDS[1:]))
        assert watch.evaluate(measured.at, {AZ_IDS[0]}) == []
    watch.save()
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, AlarmStore(database))
    for _ in range(4):  # after a restart, while the store of zone statuses cannot be read
        measured.fill(bins(AZ_IDS[1:]))
        changes = [each.name for found in watch.evaluate(measured.at, None) for each in found.changes]
        assert set(changes) <= {"use1-az1-silent"}
    warned = []
    for _ in range(3):
        measured.fill(bins(AZ_IDS[1:]))
        news = [each for found in watch.evaluate(measured.at, frozenset()) for each in found.changes]
        warned.append([each.name for each in news if each.has_actions])
    assert warned == [[], [], ["use1-az1-isolated-impact"]]
    assert watch.workload == "shop"

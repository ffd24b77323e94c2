"""The loop evaluates alarms, saves their states, and reports what changed."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, Operation, Side
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import StateValue
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import Bin, BinDelta, BinKey
from holdfast.telemetry.history import load_store
from holdfast.telemetry.store import Tier
from holdfast.testing import FakeClock
from holdfast.watch import AlarmChanges, ChangedAlarm, WatchedWorkload, WatchStore, WorkloadWatcher
from holdfast.watch.alarm_report import AlarmReader
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarm_views import ShownSuppression
from holdfast.watch.alarms import MAX_STEPS, AlarmWatch
from holdfast.watch.pauses import Pause
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
        [WatchedWorkload(name="shop", zones=ZONES, detector="threshold", alarms=declaration)],
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
    assert "no alarms are evaluated: alarms of workload shop: bins of telemetry do not fit in 60 s" in caplog.text


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
    assert [each.history_summary for each in store.list_history("shop", "az1-availability")] == [
        "Alarm updated from OK to ALARM",
        "Alarm updated from INSUFFICIENT_DATA to OK",
        'Alarm "az1-availability" created',
    ]


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
    assert watch._unsaved is not None
    assert len(watch._unsaved.changes) <= len(states)
    assert len(watch._unsaved.configuration) <= len(watch._engine.saved.definitions)
    watch.save()
    assert store.load("shop").states == states


def test_a_failing_store_of_alarms_does_not_stop_the_detection(tmp_path: Path, database: UnreliableDatabase) -> None:
    with SqliteDatabase(tmp_path / "history.sqlite") as history:
        clock = FakeClock(wall=START)
        store = WatchStore(database)
        declaration = AlarmDeclaration(workload="shop", zones=ZONES)
        workload = WatchedWorkload(name="shop", zones=ZONES, detector="threshold", alarms=declaration)
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
        workload = WatchedWorkload(name="cart", zones=ZONES, detector="threshold")
        watch = WorkloadWatcher([workload], world.log, history=history, clock=world.clock)
        world.clock.advance(23 * 3600)
        watch.tick()
        assert store.load("shop").states
        with caplog.at_level(logging.INFO, logger="holdfast.alarms"):
            world.clock.advance(3700)
            watch.tick()
        assert (store.load("shop").states, store.list_history("shop")) == ({}, [])
        assert "removed the alarms of workload shop: no server has evaluated them for a day" in caplog.text


@pytest.mark.parametrize(
    ("ends", "evaluated"),
    [
        ([60.0, 70.0, 119.0, 120.0], [60.0, 120.0]),
        ([60.0, 240.0], [60.0, 120.0, 180.0, 240.0]),
        ([60.0, 6000.0], [60.0, *(6000.0 - 60 * age for age in range(MAX_STEPS - 1, -1, -1))]),
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


def test_pauses_and_zones_out_are_noted_of_all_steps_of_a_window_also_of_those_that_are_not_evaluated(
    database: UnreliableDatabase,
) -> None:
    measured = Measured(AlarmOptions(period=30))
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, AlarmStore(database))
    watch.evaluate(START)
    at = START + 600.0
    watch.evaluate(at, {AZ_IDS[0]}, [Pause(START, at - 20.0)])
    notes = watch._engine.saved.notes
    steps = measured.declaration.options.window // 10
    assert steps > MAX_STEPS
    assert [each.start for each in notes] == [at - 10.0 * age for age in range(steps, 0, -1)]
    assert [each.is_paused for each in notes] == [True] * (steps - 2) + [False] * 2
    assert {each.zones_out for each in notes} == {(AZ_IDS[0],)}


def test_operations_that_come_later_leave_the_history_of_roll_ups_alone(database: UnreliableDatabase) -> None:
    measured, store = Measured(), AlarmStore(database)
    watch = AlarmWatch(measured.declaration, measured.store, measured.table, store)
    for number in range(4):
        measured.fill(*(bins(operation=Operation("Home", f"Page{each}")) for each in range(number + 1)))
        watch.evaluate(measured.at)
        watch.save()
    assert [item.history_summary for item in store.list_history("shop", "az1-availability")] == [
        "Alarm updated from INSUFFICIENT_DATA to OK",
        'Alarm "az1-availability" created',
    ]
    assert store.list_history("shop", include_details=False) == []


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


class TestSuppressedActions:
    """A zone is affected, and a minute later the database, so that the action of the zone is withheld."""

    QUERY = Operation("orders-db", "query")
    ZONE, RESOURCE = "use1-az1-isolated-impact", "database-impact"

    @pytest.fixture
    def measured(self) -> Measured:
        return Measured(resources=(("database", (self.QUERY,)),))

    def run(
        self, measured: Measured, watch: AlarmWatch, minutes: int, *, zone_faults: int = 0, database_faults: int = 0
    ) -> list[ChangedAlarm]:
        """Store some minutes, and return the changes of the two alarms."""
        found = []
        for _ in range(minutes):
            calls = bins(operation=self.QUERY, faults=database_faults, side=Side.CLIENT)
            measured.fill(bins(AZ_IDS[1:]), bins(AZ_IDS[:1], faults=zone_faults), calls)
            found += [each for event in watch.evaluate(measured.at) for each in event.changes]
            watch.save()
        return [each for each in found if each.name in (self.ZONE, self.RESOURCE)]

    def test_events_warnings_and_history_come_when_the_suppression_ends(
        self, measured: Measured, database: UnreliableDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = AlarmStore(database)

        def start() -> AlarmWatch:
            return AlarmWatch(measured.declaration, measured.store, measured.table, store)

        watch = start()
        self.run(measured, watch, 5)
        with caplog.at_level(logging.WARNING, logger="holdfast.alarms"):
            [withheld, resource] = self.run(measured, watch, 3, zone_faults=30, database_faults=50)
            assert sorted([withheld.name, resource.name]) == [self.RESOURCE, self.ZONE]
            withheld, resource = sorted([withheld, resource], key=lambda each: each.name == self.RESOURCE)
            assert (withheld.actions_run, withheld.suppressed_by, resource.actions_run) == (False, "Alarm", True)
            assert [self.RESOURCE in each.getMessage() for each in caplog.records] == [True]
            watch = start()
            [recovered] = self.run(measured, watch, 3, zone_faults=30)
            assert (recovered.name, recovered.new) == (self.RESOURCE, "OK")
            watch = start()
            caplog.clear()
            [late] = self.run(measured, watch, 1, zone_faults=30)
        assert (late.name, late.old, late.new) == (self.ZONE, "OK", "ALARM")
        assert (late.actions_run, late.was_suppressed) == (True, True)
        assert late.since == measured.at - 240.0
        [record] = caplog.records
        assert "alarm use1-az1-isolated-impact is ALARM; its actions were suppressed until now" in record.getMessage()
        assert [each.history_summary for each in store.list_history("shop", self.ZONE)] == [
            "Successfully executed action holdfast:event",
            "Suppressed action holdfast:event by Alarm",
            "Alarm updated from OK to ALARM",
            "Alarm updated from INSUFFICIENT_DATA to OK",
            'Alarm "use1-az1-isolated-impact" created',
        ]

    def test_an_explanation_says_what_withholds_actions_and_until_when(
        self, measured: Measured, database: UnreliableDatabase
    ) -> None:
        store = AlarmStore(database)
        watch = AlarmWatch(measured.declaration, measured.store, measured.table, store)
        reader = AlarmReader(measured.declaration, store)

        def explain() -> ShownSuppression | None:
            return reader.explain(self.ZONE, database, 10.0).suppressed

        self.run(measured, watch, 5)
        assert explain() is None
        self.run(measured, watch, 3, zone_faults=30)
        assert explain() == ShownSuppression("WaitPeriod", self.RESOURCE, measured.at + 60, is_pending=True)
        self.run(measured, watch, 1, zone_faults=30)
        assert explain() is None
        self.run(measured, watch, 3, zone_faults=30, database_faults=50)
        assert explain() == ShownSuppression("Alarm", self.RESOURCE, None, is_pending=False)
        self.run(measured, watch, 3, zone_faults=30)
        assert explain() == ShownSuppression("ExtensionPeriod", self.RESOURCE, measured.at + 60, is_pending=False)

"""The states of alarms and their history are stored the same way in every database."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast import Side, Zone
from holdfast.alarms import AlarmState, CompositeAlarm, HistoryItemType, StateValue
from holdfast.alarms.engine import AlarmChange, SavedAlarms, SeenOperation
from holdfast.alarms.recent_metrics import PeriodNote
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.watch.alarm_store import MAX_HISTORY, AlarmStore

ALARM = CompositeAlarm(alarm_name="az1-availability", alarm_rule="FALSE")
OTHER = CompositeAlarm(alarm_name="az2-availability", alarm_rule="FALSE")
HOME = SeenOperation("Home", "Index", Side.SERVER, 60.0)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlarmStore]:
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield AlarmStore(opened.enter_context(SqliteDatabase(tmp_path / "watch.sqlite")))
            return
        url, schema = request.getfixturevalue("postgres_url"), f"alarms_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield AlarmStore(opened.enter_context(PostgresDatabase(options)))


def change(at: float, value: StateValue = StateValue.ALARM, alarm: CompositeAlarm = ALARM) -> AlarmChange:
    old = AlarmState(StateValue.OK, "before", None, at - 60)
    return AlarmChange(alarm, old, AlarmState(value, f"because of {at}", '{"version":"1.0"}', at))


def test_nothing_is_saved_at_first(store: AlarmStore) -> None:
    assert store.load("shop") == SavedAlarms()
    assert store.list_history("shop") == []


def test_states_and_operations_are_loaded_as_they_were_saved(store: AlarmStore) -> None:
    store.save("shop", 60.0, [HOME], [change(60.0), change(60.0, alarm=OTHER)])
    notes = [PeriodNote(60.0, (Zone("use1-az1"),)), PeriodNote(120.0, is_paused=True)]
    store.save("shop", 120.0, [HOME], [change(120.0, StateValue.OK)], notes=notes)
    store.save("other", 120.0, [], [])
    found = store.load("shop")
    assert found.evaluated_at == 120.0
    assert found.operations == [HOME]
    assert found.notes == notes
    assert found.states == {
        "az1-availability": change(120.0, StateValue.OK).new,
        "az2-availability": change(60.0).new,
    }


def test_a_repeated_save_changes_nothing(store: AlarmStore) -> None:
    for _ in range(2):
        store.save("shop", 60.0, [HOME], [change(60.0)])
    assert len(store.list_history("shop")) == 1


def test_the_history_of_each_alarm_is_limited_and_newest_first(store: AlarmStore) -> None:
    store.save("shop", 60.0, [], [change(60.0, alarm=OTHER)])
    for minute in range(1, MAX_HISTORY + 4):
        store.save("shop", minute * 60.0, [], [change(minute * 60.0)])
    found = store.list_history("shop", ["az1-availability"])
    assert [item.timestamp for item in found] == [minute * 60.0 for minute in range(MAX_HISTORY + 3, 3, -1)]
    assert found[0].history_item_type is HistoryItemType.STATE_UPDATE
    assert msgspec.json.decode(found[0].history_data)["newState"]["stateValue"] == "ALARM"
    assert len(store.list_history("shop")) == MAX_HISTORY + 1
    assert len(store.list_history("shop", limit=2)) == 2
    assert len(store.list_history("shop", ["az2-availability", "az1-availability"], 21)) == 21
    assert store.list_history("shop", without_summary=found[0].history_summary) == []


def test_only_the_alarms_of_workloads_that_nobody_evaluates_any_more_are_removed(store: AlarmStore) -> None:
    for workload, at in (("shop", 60.0), ("gone", 60.0), ("elsewhere", 120.0)):
        store.save(workload, at, [HOME], [change(at)])
    assert store.remove_abandoned(["shop"], 120.0) == ["gone"]
    assert store.load("gone") == SavedAlarms()
    assert store.list_history("gone") == []
    for workload in ("shop", "elsewhere"):
        assert store.load(workload).states.keys() == {"az1-availability"}
        assert len(store.list_history(workload)) == 1
    assert store.remove_abandoned(["shop"], 120.0) == []


def test_alarms_that_exist_no_longer_are_deleted_with_their_history(store: AlarmStore) -> None:
    store.save("shop", 60.0, [HOME], [change(60.0), change(60.0, alarm=OTHER)])
    store.save("shop", 120.0, [], [], ["az1-availability"])
    assert store.load("shop").states.keys() == {"az2-availability"}
    assert [item.alarm_name for item in store.list_history("shop")] == ["az2-availability"]

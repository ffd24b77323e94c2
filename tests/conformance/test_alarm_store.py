"""The states of alarms and their history are stored the same way in every database."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast import Side, Zone
from holdfast.alarms import (
    AlarmAction,
    AlarmChange,
    AlarmState,
    CompositeAlarm,
    ConfigurationChange,
    ConfigurationVerb,
    Evaluation,
    HistoryItemType,
    SavedAlarms,
    SavedDefinition,
    StateValue,
    SuppressedActions,
    SuppressedBy,
    Suppression,
)
from holdfast.alarms.engine import SeenOperation
from holdfast.alarms.step_notes import StepNote
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.watch.alarm_store import MAX_HISTORY, AlarmStore
from holdfast.watch.store import MIGRATIONS, SUBSYSTEM

ALARM = CompositeAlarm(alarm_name="az1-availability", alarm_rule="FALSE")
OTHER = CompositeAlarm(alarm_name="az2-availability", alarm_rule="FALSE")
CONFIGURATION = HistoryItemType.CONFIGURATION_UPDATE
HOME = SeenOperation("Home", "Index", Side.SERVER, 60.0)
SAVED = SavedAlarms(operations=[HOME])


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield opened.enter_context(SqliteDatabase(tmp_path / "watch.sqlite"))
            return
        url, schema = request.getfixturevalue("postgres_url"), f"alarms_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield opened.enter_context(PostgresDatabase(options))


@pytest.fixture
def store(database: Database) -> AlarmStore:
    return AlarmStore(database)


def change(at: float, value: StateValue = StateValue.ALARM, alarm: CompositeAlarm = ALARM) -> AlarmChange:
    old = AlarmState(StateValue.OK, "before", None, at - 60)
    return AlarmChange(alarm, old, AlarmState(value, f"because of {at}", '{"version":"1.0"}', at))


def test_nothing_is_saved_at_first(store: AlarmStore) -> None:
    assert store.load("shop") == SavedAlarms()
    assert store.list_history("shop") == []


def configure(
    verb: str, at: float, name: str = "az1-availability", *, is_about_operation: bool = False
) -> ConfigurationChange:
    definition = SavedDefinition("CompositeAlarm", f"digest at {at}", is_about_operation)
    return ConfigurationChange(name, ConfigurationVerb(verb), definition, at, {"alarmName": name})


def test_states_and_operations_are_loaded_as_they_were_saved(store: AlarmStore) -> None:
    store.save("shop", Evaluation(60.0, [change(60.0), change(60.0, alarm=OTHER)]), SAVED)
    notes = [StepNote(60.0, (Zone("use1-az1"),)), StepNote(120.0, is_paused=True)]
    saved = SavedAlarms(operations=[HOME], notes=notes)
    store.save("shop", Evaluation(120.0, [change(120.0, StateValue.OK)]), saved)
    store.save("other", Evaluation(120.0), SavedAlarms())
    found = store.load("shop")
    assert found.evaluated_at == 120.0
    assert found.operations == [HOME]
    assert found.notes == notes
    assert found.states == {
        "az1-availability": change(120.0, StateValue.OK).new,
        "az2-availability": change(60.0).new,
    }


def test_definitions_and_withheld_actions_are_loaded_as_they_were_saved(store: AlarmStore) -> None:
    suppression = Suppression(StateValue.ALARM, True, SuppressedBy.WAIT_PERIOD, 120.0)
    suppressed = {"az1-availability": SuppressedActions("database-impact", suppression, StateValue.OK)}
    created = configure("created", 60.0), configure("created", 60.0, "a/b", is_about_operation=True)
    store.save("shop", Evaluation(60.0, configuration=created), SavedAlarms(suppressed=suppressed))
    assert store.load("shop").suppressed == suppressed
    assert store.load("shop").definitions == {each.alarm_name: each.definition for each in created}
    updated = configure("updated", 120.0)
    deleted = configure("deleted", 120.0, "a/b", is_about_operation=True)
    store.save("shop", Evaluation(120.0, configuration=[updated, deleted]), SavedAlarms())
    assert store.load("shop").suppressed == {}
    assert store.load("shop").definitions == {"az1-availability": updated.definition}


def test_a_repeated_save_changes_nothing(store: AlarmStore) -> None:
    action = AlarmAction(ALARM, "page", 60.0, StateValue.OK, change(60.0).new)
    for _ in range(2):
        store.save("shop", Evaluation(60.0, [change(60.0)], [action], [configure("created", 60.0)]), SAVED)
    assert [item.history_item_type for item in store.list_history("shop")] == ["Action", "StateUpdate", CONFIGURATION]
    assert store.list_history("shop") == store.list_history("shop", "az1-availability")


def test_the_history_of_each_alarm_is_limited_and_newest_first(store: AlarmStore) -> None:
    store.save("shop", Evaluation(60.0, [change(60.0, alarm=OTHER)]), SAVED)
    for minute in range(1, MAX_HISTORY + 4):
        store.save("shop", Evaluation(minute * 60.0, [change(minute * 60.0)]), SAVED)
    found = store.list_history("shop", "az1-availability")
    assert [item.timestamp for item in found] == [minute * 60.0 for minute in range(MAX_HISTORY + 3, 3, -1)]
    assert found[0].history_item_type is HistoryItemType.STATE_UPDATE
    assert msgspec.json.decode(found[0].history_data)["newState"]["stateValue"] == "ALARM"
    assert len(store.list_history("shop")) == MAX_HISTORY + 1
    assert len(store.list_history("shop", limit=2)) == 2


def test_only_the_alarms_of_workloads_that_nobody_evaluates_any_more_are_removed(store: AlarmStore) -> None:
    for workload, at in (("shop", 60.0), ("gone", 60.0), ("elsewhere", 120.0)):
        store.save(workload, Evaluation(at, [change(at)], configuration=[configure("created", at)]), SAVED)
    assert store.remove_abandoned(["shop"], 120.0) == ["gone"]
    assert store.load("gone") == SavedAlarms()
    assert store.list_history("gone") == []
    for workload in ("shop", "elsewhere"):
        assert store.load(workload).states.keys() == {"az1-availability"}
        assert store.load(workload).definitions.keys() == {"az1-availability"}
        assert len(store.list_history(workload)) == 2
    assert store.remove_abandoned(["shop"], 120.0) == []


def test_news_have_no_items_about_operations_no_first_ok_and_no_first_creation(store: AlarmStore) -> None:
    about_operation = CompositeAlarm(alarm_name="a/b", alarm_rule="FALSE")
    first = [
        configure("created", 60.0)._replace(is_first=True),
        configure("updated", 60.0, "a/b", is_about_operation=True),
    ]
    definitions = {each.alarm_name: each.definition for each in first}
    unknown, healthy = AlarmState(), AlarmState(StateValue.OK, "fine", None, 60.0)
    changes = [AlarmChange(ALARM, unknown, healthy), change(60.0, alarm=about_operation)]
    store.save("shop", Evaluation(60.0, changes, configuration=first), SavedAlarms(definitions=definitions))
    later = AlarmState(StateValue.INSUFFICIENT_DATA, "no data", None, 120.0)
    again = AlarmChange(ALARM, later, msgspec.structs.replace(healthy, state_updated_timestamp=180.0))
    news = [AlarmChange(ALARM, healthy, later), again]
    saved = SavedAlarms(definitions=definitions)
    store.save("shop", Evaluation(180.0, news, configuration=[configure("updated", 180.0)]), saved)
    assert [item.history_summary for item in store.list_history("shop", include_details=False)] == [
        "Alarm updated from INSUFFICIENT_DATA to OK",
        'Alarm "az1-availability" updated',
        "Alarm updated from OK to INSUFFICIENT_DATA",
    ]
    assert len(store.list_history("shop")) == 7
    assert len(store.list_history("shop", "a/b")) == 2
    assert store.list_history("shop", "a/b", include_details=False) == []


def test_deleted_alarms_lose_their_state_and_those_about_operations_also_their_history(store: AlarmStore) -> None:
    about_operation = CompositeAlarm(alarm_name="a/b", alarm_rule="FALSE")
    store.save("shop", Evaluation(60.0, [change(60.0), change(60.0, alarm=about_operation)]), SAVED)
    deleted = configure("deleted", 120.0), configure("deleted", 120.0, "a/b", is_about_operation=True)
    changes = [change(120.0), change(120.0, alarm=about_operation), change(120.0, alarm=OTHER)]
    store.save("shop", Evaluation(120.0, changes, configuration=deleted), SAVED)
    assert store.load("shop").states.keys() == {"az2-availability"}
    found = store.list_history("shop")
    assert {item.alarm_name for item in found} == {"az1-availability", "az2-availability"}
    assert 'Alarm "az1-availability" deleted' in [item.history_summary for item in found]


def test_the_history_from_before_items_had_a_position_is_kept(database: Database) -> None:
    database.migrate(SUBSYSTEM, MIGRATIONS[:3])
    first = "Alarm updated from INSUFFICIENT_DATA to OK"
    for name, at, summary in (("a", 60.0, "it"), ("a", 30.0, first), ("a/b", 60.0, "it")):
        sql = "insert into holdfast_alarm_history values ('shop', $1, $2, 'CompositeAlarm', 'StateUpdate', $3, '{}')"
        database.write_statement(sql, (name, at, summary), is_idempotent=False)
    sql = "insert into holdfast_alarm_evaluation values ('shop', 60.0, '[]')"
    database.write_statement(sql, (), is_idempotent=False)
    store = AlarmStore(database)
    assert [(item.timestamp, item.history_summary) for item in store.list_history("shop", "a")] == [
        (60.0, "it"),
        (30.0, first),
    ]
    assert [item.history_summary for item in store.list_history("shop", include_details=False)] == ["it"]
    assert store.load("shop") == SavedAlarms(evaluated_at=60.0, operations=[], notes=[])

"""Verdicts, messages, acknowledgements and snoozes of alerts are stored the same way in every database."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest

from holdfast import Conflict, InvalidValue, NotFound
from holdfast.alerts import Alert, Alerter, AlertEvent, AlertStore, DeliveryState
from holdfast.alerts.rules import NextAttempt
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing import FakeClock
from tests.unit.alerts.world import START, Recorder, Verdicts, verdict

Open: TypeAlias = Callable[[], Database]
ID = verdict().id
NOW = START + 100


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same database as often as it is called."""
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield lambda: opened.enter_context(SqliteDatabase(tmp_path / "alerts.sqlite"))
            return
        url, schema = request.getfixturevalue("postgres_url"), f"alerts_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield lambda: opened.enter_context(PostgresDatabase(options))


@pytest.fixture
def store(connect: Open) -> AlertStore:
    return AlertStore(connect())


def test_a_verdict_is_stored_once_and_found_by_its_id(store: AlertStore) -> None:
    store.add_verdicts([verdict(), verdict("other", zone=None, opened_at=NOW)])
    store.add_verdicts([verdict(summary="changed")])
    assert [each.verdict for each in store.list_active()] == [verdict(), store.get("other").verdict]
    assert [each.verdict.id for each in store.list_latest()] == ["other", ID]
    assert len(store.list_latest(1)) == 1
    for unknown in ("nothing", "a\0b"):
        with pytest.raises(NotFound, match="no alert is about a verdict"):
            store.get(unknown)


def test_a_finished_verdict_is_not_active_but_recorded(store: AlertStore) -> None:
    store.add_verdicts([verdict()])
    store.close_verdict(ID, NOW)
    store.close_verdict(ID, NOW + 1)
    store.finish_verdict(ID)
    assert store.list_active() == []
    assert store.get(ID).verdict.closed_at == NOW


def test_messages_of_a_verdict_are_claimed_in_order_and_by_one_process_only(store: AlertStore) -> None:
    store.add_verdicts([verdict(), verdict("other")])
    for number, event in ((1, AlertEvent.OPENED), (2, AlertEvent.RESOLVED)):
        store.queue_message(ID, "chat", number, event, NOW)
        store.queue_message(ID, "chat", number, AlertEvent.TEST, NOW)  # another server was slower
    store.queue_message("other", "chat", 1, AlertEvent.OPENED, NOW + 5)
    assert store.claim("chat", NOW - 1, NOW) is None
    assert store.claim("mail", NOW, NOW) is None
    claimed = store.claim("chat", NOW, NOW + 60)
    assert claimed is not None
    delivery, about = claimed
    assert (delivery.event, delivery.attempts, delivery.may_have_arrived, about) == ("opened", 1, False, verdict())
    assert store.get(ID).deliveries[0].may_have_arrived, "until its outcome is known"
    assert store.claim("chat", NOW, NOW + 60) is None
    other = store.claim("chat", NOW + 5, NOW + 65)
    assert other is not None, "a verdict does not wait for another one"
    assert other[0].verdict == "other"
    store.mark_delivered(delivery, NOW + 6)
    last = store.claim("chat", NOW + 6, NOW + 66)
    assert last is not None
    assert last[0].event is AlertEvent.RESOLVED
    assert [each.delivered_at for each in store.get(ID).deliveries] == [NOW + 6, None]


def test_a_failed_message_waits_and_an_outdated_failure_is_ignored(store: AlertStore) -> None:
    store.add_verdicts([verdict()])
    store.queue_message(ID, "chat", 1, AlertEvent.OPENED, NOW)
    first = store.claim("chat", NOW, NOW + 60)
    second = store.claim("chat", NOW + 60, NOW + 120)  # the first process is slow, or dead
    assert first is not None
    assert second is not None
    waiting = NextAttempt(DeliveryState.WAITING, NOW + 300, may_have_arrived=False)
    store.mark_failed(first[0], "too late", waiting)
    assert store.get(ID).deliveries[0].error is None
    store.mark_failed(second[0], "down", waiting)
    [row] = store.get(ID).deliveries
    assert (row.error, row.due_at, row.may_have_arrived, row.attempts) == ("down", NOW + 300, False, 2)


def test_only_a_message_that_cannot_have_arrived_is_dropped(store: AlertStore) -> None:
    store.add_verdicts([verdict()])
    store.queue_message(ID, "chat", 1, AlertEvent.OPENED, NOW)
    store.queue_message(ID, "mail", 1, AlertEvent.OPENED, NOW)
    before = store.get(ID).deliveries
    store.claim("chat", NOW, NOW + 60)
    for delivery in before:
        store.drop(delivery)
    assert {each.alert: each.state.value for each in store.get(ID).deliveries} == {"chat": "waiting", "mail": "dropped"}


def test_the_first_acknowledgement_counts_and_ended_verdicts_have_none(store: AlertStore) -> None:
    store.add_verdicts([verdict(), verdict("ended")])
    assert store.acknowledge(ID, "anna", NOW).verdict.acknowledged_by == "anna"
    assert store.acknowledge(ID, "bert", NOW + 1).verdict.acknowledged_at == NOW
    store.close_verdict("ended", NOW)
    for change in (
        lambda: store.acknowledge("ended", "anna", NOW),
        lambda: store.snooze(verdict="ended", workload=None, by="anna", until=NOW),
    ):
        with pytest.raises(Conflict, match="has ended already"):
            change()
    with pytest.raises(NotFound):
        store.acknowledge("nothing", "anna", NOW)
    for person in ("", "a\nb", "x" * 201):
        with pytest.raises(InvalidValue, match="expected a name"):
            store.acknowledge(ID, person, NOW)


def test_the_later_of_two_snoozes_of_verdict_and_workload_counts(store: AlertStore) -> None:
    store.add_verdicts([verdict(), verdict("other", workload="bank")])
    store.snooze(verdict=ID, workload=None, by="anna", until=NOW + 60)
    store.snooze(verdict=None, workload="shop", by="bert", until=NOW + 30)
    assert store.get(ID).verdict.snoozed_until == NOW + 60
    store.snooze(verdict=None, workload="shop", by="bert", until=NOW + 90)
    assert (store.get(ID).verdict.snoozed_until, store.get(ID).verdict.snoozed_by) == (NOW + 90, "bert")
    assert store.get("other").verdict.snoozed_until is None
    for verdict_id, workload in ((None, None), (ID, "shop")):
        with pytest.raises(InvalidValue, match="either a verdict or a workload"):
            store.snooze(verdict=verdict_id, workload=workload, by="anna", until=NOW)


def test_two_servers_on_one_database_tell_people_once(connect: Open) -> None:
    clock, verdicts, channel = FakeClock(wall=NOW), Verdicts(), Recorder()
    verdicts.open = [verdict(f"v{number}") for number in range(5)]
    alerters = [
        Alerter([Alert(name="chat", channel=channel)], AlertStore(connect()), verdicts, clock=clock) for _ in range(2)
    ]

    def work(alerter: Alerter) -> None:
        for _ in range(3):
            alerter.follow_verdicts()
            while alerter.send_due("chat"):
                pass

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, alerters))
        work(alerters[0])
        verdicts.ends = {f"v{number}": NOW for number in range(5)}
        list(pool.map(work, alerters))
    for number in range(5):
        assert [m.event for m in channel.messages if m.verdict.id == f"v{number}"] == ["opened", "resolved"]

"""Announced deploys are stored the same way in every database."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast import Conflict, InvalidValue, NotFound, Zone
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing import FakeClock
from holdfast.watch import DeployStore
from holdfast.watch.deploy import MAX_RUNNING

ONE = Zone("use1-az1")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall=1_700_000_000.0)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[DeployStore]:
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield DeployStore(opened.enter_context(SqliteDatabase(tmp_path / "watch.sqlite")), clock)
            return
        url, schema = request.getfixturevalue("postgres_url"), f"deploys_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield DeployStore(opened.enter_context(PostgresDatabase(options)), clock)


def test_overlapping_deploys_are_ended_each_by_zone_or_by_id(store: DeployStore, clock: FakeClock) -> None:
    one = store.begin("shop", ONE, by="ci", note="version 42")
    everywhere = store.begin("shop", by="ci")
    other = store.begin("other", ONE, by="ci")
    clock.advance(10)
    ended = store.end(workload="shop", zone=ONE)
    assert (ended.id, ended.ended_at, ended.note) == (one.id, clock.wall(), "version 42")
    assert store.end(workload="shop").id == everywhere.id
    assert store.end(other.id).ended_at == clock.wall()
    clock.advance(10)
    assert store.end(one.id) == ended, "it stays as it ended"
    with pytest.raises(NotFound, match="no deploy of zone use1-az1 of shop is running"):
        store.end(workload="shop", zone=ONE)
    with pytest.raises(NotFound, match="there is no deploy nothing"):
        store.end("nothing")


def test_of_two_running_deploys_of_a_zone_one_must_be_named(store: DeployStore) -> None:
    first, second = store.begin("shop", ONE, by="a"), store.begin("shop", ONE, by="b")
    with pytest.raises(Conflict, match="2 deploys of zone use1-az1 of shop are running"):
        store.end(workload="shop", zone=ONE)
    store.end(first.id)
    assert store.end(workload="shop", zone=ONE).id == second.id


def test_an_announcement_that_is_repeated_with_its_id_counts_once(store: DeployStore, clock: FakeClock) -> None:
    first = store.begin("shop", ONE, by="ci", deploy_id="build-7")
    clock.advance(5)
    assert store.begin("shop", ONE, by="ci", deploy_id="build-7") == first
    with pytest.raises(Conflict, match="deploy build-7 is one of shop, zone use1-az1"):
        store.begin("shop", by="ci", deploy_id="build-7")
    assert list(store.list()) == [first]


def test_a_deploy_stays_in_the_list_for_a_day_after_its_end(store: DeployStore, clock: FakeClock) -> None:
    first = store.begin("shop", ONE, by="ci", seconds=60)
    clock.advance(30)
    second = store.begin("other", by="ci", seconds=3600)
    assert [each.id for each in store.list()] == [second.id, first.id]
    assert [each.id for each in store.list("shop")] == [first.id]
    clock.advance(86_431)
    assert [each.id for each in store.list()] == [second.id]
    third = store.begin("shop", by="ci")
    assert [each.id for each in store.list()] == [third.id, second.id]
    with pytest.raises(NotFound):
        store.end(first.id)


def test_a_window_has_the_deploys_of_the_last_15_minutes(store: DeployStore, clock: FakeClock) -> None:
    start = clock.wall()
    deploy = store.begin("shop", ONE, by="ci")
    store.begin("other", ONE, by="ci")

    def shown(end: float) -> list[str]:
        return [each.id for each in store.list_for_window("shop", start + end)]

    assert [shown(0), shown(10), shown(1799), shown(1800)] == [[], [deploy.id], [deploy.id], []]
    clock.advance(100)
    store.end(deploy.id)
    assert [shown(110), shown(999), shown(1000)] == [[deploy.id], [deploy.id], []]


def test_times_that_cannot_be_are_refused_and_change_nothing(store: DeployStore, clock: FakeClock) -> None:
    deploy = store.begin("shop", by="ci")
    with pytest.raises(InvalidValue, match="before it began"):
        store.end(deploy.id, at=clock.wall() - 10)
    with pytest.raises(InvalidValue, match="in the future"):
        store.begin("shop", by="ci", at=clock.wall() + 60)
    assert list(store.list()) == [deploy]


def test_a_script_that_announces_in_a_loop_is_stopped(store: DeployStore, clock: FakeClock) -> None:
    clock.advance(1)
    for _ in range(MAX_RUNNING):
        store.begin("shop", by="loop", at=clock.wall() - 1)
    with pytest.raises(Conflict, match="100 deploys of shop are running"):
        store.begin("shop", by="loop")
    store.begin("other", by="ci")

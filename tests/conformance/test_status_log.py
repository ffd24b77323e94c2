"""Changes of zone statuses are recorded the same way in every database."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest

from holdfast import Conflict, Zone, ZoneState, ZoneStatus
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server import status_log
from holdfast.server.status_log import StatusLog, StatusLogEntry

Open: TypeAlias = Callable[[], Database]
STUCK = 30.0


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same database as often as it is called."""
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield lambda: opened.enter_context(SqliteDatabase(tmp_path / "status.sqlite"))
            return
        url, schema = request.getfixturevalue("postgres_url"), f"log_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield lambda: opened.enter_context(PostgresDatabase(options))


@pytest.fixture
def log(connect: Open) -> StatusLog:
    return StatusLog(connect())


def status(number: int, *, zone: str = "use1-az1", workload: str | None = None, out: bool = True) -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(zone),
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=number + 0.25,
        by="credential 1",
        reason=f"grün '{number}'",
        expires=number + 60.5 if out else None,
        version=number,
    )


def versions(entries: list[StatusLogEntry]) -> list[int]:
    return [entry.status.version for entry in entries]


def test_what_was_recorded_is_listed_newest_first_with_when_it_was_seen(log: StatusLog) -> None:
    recorded = [status(1), status(2, workload="shop"), status(3, out=False)]
    for number, each in enumerate(recorded):
        log.append(each, 100.0 + number)
    assert list(log.list()) == [
        StatusLogEntry(number=3, seen_at=102.0, status=recorded[2]),
        StatusLogEntry(number=2, seen_at=101.0, status=recorded[1]),
        StatusLogEntry(number=1, seen_at=100.0, status=recorded[0]),
    ]
    assert [entry.number for entry in log.list(limit=2)] == [3, 2]


def test_recording_the_same_change_again_changes_nothing(log: StatusLog, connect: Open) -> None:
    log.append(status(1), 100.0)
    log.append(status(2), 101.0)
    log.append(status(1), 102.0)
    StatusLog(connect()).append(status(2), 103.0)
    assert [(entry.status.version, entry.seen_at) for entry in log.list()] == [(2, 101.0), (1, 100.0)]


def test_a_change_that_differs_in_anything_is_another_one(log: StatusLog) -> None:
    first = status(1)
    for each in (first, replace(first, version=2), replace(first, state=ZoneState.IN), replace(first, reason="other")):
        log.append(each, 100.0)
    assert len(log.list()) == 4


def test_the_latest_of_each_zone_and_workload_is_what_is_last_known(log: StatusLog, connect: Open) -> None:
    assert log.latest() == []
    for each in (status(1), status(2, workload="shop"), status(3, zone="use1-az2"), status(4, out=False)):
        log.append(each, 100.0)
    latest = {(each.zone, each.workload): each for each in StatusLog(connect()).latest()}
    assert latest == {
        ("use1-az1", None): status(4, out=False),
        ("use1-az1", "shop"): status(2, workload="shop"),
        ("use1-az2", None): status(3, zone="use1-az2"),
    }


def test_the_oldest_are_dropped_but_never_what_is_last_known(log: StatusLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_log, "KEPT_CHANGES", 5)
    log.append(status(1, zone="use1-az2"), 100.0)
    log.append(status(2, zone="use1-az3"), 100.0)
    log.append(status(3, zone="use1-az3"), 100.0)
    for number in range(4, 20):
        log.append(status(number), 100.0)
    assert versions(list(log.list())) == [19, 18, 17, 16, 15, 3, 1]
    assert {each.version for each in log.latest()} == {19, 3, 1}


def test_several_servers_that_record_at_once_lose_nothing(log: StatusLog, connect: Open) -> None:
    servers, each = 4, 15
    logs = [log, *(StatusLog(connect()) for _ in range(servers - 1))]
    start = threading.Barrier(servers)

    def record(server: int) -> None:
        start.wait(STUCK)
        for number in range(each):
            # All of them see the first changes; the others are one server's own.
            version = number if number < 5 else server * 1000 + number
            while True:
                try:
                    logs[server].append(status(version), 100.0)
                    break
                except Conflict:  # as whoever records is told: do it again
                    continue

    with ThreadPoolExecutor(servers) as threads:
        list(threads.map(record, range(servers), timeout=STUCK))
    entries = list(reversed(log.list(1000)))
    expected = {*range(5), *(server * 1000 + number for server in range(servers) for number in range(5, each))}
    assert sorted(versions(entries)) == sorted(expected)
    assert [entry.number for entry in entries] == list(range(1, len(expected) + 1))
    for server in range(servers):
        mine = [version for version in versions(entries) if version // 1000 == server and version % 1000 >= 5]
        assert mine == sorted(mine)


def test_what_is_to_be_announced_is_so_until_it_was_and_in_order(connect: Open) -> None:
    log = StatusLog(connect(), publishes=True)
    for number in (1, 2, 3):
        log.append(status(number), 100.0)
    assert versions(list(log.unpublished())) == [1, 2, 3]
    assert versions(list(log.unpublished(limit=2))) == [1, 2]
    log.mark_published(1)
    log.mark_published(1)
    log.append(status(1), 100.0)
    again = StatusLog(connect(), publishes=True)
    assert versions(list(again.unpublished())) == [2, 3]


def test_what_was_recorded_when_nothing_was_announced_is_not_announced_later(log: StatusLog, connect: Open) -> None:
    log.append(status(1), 100.0)
    assert log.unpublished() == []
    announcing = StatusLog(connect(), publishes=True)
    announcing.append(status(2), 100.0)
    assert versions(list(announcing.unpublished())) == [2]

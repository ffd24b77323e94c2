"""The lease of one server: taken, renewed, lost, released."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, LeaseLost, Verdict, VerdictKind
from holdfast._process import ProcessIdentity, encode_identity
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.detection.lease import (
    FORGOTTEN_SECONDS,
    NOTED_SECONDS,
    DetectionLease,
    LeasedHandler,
)
from holdfast.testing import FakeClock
from holdfast.watch.lease import LeaseStore
from tests.unit.test_process import read_identity, start_process

VERDICT = Verdict(id="one", workload="shop", kind=VerdictKind.ISOLATED, since=1.0, at=2.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "watch.sqlite") as opened:
        yield opened


class Server:
    """The lease of one server, with its own clock."""

    def __init__(self, database: SqliteDatabase, name: str, identity: ProcessIdentity | None = None) -> None:
        self.clock = FakeClock()
        identity = identity or ProcessIdentity.of_this_process()
        self.store = LeaseStore(database, encode_identity(identity), f"http://{name}", 10.0)
        self.lease = DetectionLease(self.store, identity, 10.0, self.clock)
        self.changes: list[int | None] = []
        self.lease.on_change = lambda: self.changes.append(self.lease.number)


def expire(database: SqliteDatabase) -> None:
    database.write_statement("update holdfast_lease set expires_at = 1")


def test_the_first_server_evaluates_and_the_second_stands_by_until_the_first_stops(database: SqliteDatabase) -> None:
    one, two = Server(database, "one"), Server(database, "two")
    assert one.lease.step() == 2.0
    assert two.lease.step() == 1.0
    assert (one.lease.is_valid, two.lease.is_valid) == (True, False)
    assert (one.lease.other_address, two.lease.other_address) == (None, "http://one")
    assert (one.lease.has_standby, two.lease.number) == (False, None)
    one.lease.step()
    assert one.lease.has_standby
    one.clock.advance(FORGOTTEN_SECONDS + 1)
    assert not one.lease.has_standby
    two.clock.advance(NOTED_SECONDS)
    two.lease.step()
    one.lease.step()
    assert one.lease.has_standby
    one.lease.close()
    one.lease.close()
    two.lease.step()
    assert (two.lease.is_valid, two.lease.other_address) == (True, None)
    assert two.changes == [two.lease.number]


def test_a_holder_that_cannot_renew_stops_acting_before_its_lease_ends(database: SqliteDatabase) -> None:
    server = Server(database, "one")
    server.lease.step()
    server.clock.advance(8.9)
    server.lease.require()
    server.clock.advance(0.2)
    assert not server.lease.is_valid
    with pytest.raises(LeaseLost, match="could not renew its lease in time"):
        server.lease.require()
    expire(database)
    server.lease.step()
    server.lease.require()
    assert len(server.changes) == 1, "nobody took it meanwhile, so it goes on with the same number"


def test_a_holder_that_was_paused_acts_no_more_and_then_stands_by(database: SqliteDatabase) -> None:
    acted: list[str] = []

    class Handler:
        def read_states(self, workload: str) -> dict[Any, Any]:
            return {workload: "in"}

        def evacuate(self, verdict: Verdict, zones: frozenset[Any]) -> None:
            del zones
            acted.append(verdict.id)

    one, two = Server(database, "one"), Server(database, "two")
    one.lease.step()
    handler = LeasedHandler(Handler(), one.lease)
    handler.evacuate(VERDICT, frozenset())
    expire(database)
    two.lease.step()
    assert one.lease.is_valid, "its own clock stood still, as that of a paused machine"
    with pytest.raises(LeaseLost):
        handler.evacuate(VERDICT, frozenset())
    assert handler.read_states("shop") == {"shop": "in"}
    one.lease.step()
    assert (one.changes[-1], one.lease.number, acted) == (None, None, ["one"])
    one.lease.step()
    assert one.lease.other_address == "http://two"


def test_a_lease_whose_take_over_was_not_confirmed_is_used(database: SqliteDatabase) -> None:
    server = Server(database, "one")
    number = server.store.take()
    server.lease.step()
    assert server.lease.number == number


def test_a_server_that_was_faster_keeps_the_lease(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Server(database, "one"), Server(database, "two")
    one.lease.step()
    monkeypatch.setattr(two.store, "read", lambda: None)
    two.lease.step()
    assert (two.lease.number, two.changes) == (None, [])


def test_a_process_that_has_ended_on_this_host_is_replaced_at_once(database: SqliteDatabase) -> None:
    with start_process() as process:
        identity = read_identity(process)
        killed, restarted = Server(database, "one", identity), Server(database, "one")
        killed.lease.step()
        restarted.lease.step()
        assert restarted.lease.number is None, "it runs"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is left as a zombie
        restarted.lease.step()
        assert restarted.lease.is_valid


def test_a_lease_that_cannot_be_released_expires(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(database, "one")

    def fail(number: int) -> None:
        raise EngineUnavailable(f"cannot write {number}")

    monkeypatch.setattr(server.store, "release", fail)
    server.lease.start()
    server.lease.close()
    assert "cannot release the lease of detection, which expires soon" in caplog.text

"""The loop: telemetry in, verdicts and statuses out."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, Operation, Outcome, Side, Zone, ZoneState, ZoneStatus
from holdfast.config import WorkloadSettings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate import Evacuator
from holdfast.server.push import Hub
from holdfast.server.status_log import StatusLog
from holdfast.server.statuses import Statuses
from holdfast.server.verdict_log import VerdictLog
from holdfast.server.watch import Watch
from holdfast.status import SqlStatusStore
from holdfast.status.change import Changes
from holdfast.status.wire import Change
from holdfast.testing import FakeClock

ZONES = ("az1", "az2", "az3")


class ListeningHub(Hub):
    """Keeps what would be pushed."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Any]] = []

    def publish_threadsafe(self, name: str, data: bytes) -> None:
        self.told.append((name, json.loads(data)))

    def named(self, name: str) -> list[Any]:
        return [data for told, data in self.told if told == name]


class FailingLog(VerdictLog):
    """A log whose database is away for the first so many writes."""

    failures = 0

    def open(self, *arguments: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise EngineUnavailable("away")
        super().open(*arguments)


class World:
    """A watch over one workload, with time and traffic under control."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(wall=1_700_000_000.0)
        self.database = SqliteDatabase(folder / "test.sqlite")
        self.told: list[Change] = []
        store = SqlStatusStore(self.database)
        self.statuses = Statuses(
            store,
            StatusLog(self.database),
            clock=self.clock,
            refresh=1.0,
            tell=self.told.append,
        )
        self.log = FailingLog(self.database)
        self.hub = ListeningHub()
        settings = WorkloadSettings(name="shop", region="us-east-1", zones=ZONES)
        self.watch = Watch(
            [settings],
            bin_seconds=10.0,
            evacuator=Evacuator(self.statuses, self.clock, Changes(self.statuses, self.clock, claims=store)),
            verdicts=self.log,
            hub=self.hub,
            clock=self.clock,
        )

    def second(self, failing: str | None = None, silent: frozenset[str] = frozenset()) -> None:
        """One second of traffic: ten requests in each zone, half of which fail where it is failing."""
        for zone in ZONES:
            for number in range(0 if zone in silent else 10):
                faulty = zone == failing and number % 2 == 0
                self.watch.ingest([outcome(self.clock.wall(), zone, f"i-{zone}-{number % 4}", faulty=faulty)])
        self.clock.advance(1.0)
        self.watch.tick()

    def seconds(self, count: int, failing: str | None = None, silent: frozenset[str] = frozenset()) -> None:
        for _ in range(count):
            self.second(failing, silent)


def outcome(at: float, zone: str, instance: str = "i-1", *, faulty: bool = False, workload: str = "shop") -> Outcome:
    return Outcome(
        workload=workload,
        operation=Operation("Home", "Index"),
        zone=Zone(zone),
        instance=instance,
        at=at,
        side=Side.SERVER,
        count_2xx=int(not faulty),
        count_5xx=int(faulty),
        success_seconds=() if faulty else (0.02,),
        fault_seconds=(0.02,) if faulty else (),
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_healthy_zones_lead_to_nothing(world: World) -> None:
    world.seconds(60)
    assert world.log.list() == []
    assert world.statuses.read() == []
    assert not world.hub.named("verdict")


def test_a_failing_zone_is_found_recorded_sent_away_and_told(world: World) -> None:
    world.seconds(15)
    world.seconds(30, failing="az2")
    [verdict] = world.log.list()
    assert (verdict.kind, verdict.zone, verdict.closed_at) == ("isolated", "az2", None)
    [status] = world.statuses.read()
    assert (status.zone, status.workload, status.out, status.by) == ("az2", "shop", True, "holdfast")
    assert verdict.id in status.reason
    assert [told["verdict"]["zone"] for told in world.hub.named("verdict")] == ["az2"]
    assert [change.status for change in world.told] == [status]


def test_a_verdict_stays_open_while_its_zone_is_out_and_silent(world: World) -> None:
    world.seconds(45, failing="az2")
    world.seconds(40, silent=frozenset({"az2"}))
    [verdict] = world.log.list()
    assert verdict.closed_at is None
    assert len(world.told) == 1


def test_a_second_zone_is_found_and_told_but_not_sent_away_while_one_is_out(world: World) -> None:
    world.seconds(45, failing="az2")
    world.seconds(45, failing="az3", silent=frozenset({"az2"}))
    assert [status.zone for status in world.statuses.read() if status.out] == ["az2"]
    assert {verdict.kind: verdict.closed_at for verdict in world.log.list()} == {"isolated": None, "regional": None}
    world.seconds(30, silent=frozenset({"az2"}))
    closed = {verdict.kind: verdict.closed_at is not None for verdict in world.log.list()}
    assert closed == {"isolated": False, "regional": True}


def test_what_was_seen_while_the_store_was_away_for_long_is_not_acted_on(world: World) -> None:
    world.seconds(15)
    world.log.failures = 10_000
    for second in range(300):
        with suppress(EngineUnavailable):
            world.second(failing="az2" if second < 30 else None)
    world.log.failures = 0
    world.seconds(30)
    assert world.log.list() == []
    assert world.statuses.read() == []


def test_a_verdict_from_before_a_restart_is_closed_when_it_no_longer_holds(world: World, tmp_path: Path) -> None:
    world.seconds(45, failing="az2")
    [before] = world.log.list()
    [status] = world.statuses.read()
    again = World(tmp_path)
    again.clock.advance(60)
    again.seconds(20, silent=frozenset({"az2"}))
    assert again.log.list() == [before], "its zone is still out"
    back = ZoneStatus(zone=status.zone, workload="shop", state=ZoneState.IN, since=1.0, by="operator", reason="mended")
    again.statuses.write(back, status.version)
    again.seconds(20)
    assert again.log.list()[0].closed_at is not None


def test_a_zone_that_is_brought_back_healthy_closes_its_verdict(world: World) -> None:
    world.seconds(45, failing="az2")
    [status] = world.statuses.read()
    world.statuses.write(
        ZoneStatus(zone=status.zone, workload="shop", state=ZoneState.IN, since=1.0, by="operator", reason="mended"),
        status.version,
    )
    world.seconds(30)
    [verdict] = world.log.list()
    assert verdict.closed_at is not None
    assert [told["closed"] for told in world.hub.named("verdict")] == [False, True]


def test_a_store_that_was_away_loses_no_window_and_no_verdict(world: World) -> None:
    world.seconds(15)
    world.log.failures = 3
    held_up = 0
    for _ in range(30):
        try:
            world.second(failing="az2")
        except EngineUnavailable:
            held_up += 1
    assert held_up == 3
    assert [verdict.zone for verdict in world.log.list()] == ["az2"]
    assert [status.zone for status in world.statuses.read()] == ["az2"]


def test_every_second_tells_what_happened_in_every_zone(world: World) -> None:
    world.seconds(5, failing="az2")
    pulses = world.hub.named("pulse")
    assert len(pulses) == 5
    assert pulses[-1]["workloads"]["shop"]["az2"]["requests"] == 10
    assert pulses[-1]["workloads"]["shop"]["az2"]["faults"] == 5
    assert pulses[-1]["workloads"]["shop"]["az1"]["latency"] == pytest.approx(0.02, rel=0.05)
    assert world.watch.pulses() == pulses


def test_a_clock_that_is_set_back_does_not_stop_the_pulse(world: World) -> None:
    world.seconds(3)
    world.clock.jump_wall(-3600)
    world.seconds(3)
    assert len(world.hub.named("pulse")) == 6


def test_only_configured_workloads_and_zones_are_known(world: World) -> None:
    assert world.watch.knows(outcome(1.0, "az1"))
    assert not world.watch.knows(outcome(1.0, "az9"))
    assert not world.watch.knows(outcome(1.0, "az1", workload="other"))

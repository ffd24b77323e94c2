"""The loop: telemetry in, verdicts and statuses out."""

import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from holdfast import (
    EngineUnavailable,
    InvalidValue,
    Operation,
    SettingsError,
    Side,
    Verdict,
    VerdictKind,
    Zone,
    ZoneState,
    ZoneStatus,
)
from holdfast.detect import DETECTORS
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import Bin, BinDelta, BinKey, Deployment, Window
from holdfast.testing import FakeClock
from holdfast.watch import DeployStore, WatchedWorkload, WorkloadWatcher
from tests.unit.watch.test_learning import run, send_history
from tests.unit.watch.world import ZONES, World


class ShowingOptions(msgspec.Struct, frozen=True):
    """Nothing to set."""


class Showing:
    """A detector that is content with everything, and keeps what it was shown."""

    options_type = ShowingOptions
    state_type = dict
    shown: ClassVar[list[Window]] = []

    def __init__(self, options: object) -> None:
        pass

    def step(self, state: dict[str, int], window: Window) -> tuple[dict[str, int], Verdict]:
        self.shown.append(window)
        return state, Verdict(id="", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=window.end)


@pytest.fixture(autouse=True)
def showing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be one more detector, in this module alone."""
    monkeypatch.setitem(DETECTORS._registered, "showing", Showing)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_healthy_zones_lead_to_nothing(world: World) -> None:
    world.seconds(60)
    assert world.log.verdicts() == []
    assert world.statuses.read() == []
    assert not world.events.verdicts


def test_the_end_of_the_last_evaluated_window_shows_whether_the_loop_is_stuck(world: World) -> None:
    assert world.watch.evaluated_until() is None
    world.seconds(30)
    end = world.watch.evaluated_until()
    assert end is not None
    assert 0 < world.clock.wall() - end < 20
    assert end % world.watch.bin_seconds == 0, "it is the end of a bin"
    world.clock.advance(600)  # the loop is stuck
    assert world.watch.evaluated_until() == end


def test_a_failing_zone_is_found_recorded_sent_away_and_told(world: World) -> None:
    world.seconds(15)
    world.seconds(30, failing="az2")
    [verdict] = world.log.verdicts()
    assert (verdict.kind, verdict.zone, verdict.closed_at) == ("isolated", "az2", None)
    [status] = world.statuses.read()
    assert (status.zone, status.workload, status.state.is_out) == ("az2", "shop", True)
    assert status.by.startswith("hf-az2-"), "the run of the evacuation"
    assert status.reason == f"{verdict.summary} (run {status.by})"
    assert [change.verdict.zone for change in world.events.verdicts] == ["az2"]


def test_a_verdict_stays_open_while_its_zone_is_out_and_silent(world: World) -> None:
    world.seconds(45, failing="az2")
    world.seconds(40, silent=frozenset({"az2"}))
    [verdict] = world.log.verdicts()
    assert verdict.closed_at is None
    assert len(world.events.verdicts) == 1


def test_a_second_zone_is_found_and_told_but_not_sent_away_while_one_is_out(world: World) -> None:
    world.seconds(45, failing="az2")
    world.seconds(45, failing="az3", silent=frozenset({"az2"}))
    assert [status.zone for status in world.statuses.read() if status.state.is_out] == ["az2"]
    assert {verdict.kind: verdict.closed_at for verdict in world.log.verdicts()} == {"isolated": None, "regional": None}
    world.seconds(30, silent=frozenset({"az2"}))
    closed = {verdict.kind: verdict.closed_at is not None for verdict in world.log.verdicts()}
    assert closed == {"isolated": False, "regional": True}


def test_what_was_seen_while_the_store_was_away_for_long_is_not_acted_on(world: World) -> None:
    world.seconds(15)
    world.log.failures = 10_000
    for second in range(300):
        with suppress(EngineUnavailable):
            world.second(failing="az2" if second < 30 else None)
    world.log.failures = 0
    world.seconds(30)
    assert world.log.verdicts() == []
    assert world.statuses.read() == []


def test_a_verdict_from_before_a_restart_is_closed_when_it_no_longer_holds(world: World, tmp_path: Path) -> None:
    world.seconds(45, failing="az2")
    [before] = world.log.verdicts()
    [status] = world.statuses.read()
    again = World(tmp_path)
    again.clock.advance(60)
    again.seconds(20, silent=frozenset({"az2"}))
    assert again.log.verdicts() == [before], "its zone is still out"
    back = ZoneStatus(zone=status.zone, workload="shop", state=ZoneState.IN, since=1.0, by="operator", reason="mended")
    again.statuses.write(back, status.version)
    again.seconds(20)
    assert again.log.verdicts()[0].closed_at is not None


def test_a_zone_that_is_brought_back_healthy_closes_its_verdict(world: World) -> None:
    world.seconds(45, failing="az2")
    [status] = world.statuses.read()
    world.statuses.write(
        ZoneStatus(zone=status.zone, workload="shop", state=ZoneState.IN, since=1.0, by="operator", reason="mended"),
        status.version,
    )
    world.seconds(30)
    [verdict] = world.log.verdicts()
    assert verdict.closed_at is not None
    assert [change.is_closed for change in world.events.verdicts] == [False, True]


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
    assert [verdict.zone for verdict in world.log.verdicts()] == ["az2"]
    assert [status.zone for status in world.statuses.read()] == ["az2"]


def test_every_second_tells_what_happened_in_every_zone(world: World) -> None:
    world.seconds(5, failing="az2")
    samples = world.events.samples
    assert len(samples) == 5
    assert samples[-1].workloads["shop"]["az2"]["requests"] == 10
    assert samples[-1].workloads["shop"]["az2"]["faults"] == 5
    assert samples[-1].workloads["shop"]["az1"]["latency"] == pytest.approx(0.02, rel=0.05)
    assert world.watch.recent_traffic() == samples


def test_a_clock_that_is_set_back_does_not_stop_the_pulse(world: World) -> None:
    world.seconds(3)
    world.clock.jump_wall(-3600)
    world.seconds(3)
    assert len(world.events.samples) == 6


def test_measurements_that_cover_more_than_a_minute_are_refused(world: World) -> None:
    key = BinKey("shop", Operation("Home", "Index"), ZONES[0], "i-1", Side.SERVER)
    with pytest.raises(InvalidValue, match="measurements of 300 s: expected at most 60 s"):
        world.watch.ingest([BinDelta(key=key, start=0.0, seconds=300.0, measured=Bin())])


def test_without_an_evacuator_the_loop_only_reaches_verdicts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.watch = WorkloadWatcher(
        [WatchedWorkload(name="shop", zones=ZONES, detector="threshold")], world.log, clock=world.clock
    )
    world.seconds(45, failing="az2")
    assert [verdict.zone for verdict in world.log.verdicts()] == ["az2"]
    assert world.statuses.read() == []


def test_only_detectors_that_may_take_a_zone_out_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a decision that is the default detector. Others advise: the refusal is logged once for a verdict."""
    rows: list[tuple[str, bool | None, list[str]]] = [
        ("calibrated", None, ["az2"]),
        ("calibrated", False, []),
        ("threshold", None, []),
        ("threshold", True, ["az2"]),
        ("outlier", None, []),
        ("outlier", True, ["az2"]),
    ]
    for number, (detector, may_evacuate, out) in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        caplog.clear()
        with SqliteDatabase(folder / "history.sqlite") as history:
            world = World(folder, detector=detector, history=history, may_evacuate=may_evacuate)
            if detector == "calibrated":
                send_history(world, 1900)
                run(world, 22)
            run(world, 200 if detector == "outlier" else 50, failing="az2")
            assert [each.zone for each in world.log.verdicts() if each.kind is VerdictKind.ISOLATED] == ["az2"]
            assert [each.zone for each in world.statuses.read() if each.state.is_out] == out
            refusals = [text for text in caplog.messages if "only advise" in text]
            assert len(refusals) == (0 if out else 1)
            assert out or f"not evacuating zone az2 for shop: verdicts of detector {detector}" in refusals[0]


def test_without_numpy_an_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['numpy'] = None\nimport holdfast.watch"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "detection needs the extra 'server': pip install 'holdfast-resilience[server]'" in ended.stderr


class TestTheStateOfADetector:
    def test_is_used_again_after_a_restart(self, tmp_path: Path) -> None:
        """One bad bin before the restart and one after it are two in a row."""
        world = World(tmp_path)
        world.seconds(20)
        world.seconds(12, failing="az2")
        assert world.log.verdicts() == []
        again = World(tmp_path, clock=world.clock)
        again.seconds(12, failing="az2")
        assert [verdict.zone for verdict in again.log.verdicts()] == ["az2"]

    def test_is_used_again_also_when_the_restart_costs_a_bin(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.seconds(20)
        world.seconds(21, failing="az2")  # the bin that is complete in half a second is lost
        again = World(tmp_path, clock=world.clock)
        again.seconds(11, failing="az2")
        assert [verdict.zone for verdict in again.log.verdicts()] == ["az2"]

    def test_is_not_used_when_it_is_old_or_of_another_detector(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.seconds(45, failing="az2")
        clock = FakeClock(wall=world.clock.wall() + 3600)
        assert World(tmp_path, clock=clock).watch._watched["shop"].state.verdict is None
        assert World(tmp_path, clock=world.clock).watch._watched["shop"].state.verdict is not None
        assert World(tmp_path, clock=world.clock, detector="showing").watch._watched["shop"].state == {}

    def test_of_an_older_release_is_forgotten(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.log.record("shop", "threshold", ["what is this"], world.clock.wall(), opened=None, closed=[])
        assert World(tmp_path, clock=world.clock).watch._watched["shop"].state.unhealthy_windows == {}


def test_a_detector_is_shown_zone_states_and_announced_deploys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Window] = []
    monkeypatch.setattr(Showing, "shown", shown)
    world = World(tmp_path, detector="showing")
    start = world.clock.wall()
    deploys = DeployStore(world.database, world.clock)
    world.statuses.write(
        ZoneStatus(
            zone=ZONES[1], workload=None, state=ZoneState.RETURNING, share=0.5, since=1.0, by="operator", reason="test"
        ),
        0,
    )
    world.seconds(12)
    deploy = deploys.begin("shop", "az1", by="ci")
    world.seconds(12)
    deploys.end(deploy.id)
    world.seconds(11)
    running, ended = Deployment(Zone("az1"), start + 12, start + 912), Deployment(Zone("az1"), start + 12, start + 24)
    assert [window.deployments for window in shown] == [(), (running,), (ended,)]
    assert shown[0].states == {"az2": ZoneState.RETURNING}


def test_a_detector_that_nobody_has_registered_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no detector is called 'oracle': expected one of .*threshold"):
        World(tmp_path, detector="oracle")


def test_the_loop_runs_by_itself_and_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    with caplog.at_level(logging.WARNING), world.watch as watch:
        watch.start()
    watch.close()
    assert not caplog.records


class Broken(Showing):
    """A detector with a defect."""

    def step(self, state: dict[str, int], window: Window) -> tuple[dict[str, int], Verdict]:
        raise ZeroDivisionError("a defect")


def test_a_detector_that_raises_does_not_hold_up_other_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DETECTORS._registered, "broken", Broken)
    world = World(tmp_path)
    workloads = [
        WatchedWorkload(name="other", zones=ZONES, detector="broken"),
        WatchedWorkload(name="shop", zones=ZONES, detector="threshold"),
    ]
    world.watch = WorkloadWatcher(workloads, world.log, clock=world.clock)
    for _ in range(45):
        with suppress(ZeroDivisionError):
            world.second(failing="az2")
    assert [(verdict.workload, verdict.zone) for verdict in world.log.verdicts()] == [("shop", "az2")]


def test_a_zone_of_the_region_that_is_out_elsewhere_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """It is not among the workload's own zones, and still counts: the verdict is recorded, and no zone is taken out."""
    world = World(tmp_path)
    world.statuses.write(
        ZoneStatus(zone=Zone("az9"), workload=None, state=ZoneState.OUT, since=1.0, by="operator", reason="test"), 0
    )
    world.seconds(60, failing="az2")
    assert [verdict.zone for verdict in world.log.verdicts()] == ["az2"]
    assert [status.zone for status in world.statuses.read() if status.state.is_out] == ["az9"]

"""A detector that learns from stored measurements."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import EngineUnavailable, InvalidValue, Operation, Side, Verdict, VerdictKind, Zone, ZoneState, ZoneStatus
from holdfast.detect import DETECTORS
from holdfast.detect.detectors.calibrated import CalibratedDetector
from holdfast.detect.detectors.threshold import ThresholdOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey, Window
from holdfast.testing import FakeClock
from holdfast.watch import TrafficSample, WatchedWorkload, WorkloadWatcher
from tests.unit.watch.world import ZONES, World

START = 1_700_000_000.0


@pytest.fixture
def history(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "history.sqlite") as opened:
        yield opened


def measure(start: float, failing: str | None = None) -> list[BinDelta]:
    """Return one bin: 100 requests in each zone, of which 40 fail where it is failing."""
    found = []
    for zone in ZONES:
        for instance in ("i-1", "i-2"):
            faults = 20 if zone == failing else 0
            key = BinKey("shop", Operation("Home", "Index"), zone, f"{instance}-{zone}", Side.SERVER)
            latencies = Histogram.of([0.01 + number / 5000 for number in range(50 - faults)])
            counted = Bin(count_2xx=50 - faults, count_5xx=faults, faults=faults, success_seconds=latencies)
            found.append(BinDelta(key=key, start=start, seconds=10.0, measured=counted))
    return found


def send_history(world: World, seconds: int, failing: str | None = None, last: int = 0) -> int:
    """Send bins from before the start; in the last ones a zone fails. Return the requests that were stored."""
    first = world.clock.wall() // 10 * 10 - seconds
    stored = 0
    for number in range(seconds // 10):
        is_failing = number >= (seconds - last) // 10
        arrivals = world.watch.ingest(measure(first + 10 * number, failing if is_failing else None))
        stored += arrivals.late
    return stored


def run(world: World, seconds: int, failing: str | None = None) -> list[VerdictKind]:
    """Let bins pass. Return the kind of the current verdict after each second."""
    kinds = []
    for _ in range(seconds):
        if world.clock.wall() % 10 == 0:
            world.watch.ingest(measure(world.clock.wall(), failing))
        world.clock.advance(1.0)
        world.watch.tick()
        kinds.append(world.watch.current_verdicts()["shop"].kind)
    return kinds


def create(folder: Path, history: SqliteDatabase, clock: FakeClock | None = None) -> World:
    return World(folder, clock=clock or FakeClock(wall=START), detector="calibrated", history=history)


def test_without_history_a_detector_learns_for_half_an_hour(tmp_path: Path, history: SqliteDatabase) -> None:
    world = create(tmp_path, history)
    assert set(run(world, 60)) == {VerdictKind.UNKNOWN}
    assert "learning the usual behaviour" in world.watch.current_verdicts()["shop"].summary


def test_measurements_of_the_last_half_hour_that_are_sent_after_the_start_are_learned(
    tmp_path: Path, history: SqliteDatabase
) -> None:
    world = create(tmp_path, history)
    assert send_history(world, 1900) == 1900 * 30
    assert send_history(world, 3700) < 3700 * 30, "measurements from more than an hour ago are dropped"
    assert run(world, 22)[-1] is VerdictKind.HEALTHY
    samples = [each for each in world.events.reported if isinstance(each, TrafficSample)]
    assert max(reading["requests"] or 0 for each in samples for reading in each.workloads["shop"].values()) < 4000
    assert run(world, 45, failing="az2")[-1] is VerdictKind.ISOLATED
    [status] = world.statuses.read()
    assert (status.zone, status.state) == ("az2", ZoneState.OUT)


def test_a_restart_without_a_saved_state_learns_from_what_was_stored(tmp_path: Path, history: SqliteDatabase) -> None:
    before = create(tmp_path, history)
    send_history(before, 1900)
    run(before, 22)
    before.watch.close()
    before.database.write_statement("delete from holdfast_detector_state", (), is_idempotent=True)
    after = create(tmp_path, history, before.clock)
    assert run(after, 22)[-1] is VerdictKind.HEALTHY
    assert run(after, 45, failing="az3")[-1] is VerdictKind.ISOLATED


def test_a_failure_in_the_history_takes_no_zone_out_and_one_that_goes_on_does(
    tmp_path: Path, history: SqliteDatabase
) -> None:
    world = create(tmp_path, history)
    send_history(world, 1900, failing="az2", last=120)
    run(world, 22)
    assert (world.statuses.read(), world.events.verdicts) == ([], [])
    run(world, 45, failing="az2")
    assert [status.zone for status in world.statuses.read()] == ["az2"]


def test_a_few_minutes_are_too_little_to_learn_from(tmp_path: Path, history: SqliteDatabase) -> None:
    world = create(tmp_path, history)
    send_history(world, 300)
    assert set(run(world, 42)) == {VerdictKind.UNKNOWN}
    send_history(world, 1900)
    assert run(world, 22)[-1] is VerdictKind.HEALTHY, "more may come later"


def test_history_that_arrives_while_a_zone_is_out_is_not_learned(tmp_path: Path, history: SqliteDatabase) -> None:
    """The windows before that would be learned anew without the knowledge of the evacuation."""
    world = create(tmp_path, history)
    run(world, 22)
    world.statuses.write(
        ZoneStatus(zone=Zone("az2"), workload="shop", state=ZoneState.OUT, since=1.0, by="operator", reason="test"), 0
    )
    run(world, 20)
    send_history(world, 1900)
    assert set(run(world, 22)) == {VerdictKind.UNKNOWN}


class SlowClock(FakeClock):
    """A clock on which everything takes a tenth of a second."""

    def monotonic(self) -> float:
        self.advance(0.1)
        return super().monotonic()


def test_learning_makes_room_for_live_measurements(tmp_path: Path, history: SqliteDatabase) -> None:
    """Live windows wait until it has ended, and none is lost."""
    world = create(tmp_path, history, SlowClock(wall=START))
    send_history(world, 600)
    watched = world.watch._watched["shop"]
    learned = []
    for _ in range(40):
        world.clock.advance(1.0)
        world.watch.tick()
        learned.append(0 if watched.learner is None else watched.learner.windows)
    assert 0 < max(later - sooner for sooner, later in pairwise(learned)) <= 6
    assert watched.learner is None
    assert watched.state.streams.started_at == START - 600


class Unreliable(CalibratedDetector):
    """A detector that fails at its third window, once."""

    error: Exception
    count = 0

    def step(self, state: Any, window: Window) -> tuple[Any, Verdict]:
        Unreliable.count += 1
        if Unreliable.count == 3:
            raise Unreliable.error
        return super().step(state, window)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(EngineUnavailable("away"), VerdictKind.HEALTHY), (ZeroDivisionError("a defect"), VerdictKind.UNKNOWN)],
)
def test_an_error_while_learning_does_not_stop_the_loop(
    tmp_path: Path, history: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: VerdictKind
) -> None:
    monkeypatch.setitem(DETECTORS._registered, "unreliable", Unreliable)
    monkeypatch.setattr(Unreliable, "error", error, raising=False)
    monkeypatch.setattr(Unreliable, "count", 0)
    world = World(tmp_path, clock=FakeClock(wall=START), detector="unreliable", history=history)
    send_history(world, 1900)
    world.clock.advance(1.0)
    world.watch.tick()
    with pytest.raises(type(error)):
        world.watch.tick()
    assert run(world, 33)[-1] is kind


def test_a_detector_that_does_not_learn_starts_at_once(tmp_path: Path, history: SqliteDatabase) -> None:
    world = World(tmp_path, clock=FakeClock(wall=START), history=history)
    send_history(world, 1900)
    assert run(world, 12)[-1] is VerdictKind.HEALTHY
    assert world.watch._watched["shop"].learned_seconds == 0


def test_zones_that_are_out_at_the_start_are_not_learned(tmp_path: Path, history: SqliteDatabase) -> None:
    world = create(tmp_path, history)
    out = ZoneStatus(zone=Zone("az2"), workload="shop", state=ZoneState.OUT, since=1.0, by="operator", reason="test")
    world.statuses.write(out, 0)
    send_history(world, 1900)
    assert run(world, 22)[-1] is VerdictKind.HEALTHY
    alone = WorkloadWatcher(
        [WatchedWorkload(name="shop", zones=ZONES)], world.log, history=history, bin_seconds=10.0, clock=world.clock
    )
    alone.tick()
    assert alone._watched["shop"].learner is None, "it continues with the saved state"


def test_a_zone_that_is_brought_back_healthy_is_not_taken_out_again(tmp_path: Path, history: SqliteDatabase) -> None:
    """Its verdict is open for five more minutes, but nothing shows that it fails."""
    world = create(tmp_path, history)
    send_history(world, 1900)
    run(world, 22)
    run(world, 50, failing="az2")
    [status] = world.statuses.read()
    assert status.state.is_out
    back = ZoneStatus(zone=status.zone, workload="shop", state=ZoneState.IN, since=1.0, by="operator", reason="mended")
    world.statuses.write(back, status.version)
    assert run(world, 60)[-1] is VerdictKind.ISOLATED
    assert not any(each.state.is_out for each in world.statuses.read())
    assert run(world, 300)[-1] is VerdictKind.HEALTHY


def test_other_zones_and_other_bins_are_learned_from_the_stored_measurements(
    tmp_path: Path, history: SqliteDatabase
) -> None:
    world = create(tmp_path, history)
    send_history(world, 1900)
    run(world, 22)
    zones = (*ZONES[1:], ZONES[0])
    changed = WorkloadWatcher(
        [WatchedWorkload(name="shop", zones=zones)], world.log, history=history, bin_seconds=10.0, clock=world.clock
    )
    assert changed._watched["shop"].learns


def test_a_detector_that_raises_does_not_keep_others_from_learning(
    tmp_path: Path, history: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DETECTORS._registered, "broken", Broken)
    world = create(tmp_path, history)
    workloads = [
        WatchedWorkload(name="other", zones=ZONES, detector="broken"),
        WatchedWorkload(name="shop", zones=ZONES),
    ]
    world.watch = WorkloadWatcher(workloads, world.log, history=history, bin_seconds=10.0, clock=world.clock)
    send_history(world, 1900)
    for _ in range(22):
        with suppress(ZeroDivisionError):
            run(world, 1)
    assert world.watch.current_verdicts()["shop"].kind is VerdictKind.HEALTHY


def test_bins_that_are_too_long_for_the_detector_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(InvalidValue, match="needs bins of 60 s or less"):
        WorkloadWatcher([WatchedWorkload(name="shop", zones=ZONES)], world.log, bin_seconds=61.0)


class Broken:
    """A detector with a defect."""

    options_type: ClassVar = ThresholdOptions
    state_type: ClassVar = dict

    def __init__(self, options: object) -> None:
        pass

    def step(self, state: dict[str, int], window: Window) -> tuple[dict[str, int], Verdict]:
        raise ZeroDivisionError("a defect")

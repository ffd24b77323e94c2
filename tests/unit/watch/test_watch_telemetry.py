"""The loop keeps measurements, and does not judge by a part of a bin."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from holdfast import EngineUnavailable, InvalidValue, NotFound, Operation, Side, Verdict, VerdictKind, Zone
from holdfast.detect import DETECTORS
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import Bin, BinDelta, BinKey, Window, build_deltas
from holdfast.telemetry.bins import SHORT_TERM
from holdfast.telemetry.collector import Arrivals
from holdfast.telemetry.query import SeriesAnswer, SeriesQuery
from holdfast.telemetry.series import SeriesLimits
from holdfast.telemetry.store import SeriesStore
from holdfast.testing import FakeClock
from holdfast.watch import CurrentVerdict, WatchedWorkload, WorkloadWatcher
from holdfast.watch.watch import OVERFLOW_LOG_SECONDS
from holdfast.watch.workload import NO_WHOLE_BIN
from tests.unit.watch.world import ZONES, World, outcome

START = 1_700_000_000.0


class UnreliableDatabase(SqliteDatabase):
    """A database that is away on demand."""

    is_away = False

    def write(self, work: Callable[[Transaction], Any]) -> Any:
        if self.is_away:
            raise EngineUnavailable("the history is away")
        return super().write(work)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[UnreliableDatabase]:
    with UnreliableDatabase(tmp_path / "history.sqlite") as database:
        yield database


def delta(start: float, requests: int = 1, instance: str = "i-1", seconds: float = 10.0) -> BinDelta:
    key = BinKey("shop", Operation("Home", "Index"), ZONES[0], instance, Side.SERVER)
    return BinDelta(key, start, seconds, Bin(count_2xx=requests))


def current(world: World) -> Verdict:
    return world.watch.current_verdicts()["shop"]


def reported(world: World) -> list[str]:
    """Return the kinds of the current verdicts that the loop has reported."""
    return [str(event.verdict.kind) for event in world.events.reported if isinstance(event, CurrentVerdict)]


class TestUntilThereIsAWholeBin:
    @pytest.mark.parametrize(("start", "whole_at"), [(0.0, 11.5), (0.5, 21.5), (5.0, 21.5), (9.9, 21.5)])
    def test_a_verdict_is_unknown(self, tmp_path: Path, start: float, whole_at: float) -> None:
        world = World(tmp_path, clock=FakeClock(wall=START + start))
        assert (current(world).kind, current(world).summary) == (VerdictKind.UNKNOWN, NO_WHOLE_BIN)
        while world.clock.wall() + 1 < START + whole_at:
            world.second()
            assert current(world).kind is VerdictKind.UNKNOWN
        world.second()
        assert current(world).kind is VerdictKind.HEALTHY
        assert reported(world) == (["healthy"] if start == 0 else ["unknown", "healthy"])
        assert world.log.verdicts() == []

    def test_an_open_verdict_stays_open(self, tmp_path: Path) -> None:
        before = World(tmp_path)
        before.watch = WorkloadWatcher(
            [WatchedWorkload(name="shop", zones=ZONES, detector="threshold")], before.log, clock=before.clock
        )
        before.seconds(45, failing="az2")
        after = World(tmp_path, clock=before.clock)
        after.seconds(7)
        assert current(after).kind is VerdictKind.UNKNOWN
        assert [verdict.closed_at for verdict in after.log.verdicts()] == [None]
        after.seconds(10)
        assert current(after).kind is VerdictKind.HEALTHY
        [verdict] = after.log.verdicts()
        assert verdict.closed_at == after.clock.wall()

    def test_a_zone_that_fails_is_found_already_and_no_verdict_closed_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(DETECTORS._registered, "scripted", Scripted)
        monkeypatch.setattr(Scripted, "zones", ["az2", "az3", "az3"])
        world = World(tmp_path, detector="scripted")
        world.watch = WorkloadWatcher(
            [WatchedWorkload(name="shop", zones=ZONES, detector="scripted")], world.log, clock=world.clock
        )
        world.seconds(16)
        again = World(tmp_path, clock=world.clock, detector="scripted")
        again.watch = WorkloadWatcher(
            [WatchedWorkload(name="shop", zones=ZONES, detector="scripted")], again.log, clock=world.clock
        )
        again.seconds(6)
        assert {one.zone for one in again.log.list_open_verdicts()} == {"az2", "az3"}
        again.seconds(10)
        assert {one.zone for one in again.log.list_open_verdicts()} == {"az3"}


class ScriptedOptions(msgspec.Struct, frozen=True):
    """Nothing to set."""


class Scripted:
    """A detector that finds the next zone of a list isolated in each window."""

    options_type = ScriptedOptions
    state_type = dict
    zones: ClassVar[list[str]] = []

    def __init__(self, options: object) -> None:
        pass

    def step(self, state: dict[str, int], window: Window) -> tuple[dict[str, int], Verdict]:
        zone = Zone(self.zones.pop(0))
        kind = VerdictKind.ISOLATED
        return state, Verdict(id=zone, workload="shop", kind=kind, zone=zone, since=window.start, at=window.end)


def test_a_clock_that_is_set_back_does_not_stop_detection(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.seconds(15)
    world.clock.jump_wall(-3600)
    world.seconds(45, failing="az2")
    assert [verdict.zone for verdict in world.log.verdicts()] == ["az2"]


def test_the_outcome_of_every_request_is_returned(tmp_path: Path) -> None:
    world = World(tmp_path, limits=SeriesLimits(max_instances=1))
    world.watch.tick()
    world.clock.advance(25)
    world.watch.tick()
    now = world.clock.wall()
    deltas = [
        delta(now, 1),
        delta(now - 20, 2),
        delta(now - 3620, 4),
        delta(now + 3600, 8),
        delta(now, 16, "i-2"),
        delta(now - 20, 32, "i-2"),
    ]
    assert world.watch.ingest(deltas) == Arrivals(on_time=17, late=34, too_late=4, too_early=8, overflowed=48)
    assert world.watch.ingest([delta(now - 300)], lateness=600.0) == Arrivals(late=1)
    assert world.watch.overflowed_requests() == {"shop": {"max_instances": 48}}


def test_a_batch_with_measurements_of_more_than_a_minute_is_refused_as_a_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(InvalidValue, match="measurements of 61 s"):
        world.watch.ingest([delta(START), delta(START, seconds=61.0)])
    world.clock.advance(12)
    world.watch.tick()
    assert world.events.samples[-1].workloads["shop"]["az1"]["requests"] == 0


def test_measurements_beyond_a_limit_are_logged_once_an_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, limits=SeriesLimits(max_instances=1))
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            world.watch.ingest([delta(world.clock.wall(), instance=f"i-{number}")])
        assert len(caplog.messages) == 1
        assert "{'shop': {'max_instances': 1}}" in caplog.messages[0]
        world.clock.advance(OVERFLOW_LOG_SECONDS)
        world.watch.ingest([delta(world.clock.wall(), instance="i-9")])
    assert len(caplog.messages) == 2


def test_queries_are_answered_also_after_a_restart(tmp_path: Path, history: UnreliableDatabase) -> None:
    world = World(tmp_path, history=history)
    world.seconds(32, failing="az2")
    query = SeriesQuery(workload="shop", start=START, end=START + 30, by="zone")
    answer = world.watch.answer(query)
    points = {series.label: [(one.requests, one.faults, one.peak) for one in series.points] for series in answer.series}
    assert points == {
        "az1": [(100, 0, 10)] * 3,
        "az2": [(100, 50, 10)] * 3,
        "az3": [(100, 0, 10)] * 3,
    }
    assert World(tmp_path, clock=world.clock, history=history).watch.answer(query) == answer


def test_a_query_that_takes_long_holds_up_neither_senders_nor_verdicts(
    tmp_path: Path, history: UnreliableDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, history=history)
    answer, expected = SeriesStore.answer, {"az1": [100] * 3, "az2": [100] * 3, "az3": [100] * 3}

    def answer_late(store: SeriesStore, query: SeriesQuery, now: float) -> SeriesAnswer:
        world.seconds(32, failing="az2")
        return answer(store, query, now)

    world.seconds(32)
    monkeypatch.setattr(SeriesStore, "answer", answer_late)
    found = world.watch.answer(SeriesQuery(workload="shop", start=START, end=START + 60, by="zone"))
    assert {series.label: [point.requests for point in series.points] for series in found.series} == expected
    assert current(world).kind is VerdictKind.ISOLATED


def test_a_watcher_that_is_closed_loses_only_the_bin_in_progress(
    tmp_path: Path, history: UnreliableDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, history=history)
    world.seconds(11)  # the first bin has ended, but still waits for late measurements
    history.is_away = True
    world.watch.close()
    assert "cannot save the last measurements: the history is away" in caplog.messages
    history.is_away = False
    world.watch.close()
    query = SeriesQuery(workload="shop", start=START, end=START + 10)
    [series] = World(tmp_path, clock=world.clock, history=history).watch.answer(query).series
    assert series.total.requests == 300


def test_late_measurements_are_in_answers_and_in_no_window(tmp_path: Path, history: UnreliableDatabase) -> None:
    world = World(tmp_path, history=history)
    world.seconds(15)
    late = [outcome(START + 1, "az2", faulty=True) for _ in range(1000)]
    assert world.watch.ingest(build_deltas(late, 10.0)).late == 1000
    world.seconds(17)
    query = SeriesQuery(workload="shop", start=START, end=START + 30, zone=ZONES[1])
    [series] = world.watch.answer(query).series
    assert [point.faults for point in series.points] == [1000, 0, 0]
    assert current(world).kind is VerdictKind.HEALTHY
    assert world.log.verdicts() == []


def test_a_query_that_cannot_be_answered_says_why(tmp_path: Path, history: UnreliableDatabase) -> None:
    with pytest.raises(NotFound, match="workload cart is not watched: expected one of shop"):
        World(tmp_path, history=history).watch.answer(SeriesQuery(workload="cart", start=0.0, end=1.0))
    with pytest.raises(InvalidValue, match="keeps no measurements: give it a database as `history`"):
        World(tmp_path).watch.answer(SeriesQuery(workload="shop", start=0.0, end=1.0))


def test_a_history_that_cannot_be_saved_does_not_hold_up_verdicts(tmp_path: Path, history: UnreliableDatabase) -> None:
    world = World(tmp_path, history=history)
    history.is_away = True
    failed = 0
    for _ in range(45):
        try:
            world.second(failing="az2")
        except EngineUnavailable:
            failed += 1
    assert failed == 4, "once for each bin"
    assert [verdict.zone for verdict in world.log.verdicts()] == ["az2"]
    history.is_away = False
    world.seconds(10)
    query = SeriesQuery(workload="shop", start=START, end=START + 50)
    again = World(tmp_path, clock=world.clock, history=history)
    assert [point.requests for point in again.watch.answer(query).series[0].points] == [300] * 5


def test_a_store_of_verdicts_that_is_away_does_not_hold_up_the_history(
    tmp_path: Path, history: UnreliableDatabase
) -> None:
    world = World(tmp_path, history=history)
    world.seconds(15)
    world.log.failures = 10_000
    failed = 0
    for _ in range(30):
        try:
            world.second(failing="az2")
        except EngineUnavailable:
            failed += 1
    assert failed > 0
    query = SeriesQuery(workload="shop", start=START, end=START + 40)
    [series] = world.watch.answer(query).series
    assert [point.requests for point in series.points] == [300] * 4


def test_without_a_history_names_are_freed_and_late_measurements_dropped(tmp_path: Path) -> None:
    world = World(tmp_path, limits=SeriesLimits(max_instances=1))
    world.watch.ingest([delta(START, instance="i-1")])
    world.clock.advance(12)
    world.watch.tick()
    assert world.watch.ingest([delta(START)]).late == 1
    assert world.watch.ingest([delta(START, seconds=60.0)]).late == 1
    for _ in range(int(SHORT_TERM / 10) + 2):
        world.clock.advance(10)
        world.watch.tick()
    assert not world.watch._collector._late
    assert not world.watch._collector._late_minutes
    assert world.watch.ingest([delta(world.clock.wall(), instance="i-2")]) == Arrivals(on_time=1)

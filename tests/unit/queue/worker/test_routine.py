"""Threads that go on, whatever happens."""

import logging
import threading

import pytest

from holdfast._errors import EngineUnavailable
from holdfast.queue.events import Trouble
from holdfast.queue.worker.routine import LONGEST_PAUSE, SHORTEST_PAUSE, Routine
from tests.unit.queue.worker.bench import PATIENCE, Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    return bench


def test_a_step_says_how_long_to_wait_after_it(bench: Bench) -> None:
    assert Routine(bench.shift.post, "test", lambda: 0.5).turn() == 0.5


def test_pauses_grow_while_steps_fail_and_end_with_the_first_that_does_not(bench: Bench) -> None:
    errors: list[Exception | None] = [EngineUnavailable("away")] * 20 + [None, EngineUnavailable("again")]

    def step() -> float:
        error = errors.pop(0)
        if error is not None:
            raise error
        return 0.0

    routine = Routine(bench.shift.post, "test", step)
    pauses = [routine.turn() for _ in range(22)]
    assert 0 < pauses[0] <= SHORTEST_PAUSE
    assert all(LONGEST_PAUSE / 2 <= pause <= LONGEST_PAUSE for pause in pauses[10:20])
    assert pauses[20] == 0.0
    assert 0 < pauses[21] <= SHORTEST_PAUSE


def test_failures_are_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise EngineUnavailable("the database is away")

    Routine(bench.shift.post, "lease", step).turn()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "queue work: cannot lease, trying again in 0." in record.getMessage()
    assert "EngineUnavailable: the database is away" in record.getMessage()
    assert record.exc_info is None
    assert bench.sink.events == [Trouble(queue="work", at=bench.clock.wall(), doing="lease", error="EngineUnavailable")]


def test_what_nobody_foresaw_is_told_with_its_traceback(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise KeyError("a bug")

    assert Routine(bench.shift.post, "lease", step).turn() > 0
    assert caplog.records[0].exc_info is not None


def test_it_takes_steps_until_it_is_stopped(bench: Bench) -> None:
    third = threading.Event()
    steps: list[bool] = []

    def step() -> float:
        steps.append(routine.is_stopping)
        if len(steps) == 1:
            raise EngineUnavailable("away")
        if len(steps) == 3:
            third.set()
        return 0.0

    routine = Routine(bench.shift.post, "test", step)
    routine.start()
    assert third.wait(PATIENCE)
    routine.stop()
    assert routine.join(PATIENCE)
    taken = len(steps)
    assert taken >= 3
    assert routine.is_stopping


def test_a_long_pause_does_not_keep_it_from_stopping(bench: Bench) -> None:
    stepped = threading.Event()

    def step() -> float:
        stepped.set()
        return 3600.0

    routine = Routine(bench.shift.post, "test", step)
    routine.start()
    assert stepped.wait(PATIENCE)
    assert not routine.join(0)
    routine.stop()
    assert routine.join(PATIENCE)


def test_one_that_was_never_started_can_be_stopped(bench: Bench) -> None:
    routine = Routine(bench.shift.post, "test", lambda: 0.0)
    routine.stop()
    assert routine.join(PATIENCE)

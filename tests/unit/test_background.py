"""A function that runs again and again in a background thread."""

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._background import BackgroundLoop, RetryLater, constant_backoff
from holdfast._backoff import Backoff, Jitter
from holdfast._errors import EngineUnavailable
from holdfast._forks import register_after_fork
from tests.unit.forked import in_child

LOGGER = logging.getLogger("holdfast.test")
SOON = 10.0


def loop_of(
    step: Callable[[], float],
    *,
    backoff: Backoff = Backoff(base=1.0, cap=4.0, jitter=Jitter.NONE),  # noqa: B008 - frozen
    on_failure: Callable[[Exception, float], None] | None = None,
    continue_after_fork: bool = False,
    **options: Any,
) -> BackgroundLoop:
    return BackgroundLoop(
        "holdfast-test",
        step,
        action="read the store",
        logger=LOGGER,
        backoff=backoff,
        on_failure=on_failure,
        continue_after_fork=continue_after_fork,
        **options,
    )


def test_a_step_that_fails_is_repeated_after_growing_pauses_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Exception | float] = [EngineUnavailable("away"), EngineUnavailable("away"), ValueError("odd"), 7.0]
    reported: list[tuple[str, float]] = []

    def step() -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    loop = loop_of(step, on_failure=lambda error, pause: reported.append((type(error).__name__, pause)))
    with caplog.at_level(logging.INFO, "holdfast.test"):
        assert [loop.run_step() for _ in range(4)] == [1.0, 2.0, 4.0, 7.0]
    assert reported == [("EngineUnavailable", 1.0), ("EngineUnavailable", 2.0), ("ValueError", 4.0)]
    assert [record.message for record in caplog.records] == [
        "cannot read the store, trying again in 1.00 s: EngineUnavailable: away",
        "can read the store again, after 3 failed attempts",
    ]
    assert caplog.records[0].exc_info is None


def test_a_step_that_says_when_to_repeat_it_is_repeated_then(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise RetryLater("busy", 30.0)

    loop = loop_of(step)
    assert [loop.run_step(), loop.run_step()] == [30.0, 30.0]
    [record] = caplog.records
    assert record.message == "cannot read the store, trying again in 30.00 s: busy"
    assert record.exc_info is None


def test_an_unexpected_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise ValueError("odd")

    loop_of(step).run_step()
    assert caplog.records[0].exc_info is not None
    loop_of(step, expected=(ValueError,)).run_step()
    assert caplog.records[1].exc_info is None


@pytest.mark.parametrize("fails", [False, True])
def test_each_pause_differs_by_a_share_so_that_processes_drift_apart(fails: bool) -> None:
    def step() -> float:
        if fails:
            raise EngineUnavailable("away")
        return 10.0

    for chance, pause in ((0.0, 8.0), (0.5, 10.0), (0.75, 11.0)):
        loop = loop_of(step, backoff=constant_backoff(10.0), spread=0.2, chance=lambda chance=chance: chance)
        assert [loop.run_step() for _ in range(3)] == [pytest.approx(pause)] * 3
        assert loop.is_failing is fails


def test_a_step_follows_a_wake_after_a_random_part_of_the_spread_of_wakes() -> None:
    steps = threading.Semaphore(0)
    drawn: list[float] = []

    def chance() -> float:
        drawn.append(0.5)
        return 0.5

    def step() -> float:
        steps.release()
        return math.inf

    loop = loop_of(step, wake_spread=0.002, chance=chance)
    loop.start()
    assert steps.acquire(timeout=SOON)
    assert drawn == []
    loop.wake()
    assert steps.acquire(timeout=SOON)
    assert drawn == [0.5]
    slow = loop_of(step, wake_spread=3600.0, chance=chance)
    slow.start()
    assert steps.acquire(timeout=SOON)
    slow.wake()
    assert slow.stop(timeout=SOON), "also while it waits after a wake"
    loop.stop(timeout=SOON)


def test_a_step_that_fails_after_the_stop_is_not_reported_and_a_second_stop_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bool] = []

    def step() -> float:
        begun.set()
        go_on.wait(SOON)
        seen.append(loop.is_stopping)
        raise EngineUnavailable("closed")

    loop = loop_of(step)
    loop.start()
    assert begun.wait(SOON)
    assert not loop.stop()
    assert not loop.stop()
    assert not loop.is_stopping, "this thread is not one of the loop's"
    go_on.set()
    assert loop.stop(timeout=SOON)
    assert seen == [True]
    assert not loop.is_failing
    assert caplog.messages == []


def test_the_pauses_begin_again_after_a_success() -> None:
    answers: list[bool] = [False, False, True, False]

    def step() -> float:
        if not answers.pop(0):
            raise EngineUnavailable("away")
        return 0.5

    loop = loop_of(step)
    assert [loop.run_step() for _ in range(4)] == [1.0, 2.0, 0.5, 1.0]


def test_a_loop_takes_its_next_step_when_it_is_woken_and_none_after_it_was_stopped() -> None:
    steps = threading.Semaphore(0)

    def step() -> float:
        steps.release()
        return math.inf

    loop = loop_of(step)
    assert not loop.is_running
    loop.start()
    loop.start()
    assert steps.acquire(timeout=SOON)
    loop.wake()
    assert steps.acquire(timeout=SOON)
    assert loop.is_running
    assert loop.stop(timeout=SOON)
    assert loop.stop()
    assert not loop.is_running
    loop.wake()
    assert not steps.acquire(blocking=False)
    loop.start()
    assert steps.acquire(timeout=SOON)
    assert loop.stop(timeout=None)


def test_stopping_does_not_wait_longer_than_it_may_and_a_step_may_stop_its_own_loop() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def step() -> float:
        begun.set()
        go_on.wait(SOON)
        return 0.0

    loop = loop_of(step)
    loop.start()
    assert begun.wait(SOON)
    assert not loop.stop(timeout=0.0)
    go_on.set()

    stopped: list[bool] = []
    done = threading.Event()

    def stop_itself() -> float:
        stopped.append(own.stop(timeout=None))
        done.set()
        return 0.0

    own = loop_of(stop_itself)
    own.start()
    assert done.wait(SOON)
    assert stopped == [False]
    assert not own.is_running


@pytest.mark.parametrize("continues", [True, False])
def test_a_forked_child_runs_the_loop_only_if_it_should(continues: bool) -> None:
    steps = threading.Semaphore(0)

    def step() -> float:
        steps.release()
        return math.inf

    loop = loop_of(step, continue_after_fork=continues)
    loop.start()
    assert steps.acquire(timeout=SOON)

    def has_run() -> bool:
        return steps.acquire(timeout=SOON) if continues else not loop.is_running

    in_child(has_run)
    loop.stop(timeout=None)


def test_a_forked_child_renews_an_owner_before_the_loop_that_uses_it() -> None:
    class Owner:
        def __init__(self) -> None:
            self.renewed = False
            self.found: list[bool] = []
            self.has_run = threading.Semaphore(0)
            register_after_fork(self)
            self.loop = loop_of(self.step, continue_after_fork=True)

        def reset_after_fork(self) -> None:
            self.renewed = True
            self.has_run = threading.Semaphore(0)

        def step(self) -> float:
            self.found.append(self.renewed)
            self.has_run.release()
            return math.inf

    owners = [Owner() for _ in range(20)]
    for owner in owners:
        owner.loop.start()
        assert owner.has_run.acquire(timeout=SOON)
    in_child(lambda: all(owner.has_run.acquire(timeout=SOON) and owner.found[-1] for owner in owners))
    for owner in owners:
        owner.loop.stop(timeout=None)


def test_a_thread_that_cannot_be_started_leaves_a_loop_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(lambda: math.inf)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            loop.start()
    assert not loop.is_running
    assert loop.stop(timeout=None)
    loop.start()
    assert loop.is_running
    assert loop.stop(timeout=None)


def test_a_failure_that_cannot_be_reported_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise EngineUnavailable("away")

    def report(error: Exception, pause: float) -> None:
        raise ValueError("odd")

    assert loop_of(step, on_failure=report).run_step() == 1.0
    assert "cannot report a failure of the background loop" in caplog.text

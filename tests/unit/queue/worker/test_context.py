"""What a worker holds, and what its parts share."""

import logging
from collections.abc import Callable

import pytest

from holdfast._background import BackgroundLoop
from holdfast._errors import EngineUnavailable
from holdfast.queue import Delivery
from holdfast.queue.backend import Ack, Receipt, Release
from holdfast.queue.events import BackendErrorEvent
from holdfast.queue.worker.context import MAX_PAUSE, MIN_PAUSE, FinishedMessage, LeasedMessage, LeasedMessages
from tests.unit.queue.worker.bench import PATIENCE, Bench


def _running(number: int = 1, tries: int = 1) -> LeasedMessage:
    delivery = Delivery(
        receipt=Receipt(number, tries),
        queue="work",
        lane=0,
        tenant="a",
        body=b"",
        attempt=1,
        sent_at=0,
        ready_since=0,
        trace="",
    )
    return LeasedMessage(delivery, 0.0, 30.0)


def _held(*running: LeasedMessage) -> LeasedMessages:
    held = LeasedMessages()
    held.add(running)
    return held


def test_what_becomes_of_a_message_is_decided_once() -> None:
    one = _running()
    held = _held(one)
    assert held.finish(FinishedMessage(one, Ack()))
    assert not held.finish(FinishedMessage(one, Release()))
    assert not held.forget(one)
    [finished] = held.take_finished(10, 0)
    assert finished.disposition == Ack()


def test_a_message_that_was_handed_back_is_not_begun() -> None:
    one = _running()
    held = _held(one)
    held.finish(FinishedMessage(one, Release()))
    assert not held.begin(one, 1.0, lambda _: None)
    assert one.started_at is None


def test_a_message_whose_lease_is_over_is_not_begun() -> None:
    one = _running()
    held = _held(one)
    assert not held.begin(one, one.lease_ends_at, lambda _: None)
    assert one.started_at is None
    assert held.begin(one, one.lease_ends_at - 0.001, lambda _: None)


def test_a_message_is_held_until_it_is_settled() -> None:
    one = _running()
    held = _held(one)
    held.finish(FinishedMessage(one, Ack()))
    finished = held.take_finished(10, 0)
    assert len(held) == 1
    held.remove_settled(finished)
    assert len(held) == 0


def test_one_message_may_be_held_twice_by_different_receipts() -> None:
    """A lease that ended unnoticed, and the worker itself got the message again: both handlers must be found."""
    old, new = _running(1, 1), _running(1, 2)
    held = _held(old)
    held.add([new])
    assert set(held.list_undecided()) == {old, new}
    held.forget(old)
    assert held.list_undecided() == [new]


def test_what_could_not_be_settled_comes_first_the_next_time() -> None:
    some = [_running(number) for number in range(5)]
    held = _held(*some)
    for one in some:
        held.finish(FinishedMessage(one, Ack()))
    first = held.take_finished(2, 0)
    held.put_back(first)
    assert [one.message for one in held.take_finished(3, 0)] == some[:3]


def test_only_those_that_were_begun_count_as_handled() -> None:
    begun, waiting = _running(1), _running(2)
    held = _held(begun, waiting)
    held.begin(begun, 1.0, lambda _: None)
    held.finish(FinishedMessage(begun, Ack()))
    held.finish(FinishedMessage(waiting, Release()))
    assert held.handled == 1


def test_all_leaves_out_what_is_decided() -> None:
    one, other = _running(1), _running(2)
    held = _held(one, other)
    held.finish(FinishedMessage(one, Ack()))
    assert held.list_undecided() == [other]


def test_waiting_for_the_end_ends_with_the_last_message() -> None:
    one = _running()
    held = _held(one)
    assert not held.wait_until_empty(0)
    held.forget(one)
    assert held.wait_until_empty(PATIENCE)


class TestLoop:
    """The loop of one part of a worker."""

    def _loop(self, bench: Bench, step: Callable[[], float]) -> BackgroundLoop:
        bench.queue.handle()(lambda _: None)
        return bench.run.context.loop("lease", step)

    def test_pauses_grow_while_steps_fail_and_are_short_again_after_one_that_does_not(self) -> None:
        errors: list[Exception | None] = [EngineUnavailable("away")] * 20 + [None, EngineUnavailable("again")]

        def step() -> float:
            error = errors.pop(0)
            if error is not None:
                raise error
            return 0.5

        loop = self._loop(Bench(), step)
        pauses = [loop.run_step() for _ in range(22)]
        assert 0 < pauses[0] <= MIN_PAUSE
        assert all(MAX_PAUSE / 2 <= pause <= MAX_PAUSE for pause in pauses[10:20])
        assert pauses[20] == 0.5
        assert 0 < pauses[21] <= MIN_PAUSE

    def test_the_sink_is_told_of_every_failure_and_the_log_of_the_first(self, caplog: pytest.LogCaptureFixture) -> None:
        def step() -> float:
            raise EngineUnavailable("the database is away")

        bench = Bench()
        loop = self._loop(bench, step)
        loop.run_step()
        loop.run_step()
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "cannot lease in queue work, trying again in 0." in record.getMessage()
        assert "EngineUnavailable: the database is away" in record.getMessage()
        trouble = BackendErrorEvent(queue="work", at=bench.clock.wall(), operation="lease", error="EngineUnavailable")
        assert bench.sink.events == [trouble] * 2

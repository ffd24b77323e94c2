"""What became of messages is said, once, and as long as it takes."""

import threading

import pytest

from holdfast._errors import DatabaseFull, EngineUnavailable, OutcomeUnknown
from holdfast.queue import Delivery, Postpone, Reject
from holdfast.queue.backend import Ack, Bury, Release, RetryLater
from holdfast.queue.events import AttemptResult
from holdfast.queue.worker.context import FinishedMessage
from holdfast.queue.worker.leases import get_attempt_result
from tests.unit.queue.worker.bench import Arrivals, Bench, texts


class Broken(Exception):
    """A handler's own."""


@pytest.fixture
def bench() -> Bench:
    return Bench(max_attempts=2, concurrency=8)


def _handle_by_body(bench: Bench) -> list[bytes]:
    """A handler that does what the message says."""
    seen: list[bytes] = []

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        match delivery.body:
            case b"fail":
                raise Broken("no")
            case b"later":
                raise Postpone(60)
            case b"never":
                raise Reject("not ours")

    return seen


def test_each_ending_has_its_event(bench: Bench) -> None:
    _handle_by_body(bench)
    for body in (b"fine", b"fail", b"later", b"never"):
        bench.send(body)
        bench.work()
    assert bench.sink.endings == ["acked", "retried", "postponed", "buried"]
    assert [event.error for event in bench.sink.handled] == [None, "Broken", "Postpone", "Reject"]
    assert {event.at for event in bench.sink.handled} == {bench.clock.wall()}
    assert [event.delivery.body for event in bench.sink.handled] == [b"fine", b"fail", b"later", b"never"]


@pytest.mark.parametrize(
    ("disposition", "ending"),
    [
        (Ack(), AttemptResult.ACKED),
        (RetryLater(1.0), AttemptResult.RETRIED),
        (RetryLater(1.0, is_attempt=False), AttemptResult.POSTPONED),
        (Bury("why"), AttemptResult.BURIED),
        (Release(), AttemptResult.RELEASED),
    ],
)
def test_every_disposition_is_an_attempt_result(
    disposition: Ack | RetryLater | Bury | Release, ending: AttemptResult
) -> None:
    assert get_attempt_result(disposition) is ending


@pytest.mark.parametrize("error", [EngineUnavailable("away"), DatabaseFull("full"), OutcomeUnknown("lost")])
def test_what_was_done_is_not_done_again_when_the_backend_is_away_for_a_while(bench: Bench, error: Exception) -> None:
    seen = _handle_by_body(bench)
    bench.send(b"fine")
    bench.feed()
    bench.backend.fail("settle", *[error] * 5)
    bench.settle()
    assert bench.backend.calls.count("settle") == 6
    assert seen == [b"fine"]
    assert bench.depth() == (0, 0, 0, 0)
    assert bench.sink.endings == ["acked"]
    assert bench.sink.troubles == [("settle", type(error).__name__)] * 5


def test_what_was_done_counts_also_after_the_lease_if_nobody_else_has_it(bench: Bench) -> None:
    _handle_by_body(bench)
    bench.send(b"fine")
    bench.feed()
    bench.backend.fail("settle", EngineUnavailable("away"))
    bench.settle_next()
    bench.clock.advance(3600)
    bench.settle()
    assert bench.depth() == (0, 0, 0, 0)
    assert bench.sink.endings == ["acked"]


def test_a_reply_that_was_lost_is_not_a_message_that_was_lost(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It was settled, and nobody knows: repeating it is refused, which is as it should be."""
    _handle_by_body(bench)
    bench.send(b"fine", b"fail", b"never")
    bench.feed()
    bench.backend.lose_reply("settle", OutcomeUnknown("no reply"))
    bench.settle()
    assert sorted(bench.sink.endings) == ["acked", "buried", "retried"]
    assert bench.depth() == (0, 0, 1, 1)
    assert not any("were rejected" in text for text in texts(caplog.records))


def test_a_stale_result_is_refused_and_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    began: Arrivals[int] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.attempt)
        if delivery.attempt == 1:
            go_on.wait()

    bench.send(b"x")
    bench.feed()
    assert began.next() == 1
    bench.clock.advance(31)  # nobody made the lease longer, and nobody noticed
    bench.feed()
    assert began.next() == 2
    bench.settle_next()
    go_on.set()
    bench.settle()
    assert bench.sink.endings == ["acked", "lease_lost"]
    assert any("1 settlement refused because of expired leases" in text for text in texts(caplog.records))
    assert bench.depth() == (0, 0, 0, 0)


def test_one_that_cannot_be_settled_does_not_keep_the_others(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    _handle_by_body(bench)
    bench.send(*[b"fine"] * 3)
    run = bench.run
    bench.feed()
    held = run.context.leased
    finished: list[FinishedMessage] = []
    while len(finished) < 3:
        finished += held.take_finished(3, 1.0)
    finished[1] = FinishedMessage(finished[1].message, RetryLater(-1.0))  # no backend takes that
    held.put_back(finished)
    bench.settle()
    assert bench.sink.endings == ["acked", "acked"]
    assert bench.depth() == (0, 1, 0, 0)
    assert any("cannot be settled, and will be delivered again" in text for text in texts(caplog.records))


def test_what_was_settled_before_the_backend_went_away_is_not_settled_and_told_again(bench: Bench) -> None:
    """One of them cannot be settled, so that it is done one by one; and that is interrupted."""
    _handle_by_body(bench)
    bench.send(*[b"fine"] * 3)
    bench.feed()
    held = bench.run.context.leased
    finished: list[FinishedMessage] = []
    while len(finished) < 3:
        finished += held.take_finished(3, 1.0)
    held.put_back(finished)
    calls = 0

    def fail_at_times() -> None:
        nonlocal calls
        calls += 1
        if calls in (1, 3):  # the batch, and the second of those that are settled alone
            bench.backend.fail("settle", ValueError("no") if calls == 1 else EngineUnavailable("away"))

    bench.backend.on["settle"] = fail_at_times
    bench.settle()
    assert [event.delivery.id for event in bench.sink.handled] == [one.message.delivery.id for one in finished]
    assert bench.sink.endings == ["acked"] * 3
    assert calls == 4  # the batch, the first, the second in vain, and those that were left
    assert bench.depth() == (0, 0, 0, 0)


def test_nothing_is_paid_for_events_without_a_sink() -> None:
    bench = Bench()
    bench.worker._sink = None
    _handle_by_body(bench)
    bench.send(b"fine")
    bench.work()
    assert not bench.run.context.events.is_enabled
    assert bench.depth() == (0, 0, 0, 0)


def test_a_sink_that_raises_harms_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Raises:
        def emit(self, event: object) -> None:
            raise OSError("no space left on device")

    bench.worker._sink = Raises()
    seen = _handle_by_body(bench)
    for _ in range(5):
        bench.send(b"fine")
        bench.work()
    assert len(seen) == 5
    assert bench.depth() == (0, 0, 0, 0)
    # Ten events were lost, and not every one of them is worth a traceback.
    assert len([text for text in texts(caplog.records) if "the sink raised an error" in text]) == 4

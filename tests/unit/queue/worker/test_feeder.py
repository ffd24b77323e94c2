"""A worker asks for messages, as many as it can handle."""

import threading

import pytest

from holdfast._errors import EngineUnavailable, OutcomeUnknown
from holdfast.queue import Delivery, Limits, QueuePolicy
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.rules.leasing import PERIOD
from holdfast.queue.worker import fetcher as fetcher_module
from tests.unit.queue.worker.bench import Arrivals, Bench


class Waits:
    """A handler that goes on when it may."""

    def __init__(self, go: threading.Event) -> None:
        self._go = go

    def __call__(self, _: Delivery) -> None:
        self._go.wait()


@pytest.fixture
def bench() -> Bench:
    bench = Bench(concurrency=4)
    bench.queue.handle()(lambda _: None)
    return bench


def test_it_asks_for_as_many_as_can_be_handled_at_a_time(bench: Bench) -> None:
    bench.send(*[b"x"] * 100)
    bench.feed()
    [polled] = bench.sink.polled
    assert (polled.queue, polled.requested, polled.at) == ("work", 4, bench.clock.wall())
    assert len(polled.result.deliveries) == 4
    assert not polled.is_empty
    bench.settle()


def test_it_asks_for_more_the_quicker_they_are_handled(bench: Bench) -> None:
    bench.backend.on["lease"] = lambda: bench.clock.advance(0.002)
    bench.send(*[b"x"] * 1000)
    for _ in range(15):
        bench.work()
        bench.clock.advance(0.01)
    assert bench.sink.polled[0].requested == 4
    assert bench.sink.polled[-1].requested > 8


def test_what_is_in_flight_is_bounded() -> None:
    bench = Bench(concurrency=4)
    go = threading.Event()
    began: Arrivals[int] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.id)
        go.wait()

    bench.send(*[b"x"] * 100)
    bench.feed()
    for _ in range(4):
        began.next()
    for _ in range(3):
        bench.run.fetcher.step()
    assert len(bench.run.context.leased) == 4
    assert bench.depth() == (96, 4, 0, 0)
    go.set()
    bench.settle()


def test_an_empty_poll_is_told(bench: Bench) -> None:
    bench.run.fetcher.is_stopping = True  # so that it does not wait
    bench.feed()
    [polled] = bench.sink.polled
    assert polled.is_empty


def test_it_looks_again_when_something_falls_due(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: the backend says when."""
    waited: list[float] = []

    def wait(_: str, seconds: float) -> bool:
        waited.append(seconds)
        return False

    monkeypatch.setattr(bench.backend, "wait", wait)
    bench.queue.send(b"x", tenant="a", delay=0.25)
    bench.feed()
    assert sum(waited) == pytest.approx(0.25, abs=0.06)
    waited.clear()
    bench.clock.advance(0.25)
    bench.work()
    assert waited == []
    bench.feed()
    assert sum(waited) == pytest.approx(fetcher_module.IDLE_SECONDS)


def test_a_bell_that_rings_in_vain_is_not_followed_at_once_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another queue of the same store is busy: each of its commits might have been for this one."""
    monkeypatch.setattr(bench.backend, "wait", lambda *_: True)
    pauses = [bench.run.fetcher.step() for _ in range(12)]
    assert pauses[:2] == [0.0, 0.0]
    assert pauses[2:] == sorted(pauses[2:])
    assert pauses[-1] == fetcher_module.MAX_WAKE_PAUSE
    bench.send(b"x")
    assert bench.run.fetcher.step() == 0.0
    bench.settle()
    assert bench.run.fetcher.step() == 0.0


def test_a_stopping_worker_does_not_wait_for_messages(bench: Bench) -> None:
    bench.run.fetcher.is_stopping = True
    bench.feed()
    assert "wait" not in bench.backend.calls


@pytest.mark.parametrize("error", [EngineUnavailable("away"), OutcomeUnknown("no reply")])
def test_it_goes_on_when_the_backend_is_back(bench: Bench, error: Exception) -> None:
    bench.send(b"x")
    bench.backend.fail("lease", error, error)
    loop = bench.run.fetcher.loop
    assert loop.run_step() > 0
    assert loop.run_step() > 0
    assert loop.run_step() == 0
    bench.settle()
    assert bench.sink.troubles == [("lease", type(error).__name__)] * 2
    assert bench.sink.endings == ["acked"]


def test_a_lease_whose_reply_was_lost_is_found_again(bench: Bench) -> None:
    bench.send(b"x")
    bench.backend.lose_reply("lease", OutcomeUnknown("no reply"))
    bench.run.fetcher.loop.run_step()
    assert bench.depth() == (0, 1, 0, 0)
    bench.clock.advance(31)
    bench.work()
    assert bench.sink.endings == ["acked"]
    assert bench.sink.handled[0].delivery.attempt == 2


def test_a_lease_is_counted_from_before_it_was_asked_for(bench: Bench) -> None:
    """However long the answer takes: a handler must end before the store thinks that the lease does."""
    go = threading.Event()
    bench.queue.handler = Waits(go)
    bench.send(b"x")
    began = bench.clock.monotonic()
    bench.backend.on["lease"] = lambda: bench.clock.advance(7)
    bench.feed()
    [running] = bench.run.context.leased.list_undecided()
    assert running.lease_ends_at == began + 30
    go.set()


def test_shares_are_counted_over_all_that_was_taken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    wants: list[LeaseRequest] = []
    lease = bench.backend.lease

    def remember(want: LeaseRequest) -> object:
        wants.append(want)
        return lease(want)

    monkeypatch.setattr(bench.backend, "lease", remember)
    bench.send(*[b"x"] * 12)
    for _ in range(3):
        bench.work()
    first = wants[0].leased_so_far
    assert [want.leased_so_far for want in wants] == [first, first + 4, first + 8]


def test_workers_that_start_together_do_not_spend_their_turns_on_the_same_shares() -> None:
    begun: set[int] = set()
    for _ in range(5):
        bench = Bench()
        bench.queue.handle()(lambda _: None)
        begun.add(bench.run.fetcher._leased_so_far)
    assert len(begun) > 1
    assert all(0 <= before < PERIOD for before in begun)


def test_a_tenant_at_its_limit_is_looked_at_again_when_a_message_of_its_is_settled() -> None:
    bench = Bench(concurrency=8)
    bench.queue.open()
    bench.backend.change("work", QueueChange(policy=QueuePolicy(limits=Limits(concurrency=1))))
    bench.queue.handle()(lambda _: None)
    bench.send(b"1", b"2", b"3")
    for _ in range(3):
        bench.work()
    assert [event.delivery.body for event in bench.sink.handled] == [b"1", b"2", b"3"]


def test_what_is_leased_while_the_worker_stops_is_handed_back(bench: Bench) -> None:
    bench.send(b"x")
    bench.backend.on["lease"] = lambda: setattr(bench.run.fetcher, "is_stopping", True)
    bench.work()
    assert bench.depth() == (1, 0, 0, 0)
    assert bench.sink.endings == []


def test_it_does_not_poll_while_it_has_enough(bench: Bench) -> None:
    go = threading.Event()
    bench.queue.handler = Waits(go)
    bench.send(*[b"x"] * 8)
    bench.feed()
    for _ in range(3):
        bench.run.fetcher.step()
    assert bench.backend.calls.count("lease") == 1
    go.set()
    bench.settle()

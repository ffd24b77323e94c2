"""Endpoints that are asked for again and again, and always known at once."""

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast import EngineError, EngineUnavailable, InvalidValue, Zone
from holdfast.calls.endpoints import Endpoints
from holdfast.calls.resolvers import AddressesByZone, FunctionResolver, RefreshingEndpointCache
from holdfast.testing import FakeClock
from tests.unit.forked import in_child

ONE, TWO = Zone("az1"), Zone("az2")
STUCK = 10.0
"""Real seconds until a test is taken to be stuck."""


class Scripted:
    """A resolver that answers what a test tells it to, and says when it did."""

    def __init__(self, answer: AddressesByZone | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.held = threading.Event()
        self.held.set()
        self._changed = threading.Condition()

    def resolve(self) -> AddressesByZone:
        answer = self.answer
        with self._changed:
            self.asked += 1
            self._changed.notify_all()
        assert self.held.wait(STUCK)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_until_asked(self, times: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.asked >= times, STUCK)


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    yield FakeClock()
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-endpoints"):
            thread.join(STUCK)
            assert not thread.is_alive(), "a thread goes on after stop"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "holdfast.calls")
    return caplog


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + STUCK
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def refreshing(resolver: Scripted, clock: FakeClock, interval: float = 30.0) -> RefreshingEndpointCache:
    return RefreshingEndpointCache(resolver, interval, clock=clock, name="pricing", chance=random.Random(1).random)


# Starting and stopping


def test_after_start_the_endpoints_are_known(clock: FakeClock) -> None:
    with refreshing(Scripted({ONE: ["a"]}), clock) as known:
        assert known.current() == {ONE: ("a",)}
        assert known.age == 0


def test_before_start_nothing_is_known_and_that_is_said(clock: FakeClock) -> None:
    known = refreshing(Scripted({ONE: ["a"]}), clock)
    assert known.age is None
    with pytest.raises(EngineError, match="endpoints of pricing are not known yet: call start"):
        known.current()


@pytest.mark.parametrize("failure", [EngineUnavailable("away"), {}, {ONE: []}], ids=["error", "empty", "empty zone"])
def test_a_first_start_that_finds_nobody_raises_and_may_be_repeated(
    failure: AddressesByZone | Exception, clock: FakeClock
) -> None:
    resolver = Scripted(failure)
    known = refreshing(resolver, clock)
    with pytest.raises(EngineUnavailable):
        known.start()
    resolver.answer = {ONE: ["a"]}
    with known:
        assert known.current() == {ONE: ("a",)}


def test_with_endpoints_to_begin_with_the_start_does_not_wait_and_a_thread_asks_at_once(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["new"]})
    resolver.held.clear()
    with RefreshingEndpointCache(resolver, initial={ONE: ["old"]}, clock=clock) as known:
        assert known.current() == {ONE: ("old",)}
        resolver.wait_until_asked(1)
        resolver.held.set()
        until(lambda: known.current() == {ONE: ("new",)})


def test_start_and_stop_may_be_repeated_and_what_is_known_stays(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"]})
    known = refreshing(resolver, clock)
    known.stop()
    assert known.start() is known.start()
    threads = [thread for thread in threading.enumerate() if thread.name == "holdfast-endpoints-pricing"]
    assert len(threads) == 1, "one thread, however often it is started"
    known.stop()
    known.stop()
    assert known.current() == {ONE: ("a",)}
    resolver.answer = {ONE: ["b"]}
    known.start()
    resolver.wait_until_asked(2)
    known.refresh()
    assert known.current() == {ONE: ("b",)}
    known.stop()


def test_a_look_up_that_ends_after_the_stop_changes_nothing_and_is_not_complained_of(
    clock: FakeClock, log: pytest.LogCaptureFixture
) -> None:
    for late in ({ONE: ["late"]}, EngineError("the session is closed"), RuntimeError("the same")):
        resolver = Scripted(late)
        resolver.held.clear()
        known = RefreshingEndpointCache(resolver, initial={ONE: ["a"]}, clock=clock, name="late").start()
        resolver.wait_until_asked(1)
        known.stop()
        resolver.held.set()
        for thread in threading.enumerate():
            if thread.name == "holdfast-endpoints-late":
                thread.join(STUCK)
        assert known.current() == {ONE: ("a",)}
    assert log.messages == []


@pytest.mark.parametrize("interval", [0.0, -1.0, float("inf"), float("nan")])
def test_a_period_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(InvalidValue, match=r"interval is .*: expected seconds, more than 0"):
        RefreshingEndpointCache(Scripted({}), interval)


# Again and again


def test_changes_are_known_with_the_next_look_up(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"]})
    with refreshing(resolver, clock, interval=0.01) as known:
        endpoints = Endpoints(known)
        assert {endpoints.next().address for _ in range(4)} == {"a"}
        resolver.answer = {ONE: ["a"], TWO: ["b"]}
        until(lambda: {endpoints.next().address for _ in range(4)} == {"a", "b"})


def test_after_the_first_answer_a_thread_waits_for_a_period_before_it_asks(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"]})
    known = refreshing(resolver, clock)
    known._is_fresh = True
    assert 24 <= known._loop.run_step() <= 36
    assert resolver.asked == 0
    known._loop.run_step()
    assert resolver.asked == 1


@pytest.mark.parametrize("answer", [{ONE: ["a"]}, EngineUnavailable("away")])
def test_the_pauses_differ_by_a_fifth_so_that_processes_drift_apart(
    answer: AddressesByZone | Exception, clock: FakeClock
) -> None:
    known = refreshing(Scripted(answer), clock, interval=30.0)
    pauses = [known._loop.run_step() for _ in range(200)]
    assert len(set(pauses)) == 200
    assert 24 <= min(pauses) < 25 < 35 < max(pauses) <= 36


def test_no_caller_waits_while_a_look_up_hangs(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"]})
    with refreshing(resolver, clock, interval=0.01) as known:
        resolver.held.clear()
        resolver.answer = {ONE: ["b"]}
        resolver.wait_until_asked(resolver.asked + 1)
        assert known.current() == {ONE: ("a",)}
        resolver.held.set()
        until(lambda: known.current() == {ONE: ("b",)})


# What goes wrong


@pytest.mark.parametrize(
    "failure",
    [EngineUnavailable("away"), OSError("no route"), {}, {ONE: []}, {ONE: "http://a"}],
    ids=["error", "system", "empty", "empty zone", "text"],
)
def test_what_was_last_known_stays_and_the_log_says_so_once(
    failure: AddressesByZone | Exception, clock: FakeClock, log: pytest.LogCaptureFixture
) -> None:
    resolver = Scripted({ONE: ["a"], TWO: ["b"]})
    with refreshing(resolver, clock) as known:
        log.clear()
        resolver.answer = failure
        assert [known.refresh() for _ in range(3)] == [False, False, False]
        assert known.current() == {ONE: ("a",), TWO: ("b",)}
        [warning] = log.records
        assert (warning.levelname, warning.getMessage().partition(":")[0]) == (
            "WARNING",
            "cannot look up the endpoints of pricing, trying again in 30.00 s",
        )
        resolver.answer = {ONE: ["a"], TWO: ["b"]}
        assert [known.refresh() for _ in range(2)] == [True, True]
        assert log.messages[1:] == ["can look up the endpoints of pricing again, after 3 failed attempts"]
        resolver.answer = failure
        known.refresh()
        assert len(log.records) == 3, "another failure is told again"


def test_what_nobody_foresaw_is_told_with_its_trace_and_the_thread_goes_on(
    clock: FakeClock, log: pytest.LogCaptureFixture
) -> None:
    resolver = Scripted({ONE: ["a"]})
    with refreshing(resolver, clock, interval=0.01) as known:
        log.clear()
        resolver.answer = RuntimeError("a bug")
        resolver.wait_until_asked(resolver.asked + 4)
        assert [record.exc_info is not None for record in log.records] == [True]
        resolver.answer = {ONE: ["b"]}
        until(lambda: known.current() == {ONE: ("b",)})


def test_a_zone_that_disappears_while_others_stay_is_gone(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"], TWO: ["b"]})
    with refreshing(resolver, clock) as known:
        resolver.answer = {ONE: ["a"], TWO: []}
        assert known.refresh()
        assert known.current() == {ONE: ("a",)}


def test_a_change_is_logged_once_and_another_order_is_none(clock: FakeClock, log: pytest.LogCaptureFixture) -> None:
    resolver = Scripted({ONE: ["a", "b"]})
    with refreshing(resolver, clock) as known:
        before = known.current()
        resolver.answer = {ONE: ["b", "a"]}
        known.refresh()
        assert known.current() is before
        resolver.answer = {ONE: ["b", "c"]}
        known.refresh()
        known.refresh()
    assert log.messages == [
        "endpoints of pricing changed: now 2; added: a in az1, b in az1; removed: none",
        "endpoints of pricing changed: now 2; added: c in az1; removed: a in az1",
    ]


def test_the_age_says_since_when_nobody_was_found(clock: FakeClock) -> None:
    resolver = Scripted({ONE: ["a"]})
    with refreshing(resolver, clock, interval=600.0) as known:
        clock.advance(0.5)
        assert known.age == 0.5
        resolver.answer = EngineUnavailable("away")
        known.refresh()
        assert known.age == 0.5
        resolver.answer = {ONE: ["a"]}
        known.refresh()
        assert known.age == 0


# Forks


@pytest.mark.parametrize("known", [None, {ONE: ["a"]}])
def test_a_forked_child_goes_on_asking(known: AddressesByZone | None) -> None:
    in_the_child: list[threading.Event] = []

    def look() -> AddressesByZone:
        for event in in_the_child:
            event.set()
        return {ONE: ["a"]}

    def work() -> bool:
        in_the_child.append(threading.Event())
        return in_the_child[0].wait(STUCK)

    with RefreshingEndpointCache(FunctionResolver(look), interval=0.01, initial=known):
        in_child(work)


def test_a_forked_child_of_one_that_does_not_ask_does_not_ask_either() -> None:
    idle = RefreshingEndpointCache(FunctionResolver(lambda: {ONE: ["a"]}))
    stopped = RefreshingEndpointCache(FunctionResolver(lambda: {ONE: ["a"]})).start()
    stopped.stop()
    for known in (idle, stopped):
        in_child(lambda: threading.active_count() == 1)
        known.stop()


def test_a_look_up_that_is_under_way_at_the_fork_keeps_nobody_in_the_child_from_asking() -> None:
    parent, asked, held = os.getpid(), threading.Event(), threading.Event()

    def look() -> AddressesByZone:
        if os.getpid() == parent:
            asked.set()
            assert held.wait(STUCK)
        return {ONE: ["new"]}

    with RefreshingEndpointCache(FunctionResolver(look), initial={ONE: ["old"]}) as known:
        assert asked.wait(STUCK)

        def work() -> bool:
            return known.refresh() and known.current() == {ONE: ("new",)} and known.start() is known

        try:
            in_child(work)
        finally:
            held.set()

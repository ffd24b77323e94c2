"""Queues in memory keep the promises of the seam, and the books that they are kept in are right."""

from collections.abc import Iterator, Sized
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import EngineError
from holdfast.queue import open_backend
from holdfast.queue.backend import Backend, MessageState, QueueChange
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.backends.memory.book import Book, Place
from holdfast.queue.backends.memory.due import AT_ONCE
from holdfast.queue.backends.memory.keys import Keys, Known
from holdfast.queue.backends.memory.look import LANES
from holdfast.queue.backends.memory.ordered import CHUNK, Ordered
from holdfast.queue.message import Ack, Bury, RefusedMessage, Release, RetryLater, SentMessage
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.queue.rules.admission import FORGET_AFTER
from holdfast.queue.rules.leasing import MAX_LANES_BY_RANK as LOOKED_AT
from holdfast.queue.rules.leasing import MAX_SKIPPED, RECHECK_SECONDS
from holdfast.queue.rules.placement import own_lane
from holdfast.testing import FakeClock
from holdfast.testing.queue import Probe
from holdfast.testing.queue.probe import DepthCounts, ids, message
from tests.conformance.queue_backend import BuiltInConformance


class TestMemory(BuiltInConformance):
    @pytest.fixture
    def backend(self, clock: FakeClock) -> Iterator[Backend]:
        with MemoryBackend(clock) as backend:
            yield backend


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def backend(clock: FakeClock) -> Iterator[MemoryBackend]:
    with MemoryBackend(clock) as backend:
        yield backend


@pytest.fixture
def work(backend: MemoryBackend, clock: FakeClock) -> Probe:
    return Probe(backend, clock.advance)


def book_of(work: Probe) -> Book:
    backend = work.backend
    assert isinstance(backend, MemoryBackend)
    return backend._books[work.queue]


# Opening, waiting and closing


def test_an_address_opens_it_with_its_clock(clock: FakeClock) -> None:
    with open_backend("memory:", clock=clock) as backend:
        assert isinstance(backend, MemoryBackend)
        backend.change("work", QueueChange(), create=True)
        assert backend.inspect("work").at == clock.wall()


def test_what_is_closed_says_so_and_holds_nothing(backend: MemoryBackend, work: Probe) -> None:
    work.put()
    delivery = work.lease_one()
    work.put()
    backend.close()
    backend.close()
    for use in (work.put, work.inspect, work.lease, lambda: work.settle(Ack(), delivery), lambda: work.another("new")):
        with pytest.raises(EngineError, match="closed"):
            use()
    assert backend.wait("work", 60.0), "nobody is kept waiting for what will not come"
    assert not backend._books
    assert not backend._messages


def test_whoever_waits_is_let_go_when_it_is_closed(backend: MemoryBackend, work: Probe) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(backend.wait, "work", 60.0)
        backend.close()
        assert waiting.result(30.0)
    assert work.queue == "work"


def test_nobody_waits_for_a_queue_that_is_not_there(backend: MemoryBackend) -> None:
    assert not backend.wait("nobody", 0.0)


def test_whatever_can_be_had_is_not_waited_for(backend: MemoryBackend, work: Probe) -> None:
    work.put(delay=5.0)
    assert not backend.wait("work", 0.0)
    work.advance_time(6.0)
    assert backend.wait("work", 60.0), "what was delayed is due"
    held = work.lease_one(lease=5.0)
    assert not backend.wait("work", 0.0)
    work.settle(Release(), held)
    assert backend.wait("work", 60.0), "what was handed back waits"
    work.lease_one(lease=5.0)
    work.advance_time(6.0)
    assert backend.wait("work", 60.0), "a lease has ended"


def test_a_tenant_at_its_limit_is_waited_for(backend: MemoryBackend, work: Probe) -> None:
    work.set_limits(concurrency=1)
    work.put(count=3)
    held = work.lease_one()
    assert work.lease() == []
    assert not backend.wait("work", 0.0)
    work.ack(held)
    assert backend.wait("work", 60.0)


def test_whoever_waits_is_woken_by_what_others_settle(backend: MemoryBackend, work: Probe) -> None:
    first, second = work.put(count=2, group="g")
    held = work.lease_one()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(backend.wait, "work", 60.0)
        work.ack(held)
        assert waiting.result(30.0)
    assert [held.id, work.lease_one().id] == [first, second]


# The books


def test_nothing_is_left_of_what_is_gone(work: Probe) -> None:
    """Of messages, groups, keys and leases: a process that runs for long must not grow."""
    work.change_policy(ttl=50.0, dedupe_for=60.0, spill_above=3, max_attempts=2)
    for tenant in "abc":
        work.put(tenant, 5, ttl=5.0)
        work.put(tenant, 5, group="g", priority=1)
        work.put(tenant, delay=3.0, key="k")
    work.settle(RetryLater(2.0), *work.lease(5))
    work.settle(Bury("why"), *work.lease(5))
    work.settle(Release(), *work.lease(3))
    work.lease(3, lease=1.0)
    work.advance_time(4.0)
    work.settle(RetryLater(2.0), *work.lease(5))
    work.redrive(limit=3)
    work.advance_time(20.0)
    work.drain()
    work.backend.redrive(work.query(), discard=True)
    work.advance_time(100.0)
    assert work.backend.sweep("work") >= 0
    work.backend.redrive(work.query(), discard=True)
    assert work.depth == DepthCounts()
    book = book_of(work)
    kept: list[Sized] = [book.messages, book.groups, book.busy, book.dead, book.keys, *book.ranks]
    kept += [book.held, book.parked, book.resent, book.mortal]
    assert [len(one) for one in kept] == [0] * 17
    assert all(
        (tenant.ready, tenant.spilled, tenant.leased, tenant.dead) == (0, 0, 0, 0) for tenant in book.tenants.values()
    )
    work.advance_time(FORGET_AFTER)
    work.backend.sweep("work")
    assert not book.tenants
    assert all(0 <= number < own_lane(0, 0) for number in book.lanes), "those that tenants share stay"


def test_the_id_of_a_forgotten_tenant_is_not_used_again(work: Probe) -> None:
    """Its lanes are named after it."""
    work.put("a")
    work.put("b")
    work.ack(*work.lease(2))
    work.put("b")
    work.advance_time(FORGET_AFTER)
    work.backend.sweep("work")
    work.put("c")
    assert {tenant.name: tenant.id for tenant in book_of(work).tenants.values()} == {"b": 2, "c": 3}


def test_a_worker_gets_what_there_is_though_much_is_in_its_way(work: Probe) -> None:
    """One at a time, behind more messages of a tenant that may have none than are moved aside in one step."""
    work.change_policy(
        lanes=1, lanes_per_tenant=1, spill_above=None, backlog_share=0.1, low_priority_share=0.1, spill_share=0.1
    )
    work.set_limits("a", concurrency=1)
    work.put("a", MAX_SKIPPED + 500)
    [other] = work.put("b")
    assert work.lease(1)[0].tenant == "a"
    found = work.request_lease(1)
    assert (found.spilled, list(found.deliveries), found.next_due) == (MAX_SKIPPED, [], 0.0)
    found = work.request_lease(1)
    assert (found.spilled, ids(found.deliveries), found.next_due) == (499, [other], None)


def test_what_was_just_moved_aside_may_be_had_at_once(work: Probe) -> None:
    """By whoever has nothing better to do: the tenant is over its rate, not at its limit."""
    work.put(count=10)
    work.set_limits(spill_rate=1.0, spill_burst=3.0)
    found = work.request_lease()
    assert (len(found.deliveries), found.spilled, found.next_due) == (3, 7, 0.0)
    assert len(work.lease()) == 7


def test_a_tenant_at_its_limit_is_left_alone_for_a_while(work: Probe) -> None:
    """Whoever settles one of its messages, or changes its limit, is not the only one to end that."""
    work.set_limits(concurrency=1)
    work.put(count=3)
    found = work.request_lease()
    assert (len(found.deliveries), found.spilled) == (1, 2)
    assert found.next_due == pytest.approx(RECHECK_SECONDS)
    work.set_limits(concurrency=5)
    assert work.lease() == []
    work.advance_time(RECHECK_SECONDS)
    assert len(work.lease()) == 2


def test_more_lanes_than_are_looked_at_have_their_turn(work: Probe) -> None:
    work.change_policy(lanes_per_tenant=0)
    tenants = LOOKED_AT[0] + 50
    work.send_accepted(*(message(f"t{number}") for number in range(tenants)))
    work.advance_time(3600.0)
    found = work.request_lease(tenants)
    assert (len(found.deliveries), found.next_due) == (LOOKED_AT[0], 0.0)
    assert len(work.lease(tenants)) == 50


def test_more_lanes_than_are_listed_are_counted(work: Probe) -> None:
    work.change_policy(lanes_per_tenant=0)
    for begin in range(0, LANES + 100, 100):
        work.send_accepted(*(message(f"t{begin + number}") for number in range(100)))
    work.put("t7")
    snapshot = work.inspect()
    assert (len(snapshot.lanes), snapshot.lanes_left_out) == (LANES, 2200 - LANES)
    assert snapshot.lanes[0].ready == 2
    assert (snapshot.totals.ready, snapshot.totals.lanes_in_use) == (2201, 2200)
    bare = work.backend.inspect("work", lanes=False, top=0)
    assert (list(bare.lanes), bare.lanes_left_out) == ([], 0)


def test_dead_letters_in_lanes_that_are_not_listed_are_counted(work: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.queue.backends.memory.look.LANES", 2)
    work.change_policy(lanes_per_tenant=0)
    work.put("poisoned")
    work.settle(Bury("why"), *work.lease())
    for tenant in "abc":
        work.put(tenant)
    assert (len(work.inspect().lanes), work.inspect().totals.dead) == (2, 1)


def test_more_that_is_due_than_fits_into_one_step_is_swept(work: Probe) -> None:
    work.put("a", AT_ONCE)
    work.put("a", AT_ONCE, delay=1.0)
    assert len(work.lease(AT_ONCE, lease=1.0)) == AT_ONCE
    work.advance_time(2.0)
    assert work.backend.sweep("work") == 0
    assert work.depth == DepthCounts(ready=2 * AT_ONCE)


def test_a_message_says_where_it_is(work: Probe) -> None:
    other = work.another("other")
    [elsewhere] = other.put()
    [buried] = work.put()
    work.settle(Bury("why"), work.lease_one())
    leased, parked = work.put(count=2, group="g")
    until = work.now + 30.0
    assert work.lease_one().id == leased
    [waiting] = work.put()
    [delayed] = work.put(delay=5.0)
    asked = [buried, leased, parked, waiting, delayed, elsewhere, 10**9, -1]
    found = work.backend.inspect("work", messages=asked).messages
    assert {number: state.state for number, state in found.items()} == {
        buried: MessageState.DEAD,
        leased: MessageState.LEASED,
        parked: MessageState.DELAYED,
        waiting: MessageState.READY,
        delayed: MessageState.DELAYED,
    }
    assert [found[number].until for number in (leased, parked, waiting, delayed)] == [
        *(pytest.approx(until), None, None, pytest.approx(work.now + 5.0)),
    ]
    assert [found[number].attempts for number in (buried, leased, waiting)] == [1, 1, 0]
    work.advance_time(40.0)
    found = work.backend.inspect("work", messages=[leased, delayed]).messages
    assert {state.state for state in found.values()} == {MessageState.READY}, "what is due waits, though nobody came by"


def test_the_second_retry_counts_from_the_same_beginning(work: Probe) -> None:
    work.put()
    first = work.lease_one()
    work.settle(RetryLater(5.0), first)
    work.advance_time(6.0)
    work.settle(RetryLater(5.0), work.lease_one())
    work.advance_time(6.0)
    third = work.lease_one()
    assert (third.attempt, third.sent_at) == (3, first.sent_at)
    assert third.ready_since == pytest.approx(first.ready_since + 11.0)


def test_lanes_take_turns_within_one_moment(work: Probe) -> None:
    """Though time stands still between the leases."""
    work.change_policy(lanes_per_tenant=0)
    for tenant in "abc":
        work.put(tenant, 5)
    assert "".join(work.lease(1)[0].tenant for _ in range(9)) == "abc" * 3


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=15))
def test_what_becomes_of_a_tenants_messages_does_not_depend_on_others(sends: list[tuple[bool, int]]) -> None:
    def play(others: bool) -> list[tuple[object, ...]]:
        clock = FakeClock()
        with MemoryBackend(clock) as backend:
            limits = Limits(spill_rate=3.0, spill_burst=5.0, max_rate=20.0, max_burst=40.0)
            policy = QueuePolicy(lanes=1, lanes_per_tenant=1, spill_above=60, max_waiting=100, limits=limits)
            backend.change("work", QueueChange(policy=policy), create=True)
            found: list[tuple[object, ...]] = []
            for is_other, count in sends:
                clock.advance(0.7)
                if not is_other or others:
                    results = backend.send("work", [message("other" if is_other else "mine")] * count)
                    found += [] if is_other else map(_fate, results)
            return found

    assert play(others=True) == play(others=False)


def _fate(result: SentMessage | RefusedMessage) -> tuple[object, ...]:
    if isinstance(result, RefusedMessage):
        return result.reason, result.retry_after, result.pressure
    return result.is_spilled, result.pressure


def test_threads_share_it(work: Probe) -> None:
    """What all of them send is handled once, and no counter is off."""

    def run(worker: int) -> int:
        handled = 0
        for _ in range(20):
            work.put(f"t{worker}", 5)
            some = work.lease(4)
            work.ack(*some)
            handled += len(some)
        return handled

    with ThreadPoolExecutor(6) as threads:
        handled = sum(threads.map(run, range(6)))
    assert handled + len(work.drain()) == 600
    assert work.depth == DepthCounts()


def test_a_message_is_nowhere_when_it_is_gone(work: Probe) -> None:
    work.put()
    book = book_of(work)
    [kept] = book.messages.values()
    places = [kept.place]
    delivery = work.lease_one()
    places.append(kept.place)
    work.ack(delivery)
    assert [*places, kept.place] == [Place.READY, Place.LEASED, Place.NOWHERE]


# What they are made of

NUMBERS = st.integers(0, 30)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), unique=True), st.data())
def test_things_stay_in_their_order(keys: list[tuple[int, int]], data: st.DataObject) -> None:
    ordered: Ordered[str] = Ordered()
    for key in keys:
        ordered.add(*key, str(key))
    gone = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    for key in gone:
        ordered.remove(*key)
    _same(ordered, sorted(set(keys) - gone), *sorted(data.draw(st.tuples(NUMBERS, NUMBERS))))


def _same(ordered: Ordered[str], keys: list[tuple[int, int]], least: int, most: int) -> None:
    assert len(ordered) == len(keys)
    assert list(ordered.between(least, most)) == [str(key) for key in keys if least <= key[0] <= most]
    assert ordered.first(least) == min((first for first, _ in keys if first >= least), default=None)
    assert ordered.last() == max((first for first, _ in keys), default=None)


@pytest.mark.parametrize("step", [1, -1, 7])
def test_many_things_stay_in_their_order(step: int) -> None:
    """From the front, from the back, and from anywhere."""
    many = 5 * CHUNK
    assert many % 7
    numbers = [place * step % many for place in range(many)]
    ordered: Ordered[str] = Ordered()
    for number in numbers:
        ordered.add(number // 3, number, str((number // 3, number)))
    keys = [(number // 3, number) for number in range(many)]
    _same(ordered, keys, 100, many // 4)
    assert max(map(len, ordered._chunks)) <= 2 * CHUNK
    for number in numbers[: many - 3]:
        ordered.remove(number // 3, number)
    _same(ordered, sorted((number // 3, number) for number in numbers[-3:]), 0, many)
    for number in numbers[many - 3 :]:
        ordered.remove(number // 3, number)
    _same(ordered, [], 0, many)


def test_keys_are_known_until_their_time_is_over() -> None:
    keys = Keys()
    keys.keep(1, "k", Known(10, 2, 100))
    keys.keep(2, "k", Known(11, 2, 100))
    keys.keep(1, "later", Known(12, 2, 101))
    assert keys.find(1, "k") == Known(10, 2, 100)
    assert keys.find(3, "k") is None
    keys.forget(99)
    assert len(keys) == 3
    keys.forget(100)
    assert (keys.find(1, "k"), keys.find(2, "k"), len(keys)) == (None, None, 1)


def test_keys_can_be_made_to_end_earlier_but_not_later() -> None:
    keys = Keys()
    keys.keep(1, "soon", Known(10, 2, 100))
    keys.keep(1, "late", Known(11, 2, 200))
    keys.end_by(150)
    assert (keys.find(1, "soon"), keys.find(1, "late")) == (Known(10, 2, 100), Known(11, 2, 150))
    keys.forget(150)
    assert len(keys) == 0

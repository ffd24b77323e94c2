"""Ages of messages that took every way through a real store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.queue import Delivery, OutgoingMessage, open_backend
from holdfast.queue.backend import (
    Backend,
    Bury,
    DeadLetterQuery,
    LeaseRequest,
    QueueChange,
    Release,
    RetryLater,
    Settlement,
)
from holdfast.queue.depth import compute_delivery_age, is_first_attempt
from holdfast.testing import FakeClock
from tests.unit.queue.made import NOW, delivery


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture(params=["sqlite", "memory"])
def backend(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> Iterator[Backend]:
    address = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'work.sqlite'}"
    with open_backend(address, clock=clock) as backend:
        backend.change("mail", QueueChange(), create=True)
        yield backend


def send(backend: Backend, delay: float = 0.0, group: str | None = None) -> None:
    backend.send("mail", [OutgoingMessage(tenant="acme", body=b"", delay=delay, group=group)])


def receive(backend: Backend) -> Delivery:
    [received] = backend.lease(LeaseRequest(queue="mail", count=1, lease=30)).deliveries
    return received


def told(received: Delivery, clock: FakeClock) -> tuple[float, bool]:
    """Its age in seconds, and whether it is a first attempt; stores keep milliseconds."""
    return round(compute_delivery_age(received, clock.wall()), 2), is_first_attempt(received)


def test_a_message_is_as_old_as_it_has_waited(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    clock.advance(5)
    received = receive(backend)
    assert told(received, clock) == (5, True)


def test_the_delay_of_a_message_does_not_make_it_old(backend: Backend, clock: FakeClock) -> None:
    send(backend, delay=100)
    clock.advance(103)
    received = receive(backend)
    assert told(received, clock) == (3, True)


def test_a_retry_is_older_and_no_first_attempt(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    backend.settle([Settlement(receive(backend).receipt, RetryLater(60.0))])
    clock.advance(61)
    received = receive(backend)
    assert told(received, clock) == (61, False)


def test_a_message_of_a_worker_that_died_is_no_first_attempt(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    receive(backend)
    clock.advance(31)
    received = receive(backend)
    assert told(received, clock) == (31, False)


def test_a_message_that_was_handed_back_still_waits_for_its_first_attempt(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    clock.advance(5)
    backend.settle([Settlement(receive(backend).receipt, Release())])
    clock.advance(5)
    received = receive(backend)
    assert told(received, clock) == (10, True)


def test_a_message_that_was_postponed_waits_for_the_second_time(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    backend.settle([Settlement(receive(backend).receipt, RetryLater(3600.0, is_attempt=False))])
    clock.advance(3601)
    received = receive(backend)
    assert told(received, clock) == (3601, False)


def test_a_message_that_was_redriven_is_old_and_says_nothing_about_new_ones(backend: Backend, clock: FakeClock) -> None:
    send(backend)
    backend.settle([Settlement(receive(backend).receipt, Bury("no"))])
    clock.advance(86400)
    assert backend.redrive(DeadLetterQuery(queue="mail")) == 1
    clock.advance(1)
    received = receive(backend)
    assert received.attempt == 1
    assert told(received, clock) == (86401, False)


def test_a_message_that_waited_for_others_of_its_group_is_as_old_as_that(backend: Backend, clock: FakeClock) -> None:
    send(backend, group="one")
    send(backend, group="one")
    first = receive(backend)
    clock.advance(20)
    backend.settle([Settlement(first.receipt, Bury("no"))])
    received = receive(backend)
    assert told(received, clock) == (20, True)


def test_a_clock_behind_that_of_the_store_makes_nothing_younger_than_new() -> None:
    assert compute_delivery_age(delivery(age=-3.0), NOW) == 0.0

"""Clocks that jump: what is handled twice, what waits, and what does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.queue import Delivery, Limits, OutgoingMessage, QueuePolicy, RefusedMessage, SentMessage, open_backend
from holdfast.queue.backend import Ack, Backend, ExtendLease, LeaseRequest, QueueChange, RetryLater, Settlement
from holdfast.testing import FakeClock
from tests.integration.queue.places import depth

HOUR = 3600.0
LEASE = 30.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Backend]:
    """Those that go by the clock of their process; PostgreSQL goes by that of its server."""
    url = f"sqlite:{tmp_path / 'work.sqlite'}" if request.param == "sqlite" else "memory:"
    with open_backend(url, clock=clock) as backend:
        backend.change("work", QueueChange(policy=QueuePolicy(lease=LEASE)), create=True)
        yield backend


def send(backend: Backend, body: bytes, tenant: str = "a", **options: float | str) -> SentMessage | RefusedMessage:
    [result] = backend.send("work", [OutgoingMessage(tenant=tenant, body=body, **options)])  # type: ignore[arg-type]
    return result


def take(backend: Backend) -> list[Delivery]:
    return list(backend.lease(LeaseRequest(queue="work", count=10, lease=LEASE)).deliveries)


def done(backend: Backend, deliveries: list[Delivery]) -> list[bool]:
    return list(backend.settle([Settlement(delivery.receipt, Ack()) for delivery in deliveries]))


class TestForward:
    def test_leases_end_early_so_that_work_is_done_twice_and_none_is_lost(
        self, backend: Backend, clock: FakeClock
    ) -> None:
        send(backend, b"one")
        early = take(backend)
        clock.jump_wall(HOUR)
        again = take(backend)
        assert [(one.id, one.attempt) for one in again] == [(early[0].id, 2)]
        assert done(backend, early) == [False]
        assert done(backend, again) == [True]
        assert depth(backend, "work") == (0, 0, 0, 0)

    def test_a_worker_that_is_heard_of_keeps_what_it_holds_if_nobody_was_quicker(
        self, backend: Backend, clock: FakeClock
    ) -> None:
        send(backend, b"one")
        held = take(backend)
        clock.jump_wall(HOUR)
        assert done(backend, held) == [True]
        assert take(backend) == []

    def test_what_is_delayed_is_due_early(self, backend: Backend, clock: FakeClock) -> None:
        send(backend, b"later", delay=600.0)
        assert take(backend) == []
        clock.jump_wall(HOUR)
        assert [one.body for one in take(backend)] == [b"later"]


class TestBackward:
    def test_what_is_sent_afterwards_is_handled_at_once(self, backend: Backend, clock: FakeClock) -> None:
        """Also in lanes that were served shortly before."""
        for number in range(40):
            send(backend, b"%d" % number)
            assert done(backend, take(backend)) == [True]
        clock.jump_wall(-HOUR)
        send(backend, b"new")
        assert [one.body for one in take(backend)] == [b"new"]

    def test_what_waited_already_is_handled_at_once(self, backend: Backend, clock: FakeClock) -> None:
        for _ in range(20):
            send(backend, b"old")
        done(backend, take(backend))
        clock.jump_wall(-HOUR)
        assert [one.body for one in take(backend)] == [b"old"] * 10

    def test_what_a_dead_worker_held_is_delivered_again_after_its_lease(
        self, backend: Backend, clock: FakeClock
    ) -> None:
        send(backend, b"one")
        take(backend)
        clock.jump_wall(-HOUR)
        take(backend)
        clock.advance(1.2 * LEASE)
        assert [(one.body, one.attempt) for one in take(backend)] == [(b"one", 2)]

    def test_a_delay_is_as_long_as_it_was_to_be(self, backend: Backend, clock: FakeClock) -> None:
        send(backend, b"later", delay=600.0)
        clock.jump_wall(-HOUR)
        assert take(backend) == []
        clock.advance(601.0)
        assert [one.body for one in take(backend)] == [b"later"]

    def test_a_tenant_at_its_rate_may_send_again_as_soon_as_it_would_have_been_allowed_to(
        self, backend: Backend, clock: FakeClock
    ) -> None:
        backend.change("work", QueueChange(limits={"a": Limits(max_rate=1.0, max_burst=2.0)}))
        assert [type(send(backend, b"one")) for _ in range(3)] == [SentMessage, SentMessage, RefusedMessage]
        clock.jump_wall(-HOUR)
        send(backend, b"one")
        clock.advance(5.0)
        assert type(send(backend, b"one")) is SentMessage

    def test_a_key_is_still_known(self, backend: Backend, clock: FakeClock) -> None:
        send(backend, b"one", key="k")
        clock.jump_wall(-HOUR)
        second = send(backend, b"one", key="k")
        assert isinstance(second, SentMessage)
        assert second.is_duplicate

    def test_a_key_is_known_for_no_longer_than_it_was_to_be(self, backend: Backend, clock: FakeClock) -> None:
        """A clock that was a day ahead does not keep keys for a day."""
        clock.jump_wall(24 * HOUR)
        send(backend, b"one", key="k")
        send(backend, b"one", key="other")
        clock.jump_wall(-24 * HOUR)
        assert take(backend) != []
        clock.advance(299.0)
        again = send(backend, b"one", key="k")
        assert isinstance(again, SentMessage)
        assert again.is_duplicate
        clock.advance(2.0)
        backend.sweep("work")
        again = send(backend, b"one", key="k")
        assert isinstance(again, SentMessage)
        assert not again.is_duplicate

    def test_the_next_of_a_group_has_its_turn_at_once(self, backend: Backend, clock: FakeClock) -> None:
        for body in (b"1", b"2", b"3"):
            send(backend, body, group="g")
        send(backend, b"4", group="g", delay=600.0)
        held = take(backend)
        clock.jump_wall(-HOUR)
        for body in (b"2", b"3"):
            assert done(backend, held) == [True]
            held = take(backend)
            assert [one.body for one in held] == [body]
        assert done(backend, held) == [True]
        assert take(backend) == [], "its own delay is as long as it was"
        clock.advance(601.0)
        assert [one.body for one in take(backend)] == [b"4"]

    @pytest.mark.parametrize("body", [b"one", b"grouped"])
    def test_a_worker_that_is_heard_of_keeps_what_it_holds(
        self, backend: Backend, clock: FakeClock, body: bytes
    ) -> None:
        """What it says after the clock was set back is not moved once more."""
        send(backend, body, **({"group": "g"} if body == b"grouped" else {}))
        held = take(backend)
        clock.jump_wall(-HOUR)
        assert list(backend.settle([Settlement(one.receipt, ExtendLease(LEASE)) for one in held])) == [True]
        assert take(backend) == []
        clock.advance(LEASE - 1.0)
        assert take(backend) == []
        clock.advance(2.0)
        assert done(backend, held) == [True]

    def test_what_is_tried_again_is_tried_when_its_worker_said(self, backend: Backend, clock: FakeClock) -> None:
        send(backend, b"one")
        held = take(backend)
        clock.jump_wall(-HOUR)
        assert list(backend.settle([Settlement(one.receipt, RetryLater(600.0)) for one in held])) == [True]
        assert take(backend) == []
        clock.advance(601.0)
        assert [one.body for one in take(backend)] == [b"one"]

    def test_what_is_published_later_is_due_when_it_was_to_be(self, backend: Backend, clock: FakeClock) -> None:
        """The first to notice may be a publisher, or whoever changes the queue."""
        backend.change("work", QueueChange(subscribe=["news"]))
        clock.jump_wall(-HOUR)
        backend.send("news", [OutgoingMessage(tenant="a", body=b"later", delay=600.0)], is_topic=True)
        assert take(backend) == []
        clock.advance(601.0)
        assert [one.body for one in take(backend)] == [b"later"]

    def test_nothing_is_too_old_because_of_it(self, backend: Backend, clock: FakeClock) -> None:
        """And what is too old some time later is."""
        send(backend, b"one", ttl=60.0)
        clock.jump_wall(-HOUR)
        [held] = take(backend)
        assert held.body == b"one"

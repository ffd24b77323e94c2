"""Where the tests of faults keep their messages, and how they wait for what other threads and processes do."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from holdfast.queue.backend import Ack, Backend, LeaseRequest, Settlement
from holdfast.queue.events import QueueEvent

STUCK = 60.0
"""Seconds after which a test is taken to be stuck: long for a busy machine."""


def eventually(happened: Callable[[], object], why: str = "it has not happened") -> None:
    """Return as soon as it has happened."""
    nobody = threading.Event()
    for _ in range(int(STUCK / 0.01)):
        if happened():
            return
        nobody.wait(0.01)
    raise AssertionError(f"{why} within {STUCK:g} s")


@contextmanager
def schema_of_its_own(url: str) -> Iterator[str]:
    """An address with no tables behind it yet."""
    name = f"queue_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {name}".encode())
        yield f"{url}?options=-csearch_path%3D{name}"
        connection.execute(f"drop schema {name} cascade".encode())


class Events:
    """A sink that remembers what it was told, safe to read at any time."""

    def __init__(self) -> None:
        self._events: list[QueueEvent] = []

    def emit(self, event: QueueEvent) -> None:
        self._events.append(event)

    def of(self, kind: type) -> list[QueueEvent]:
        return [event for event in list(self._events) if isinstance(event, kind)]


def depth(backend: Backend, queue: str) -> tuple[int, int, int, int]:
    """How many are ready, leased, delayed and dead."""
    lanes = backend.inspect(queue).lanes
    return (
        sum(lane.ready for lane in lanes),
        sum(lane.leased for lane in lanes),
        sum(lane.delayed for lane in lanes),
        sum(lane.dead for lane in lanes),
    )


def drain(backend: Backend, queue: str, count: int = 1000) -> list[bytes]:
    """Handle all that can be had now; the bodies, in the order in which they came."""
    bodies: list[bytes] = []
    while deliveries := backend.lease(
        LeaseRequest(queue=queue, count=count, lease=60.0, leased_so_far=len(bodies))
    ).deliveries:
        bodies += [delivery.body for delivery in deliveries]
        assert all(backend.settle([Settlement(delivery.receipt, Ack()) for delivery in deliveries]))
    return bodies

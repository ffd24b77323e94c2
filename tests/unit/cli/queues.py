"""A store with queues beside the commands, as producers and workers see it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast._clock import Clock
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import Delivery, OutgoingMessage, SentMessage
from holdfast.queue.backend import Bury, LeaseRequest, QueueChange, Settlement
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.policy import QueuePolicy

STORE = Path("holdfast-data") / "queue.sqlite"


@contextmanager
def opened(path: Path = STORE, clock: Clock | None = None) -> Iterator[SqlBackend]:
    """The store that the commands find without any settings."""
    path.parent.mkdir(exist_ok=True)
    with SqlBackend(SqliteDatabase(path, clock=clock), clock) as backend:
        yield backend


def make(*queues: str, policy: QueuePolicy | None = None, path: Path = STORE) -> None:
    """Make queues, as a program does that uses them first."""
    with opened(path) as backend:
        for queue in queues:
            backend.change(queue, QueueChange(policy=policy), create=True)


def fill(queue: str, *messages: OutgoingMessage) -> list[int]:
    """Send messages; their numbers."""
    with opened() as backend:
        results = backend.send(queue, messages)
    assert all(isinstance(result, SentMessage) for result in results)
    return [result.id for result in results if isinstance(result, SentMessage)]


def of(tenant: str, *bodies: bytes) -> list[OutgoingMessage]:
    """A message for each body."""
    return [OutgoingMessage(tenant=tenant, body=body) for body in bodies]


def taken(queue: str, count: int = 1000, *, lease: float = 600.0) -> Sequence[Delivery]:
    """What a worker is handed, and forgets about."""
    with opened() as backend:
        return backend.lease(LeaseRequest(queue=queue, count=count, lease=lease)).deliveries


def bury(
    queue: str, *messages: OutgoingMessage, reason: str = "ValueError: no", detail: str = "Traceback\n  here"
) -> list[int]:
    """Send messages that are given up; their numbers."""
    numbers = fill(queue, *messages)
    with opened() as backend:
        held = backend.lease(LeaseRequest(queue=queue, count=1000, lease=600.0)).deliveries
        kept = backend.settle([Settlement(one.receipt, Bury(reason, detail)) for one in held if one.id in numbers])
    assert list(kept) == [True] * len(numbers)
    return numbers

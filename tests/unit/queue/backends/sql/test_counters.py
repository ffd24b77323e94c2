"""Counters are exact after anything that can happen."""

from pathlib import Path
from random import Random

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend, sweep
from holdfast.queue.message import (
    Ack,
    Bury,
    Delivery,
    Disposition,
    Drop,
    ExtendLease,
    OutgoingMessage,
    Release,
    RetryLater,
    Settlement,
)
from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy
from holdfast.testing import FakeClock
from tests.table import sampled
from tests.unit.queue.backends.sql.counting import require_exact

QUEUES = ("work", "other")
DISPOSITIONS: tuple[Disposition, ...] = (
    Ack(),
    Ack(),
    RetryLater(3.0),
    RetryLater(0.0, is_attempt=False),
    Bury("why"),
    Release(),
    ExtendLease(9.0),
    Drop(),
)


@pytest.mark.parametrize("seed", sampled(range(6), keep=3))
def test_counters_equal_what_counting_gives_after_every_step(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "FORGET_AFTER", 5.0)
    random, clock = Random(seed), FakeClock()
    database = SqliteDatabase(tmp_path / "queue.sqlite")
    with SqlBackend(database, clock) as backend:
        for queue in QUEUES:
            backend.change(queue, QueueChange(policy=_policy(random), subscribe=["news"]), create=True)
        held: list[Delivery] = []
        for _ in range(120):
            _step(backend, clock, random, held)
            require_exact(database)


def _step(backend: SqlBackend, clock: FakeClock, random: Random, held: list[Delivery]) -> None:
    queue, tenant = random.choice(QUEUES), random.choice("abc")
    match random.choice(["send"] * 3 + ["publish"] + ["lease"] * 3 + ["settle"] * 3 + ["late", "wait", "rare"]):
        case "send":
            backend.send(queue, [_message(random) for _ in range(random.randrange(12))])
        case "publish":
            backend.send("news", [_message(random) for _ in range(3)], is_topic=True)
        case "lease":
            caps = {tenant: 2} if random.random() < 0.3 else {}
            want = LeaseRequest(
                queue=queue, count=random.randint(1, 8), lease=5.0, leased_so_far=random.randrange(100), caps=caps
            )
            held += backend.lease(want).deliveries
        case "settle":
            some = random.sample(held, min(len(held), 5))
            backend.settle([Settlement(one.receipt, random.choice(DISPOSITIONS)) for one in some])
        case "late":
            held[:] = held[-20:]
        case "wait":
            clock.advance(random.choice([0.01, 1.0, 6.0, 30.0]))
        case "rare":
            _rare(backend, random, queue, tenant)


def _rare(backend: SqlBackend, random: Random, queue: str, tenant: str) -> None:
    match random.randrange(5):
        case 0:
            backend.sweep(queue, backend.inspect(queue).at - random.choice([0.0, 10.0]))
        case 1:
            backend.sweep(queue)
        case 2:
            query = DeadLetterQuery(queue=queue, limit=random.randint(1, 5), tenant=random.choice([None, tenant]))
            backend.redrive(query, discard=random.random() < 0.3)
        case 3:
            backend.change(queue, QueueChange(policy=_policy(random)))
        case 4:
            backend.change(queue, QueueChange(limits={tenant: random.choice([None, _limits(random)])}))


def _message(random: Random) -> OutgoingMessage:
    return OutgoingMessage(
        tenant=random.choice("abc"),
        body=b"x",
        priority=random.randrange(4),
        delay=random.choice([0.0, 0.0, 2.0]),
        group=random.choice([None, None, "g", "h"]),
        key=random.choice([None, None, None, f"k{random.randrange(20)}"]),
        ttl=random.choice([None, None, 4.0]),
    )


def _policy(random: Random) -> QueuePolicy:
    return QueuePolicy(
        lanes=random.choice([4, 8, 64]),
        lanes_per_tenant=random.choice([0, 2, 4]),
        spill_above=random.choice([None, 3, 10]),
        ttl=random.choice([None, 20.0]),
        max_attempts=2,
        limits=random.choice([Limits(), _limits(random)]),
    )


def _limits(random: Random) -> Limits:
    return Limits(
        spill_rate=random.choice([None, 2.0]),
        max_rate=random.choice([None, 3.0]),
        over_max_rate=random.choice(list(OverMaxRate)),
        run_rate=random.choice([None, 2.0]),
        concurrency=random.choice([None, 2]),
        max_waiting=random.choice([None, 20]),
    )

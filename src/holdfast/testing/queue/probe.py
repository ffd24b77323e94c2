"""One queue of the backend under test, and short ways to use it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NamedTuple, TypeVar

import msgspec
import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.backend import (
    Backend,
    DeadLetterQuery,
    LeaseRequest,
    LeaseResult,
    QueueChange,
    QueueSnapshot,
    TenantDepth,
)
from holdfast.queue.message import Ack, Delivery, Disposition, OutgoingMessage, RefusedMessage, SentMessage, Settlement
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.testing.clock import FakeClock

Item = TypeVar("Item")

PLAIN = QueuePolicy(backlog_share=0.0, low_priority_share=0.0, spill_share=0.0)
"""A queue in which nothing is served out of its order."""
LEASE = 30.0
"""Seconds for which the tests take messages, if they do not say otherwise."""
STEPS = 10_000
"""Leases after which a test that waits for the end of a queue is taken to be stuck."""


class DepthCounts(NamedTuple):
    """How many messages of a queue are in which state."""

    ready: int = 0
    """With those that are spilled: most tests do not mind where a message waits."""
    leased: int = 0
    delayed: int = 0
    dead: int = 0


def message(tenant: str = "a", body: bytes = b"x", **options: object) -> OutgoingMessage:
    """A message, with as little said about it as possible."""
    return msgspec.structs.replace(OutgoingMessage(tenant=tenant, body=body), **options)


class Probe:
    """A queue under test. `elapse` moves the time that the backend goes by."""

    def __init__(self, backend: Backend, elapse: Callable[[float], None], queue: str = "work") -> None:
        self.backend = backend
        self.elapse = elapse
        self.queue = queue
        backend.change(queue, QueueChange(policy=PLAIN), create=True)

    def another(self, queue: str) -> "Probe":
        """Another queue of the same backend."""
        return Probe(self.backend, self.elapse, queue)

    def require_capability(self, capability: str) -> None:
        """Leave the test out for a backend that says that it cannot do this."""
        if not getattr(self.backend.capabilities, capability):
            pytest.skip(f"the backend declares that it has no {capability.replace('_', ' ')}")

    # Sending

    def send(self, *messages: OutgoingMessage) -> Sequence[SentMessage | RefusedMessage]:
        return self.backend.send(self.queue, messages)

    def put(self, tenant: str = "a", count: int = 1, body: bytes = b"x", **options: object) -> list[int]:
        """Send messages that must be kept; their ids."""
        return [one.id for one in self.send_kept(*[message(tenant, body, **options)] * count)]

    def send_kept(self, *messages: OutgoingMessage) -> list[SentMessage]:
        results = self.send(*messages)
        assert len(results) == len(messages)
        kept = [one for one in results if isinstance(one, SentMessage)]
        assert len(kept) == len(results), f"some were refused: {results}"
        return kept

    # Handling

    def request_lease(
        self, count: int = 100, lease: float = LEASE, leased_before: int = 0, caps: Mapping[str, int] | None = None
    ) -> LeaseResult:
        """Ask for messages; all that the backend says."""
        return self.backend.lease(
            LeaseRequest(queue=self.queue, count=count, lease=lease, leased_before=leased_before, caps=caps or {})
        )

    def lease(self, count: int = 100, lease: float = LEASE, leased_before: int = 0) -> list[Delivery]:
        return list(self.request_lease(count, lease, leased_before).deliveries)

    def lease_one(self, lease: float = LEASE) -> Delivery:
        """Ask for the one message that there must be."""
        [delivery] = self.lease(lease=lease)
        return delivery

    def settle(self, disposition: Disposition, *deliveries: Delivery) -> list[bool]:
        return list(self.backend.settle([Settlement(one.receipt, disposition) for one in deliveries]))

    def ack(self, *deliveries: Delivery) -> None:
        """They are handled, and must have been held until now."""
        assert self.settle(Ack(), *deliveries) == [True] * len(deliveries)

    def drain(self, count: int = 100) -> list[Delivery]:
        """Handle all that can be had now, in the order in which it comes."""
        found: list[Delivery] = []
        for _ in range(STEPS):
            some = self.lease(count, leased_before=len(found))
            if not some:
                return found
            self.ack(*some)
            found += some
        raise AssertionError(f"{self.queue} is not empty after {len(found)} messages")

    # Looking

    def inspect(self, *tenants: str) -> QueueSnapshot:
        return self.backend.inspect(self.queue, tenants=tenants)

    @property
    def now(self) -> float:
        """The time that the backend goes by."""
        return self.inspect().at

    @property
    def depth(self) -> DepthCounts:
        """All lanes together."""
        totals = self.inspect().totals
        return DepthCounts(totals.waiting, totals.leased, totals.delayed, totals.dead)

    def tenant(self, name: str = "a") -> TenantDepth:
        """One tenant; of one that nobody has heard of, nothing."""
        for tenant in self.inspect(name).tenants:
            if tenant.tenant == name:
                return tenant
        return TenantDepth(tenant=name, ready=0, spilled=0, leased=0, delayed=0, dead=0)

    # Changing

    def change_policy(self, **options: object) -> QueuePolicy:
        """Change some of the policy."""
        policy = msgspec.structs.replace(self.inspect().policy, **options)
        return self.backend.change(self.queue, QueueChange(policy=policy))

    def set_limits(self, tenant: str = "a", **options: object) -> None:
        """Give a tenant limits of its own; without options, those of the queue."""
        limits = Limits(**options) if options else None  # type: ignore[arg-type]
        self.backend.change(self.queue, QueueChange(limits={tenant: limits}))

    def redrive(self, **conditions: object) -> int:
        return self.backend.redrive(self.query(**conditions))

    def query(self, **conditions: object) -> DeadLetterQuery:
        return msgspec.structs.replace(DeadLetterQuery(queue=self.queue), **conditions)


def together(count: int, step: Callable[[int], Item]) -> list[Item]:
    """Return what `step` returns for each of `count` numbers, in as many threads at once."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(step, range(count)))


def ids(deliveries: Iterable[Delivery]) -> list[int]:
    """The messages of these, in their order."""
    return [delivery.id for delivery in deliveries]


class BackendSuite:
    """The fixtures of all parts of the suite. Override `backend`, and `elapse` where time is not the clock's."""

    required_capability: ClassVar[str] = ""
    """The capability without which the tests of a part are skipped."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """The time that the backend goes by, if it takes a clock."""
        return FakeClock()

    @pytest.fixture
    def backend(self, clock: FakeClock) -> Backend:  # noqa: ARG002 - for those who override it
        """A backend that holds nothing."""
        raise InvalidValue("override the fixture `backend` with an empty backend of yours")

    @pytest.fixture
    def elapse(self, clock: FakeClock) -> Callable[[float], None]:
        """What moves the time of the backend."""
        return clock.advance

    @pytest.fixture
    def work(self, request: pytest.FixtureRequest, backend: Backend, elapse: Callable[[float], None]) -> Probe:
        """A queue without messages, in which nothing is served out of its order."""
        work = Probe(backend, elapse)
        part = next(part for part in type(self).__mro__ if request.function.__name__ in vars(part))
        # Not `part.required_capability`, which a suite of several parts inherits from one of them.
        capability = vars(part).get("required_capability")
        if capability:
            work.require_capability(capability)
        return work

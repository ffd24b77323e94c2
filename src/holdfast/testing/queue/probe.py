"""A queue of the backend under test, with short methods for tests."""

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
"""A policy without shares: messages come strictly in order."""
LEASE = 30.0
"""Default lease of the tests, in seconds."""
STEPS = 10_000
"""Leases after which a test that drains a queue counts as stuck."""


class DepthCounts(NamedTuple):
    """The number of messages of a queue in each state."""

    ready: int = 0
    """Includes spilled messages: for most tests it does not matter where a message waits."""
    leased: int = 0
    delayed: int = 0
    dead: int = 0


def message(tenant: str = "a", body: bytes = b"x", **options: object) -> OutgoingMessage:
    """Return a message with defaults for all that a test does not name."""
    return msgspec.structs.replace(OutgoingMessage(tenant=tenant, body=body), **options)


class Probe:
    """A queue under test. `advance_time` moves the time of the backend."""

    def __init__(self, backend: Backend, advance_time: Callable[[float], None], queue: str = "work") -> None:
        self.backend = backend
        self.advance_time = advance_time
        self.queue = queue
        backend.change(queue, QueueChange(policy=PLAIN), create=True)

    def another(self, queue: str) -> "Probe":
        """Create another queue of the same backend."""
        return Probe(self.backend, self.advance_time, queue)

    def require_capability(self, capability: str) -> None:
        """Skip the test if the backend does not have a capability."""
        if not getattr(self.backend.capabilities, capability):
            pytest.skip(f"the backend declares that it has no {capability.replace('_', ' ')}")

    # Sending

    def send(self, *messages: OutgoingMessage) -> Sequence[SentMessage | RefusedMessage]:
        """Send messages, which may be refused."""
        return self.backend.send(self.queue, messages)

    def put(self, tenant: str = "a", count: int = 1, body: bytes = b"x", **options: object) -> list[int]:
        """Send `count` equal messages that must be accepted. Return their ids."""
        return [one.id for one in self.send_accepted(*[message(tenant, body, **options)] * count)]

    def send_accepted(self, *messages: OutgoingMessage) -> list[SentMessage]:
        """Send messages. Fail the test if one is refused."""
        results = self.send(*messages)
        assert len(results) == len(messages)
        kept = [one for one in results if isinstance(one, SentMessage)]
        assert len(kept) == len(results), f"some were refused: {results}"
        return kept

    # Handling

    def request_lease(
        self, count: int = 100, lease: float = LEASE, leased_so_far: int = 0, caps: Mapping[str, int] | None = None
    ) -> LeaseResult:
        """Lease messages, and return the whole result."""
        return self.backend.lease(
            LeaseRequest(queue=self.queue, count=count, lease=lease, leased_so_far=leased_so_far, caps=caps or {})
        )

    def lease(self, count: int = 100, lease: float = LEASE, leased_so_far: int = 0) -> list[Delivery]:
        return list(self.request_lease(count, lease, leased_so_far).deliveries)

    def lease_one(self, lease: float = LEASE) -> Delivery:
        """Lease the only message that must be ready."""
        [delivery] = self.lease(lease=lease)
        return delivery

    def settle(self, disposition: Disposition, *deliveries: Delivery) -> list[bool]:
        return list(self.backend.settle([Settlement(one.receipt, disposition) for one in deliveries]))

    def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge deliveries, which must still be leased."""
        assert self.settle(Ack(), *deliveries) == [True] * len(deliveries)

    def drain(self, count: int = 100) -> list[Delivery]:
        """Handle all messages that are ready now, and return them in order."""
        found: list[Delivery] = []
        for _ in range(STEPS):
            some = self.lease(count, leased_so_far=len(found))
            if not some:
                return found
            self.ack(*some)
            found += some
        raise AssertionError(f"{self.queue} is not empty after {len(found)} messages")

    # Inspecting

    def inspect(self, *tenants: str) -> QueueSnapshot:
        return self.backend.inspect(self.queue, tenants=tenants)

    @property
    def now(self) -> float:
        """The time of the backend."""
        return self.inspect().at

    @property
    def depth(self) -> DepthCounts:
        """The counts of the whole queue."""
        totals = self.inspect().totals
        return DepthCounts(totals.waiting, totals.leased, totals.delayed, totals.dead)

    def tenant(self, name: str = "a") -> TenantDepth:
        """Return the counts of a tenant, all 0 if it is unknown."""
        for tenant in self.inspect(name).tenants:
            if tenant.tenant == name:
                return tenant
        return TenantDepth(tenant=name, ready=0, spilled=0, leased=0, delayed=0, dead=0)

    # Changing

    def change_policy(self, **options: object) -> QueuePolicy:
        """Change some values of the policy."""
        policy = msgspec.structs.replace(self.inspect().policy, **options)
        return self.backend.change(self.queue, QueueChange(policy=policy))

    def set_limits(self, tenant: str = "a", **options: object) -> None:
        """Give a tenant its own limits, or without options remove them."""
        limits = Limits(**options) if options else None  # type: ignore[arg-type]
        self.backend.change(self.queue, QueueChange(limits={tenant: limits}))

    def redrive(self, **conditions: object) -> int:
        return self.backend.redrive(self.query(**conditions))

    def query(self, **conditions: object) -> DeadLetterQuery:
        return msgspec.structs.replace(DeadLetterQuery(queue=self.queue), **conditions)


def together(count: int, step: Callable[[int], Item]) -> list[Item]:
    """Call `step` with each number below `count`, concurrently in threads. Return the results in order."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(step, range(count)))


def ids(deliveries: Iterable[Delivery]) -> list[int]:
    """Return the ids of deliveries, in order."""
    return [delivery.id for delivery in deliveries]


class BackendSuite:
    """The fixtures of all suites. Override `backend`, and `advance_time` if the backend does not use the clock."""

    required_capability: ClassVar[str] = ""
    """The capability without which the tests of a suite are skipped."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """Return the clock of the backend, if it accepts one."""
        return FakeClock()

    @pytest.fixture
    def backend(self, clock: FakeClock) -> Backend:  # noqa: ARG002 - for subclasses
        """Return an empty backend."""
        raise InvalidValue("override the fixture `backend` with an empty backend of yours")

    @pytest.fixture
    def advance_time(self, clock: FakeClock) -> Callable[[float], None]:
        """Return the function that moves the time of the backend."""
        return clock.advance

    @pytest.fixture
    def work(self, request: pytest.FixtureRequest, backend: Backend, advance_time: Callable[[float], None]) -> Probe:
        """Return an empty queue in which messages come strictly in order."""
        work = Probe(backend, advance_time)
        part = next(part for part in type(self).__mro__ if request.function.__name__ in vars(part))
        # Not `part.required_capability`, which a combined suite inherits from one of its parts.
        capability = vars(part).get("required_capability")
        if capability:
            work.require_capability(capability)
        return work

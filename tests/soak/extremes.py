"""One tenant with a million messages, then a hundred thousand tenants with one each, on a store that was soaked."""

import time
from collections.abc import Callable
from typing import Any

from holdfast.queue import OutgoingMessage, QueuePolicy, SentMessage, open_backend
from holdfast.queue.backend import Ack, Backend, LeaseRequest, QueueChange, Settlement
from tests.soak.stores import Store

QUEUE = "extremes"
BATCH = 1000
PROBES = 100
"""How often somebody else sends one message beside the tenant with so many, and must have it handled next."""
PROBE = 10
"""Messages that a worker asks for then."""
TENANTS_OF = 10
"""So many times fewer tenants than messages of the one."""


def extremes(store: Store, messages: int, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """What was counted and measured, and what was wrong."""
    with open_backend(store.url) as backend:
        backend.change(QUEUE, QueueChange(policy=QueuePolicy(max_waiting=None)), create=True)
        run = _Extremes(backend)
        say(f"{store.name}: {messages} messages of one tenant")
        run.one_tenant(messages)
        say(f"{store.name}: {messages // TENANTS_OF} tenants with one message each")
        run.many_tenants(messages // TENANTS_OF)
        return run.figures, run.violations


class _Extremes:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.figures: dict[str, Any] = {}
        self.violations: list[str] = []

    def one_tenant(self, messages: int) -> None:
        probes: list[tuple[float, float]] = []
        began, sent = time.monotonic(), 0
        probing = 0.0
        every = max(BATCH, messages // PROBES)
        while sent < messages:
            self._send(["big"] * BATCH)
            sent += BATCH
            if sent % every < BATCH:
                probes.append(self._probe(len(probes)))
                probing += sum(probes[-1])
        self.figures["a tenant's messages sent/s"] = round(sent / (time.monotonic() - began - probing))
        self._drain("a tenant's messages", sent - (len(probes) * (PROBE - 1)))
        tenth = max(1, len(probes) // 10)
        for place, what in enumerate(("send", "lease")):
            times = [probe[place] * 1000 for probe in probes]
            self.figures[f"another tenant's {what}, ms"] = {
                "first tenth": round(sum(times[:tenth]) / tenth, 1),
                "last tenth": round(sum(times[-tenth:]) / tenth, 1),
                "most": round(max(times), 1),
            }

    def many_tenants(self, tenants: int) -> None:
        began = time.monotonic()
        for first in range(0, tenants, BATCH):
            self._send([f"tenant-{number}" for number in range(first, min(tenants, first + BATCH))])
        self.figures["new tenants/s"] = round(tenants / (time.monotonic() - began))
        self._drain("new tenants' messages", tenants)

    def _probe(self, number: int) -> tuple[float, float]:
        """Seconds that it takes somebody else to send a message, and a worker to be handed it."""
        began = time.monotonic()
        self._send([f"other-{number}"])
        between = time.monotonic()
        leased = self._backend.lease(LeaseRequest(queue=QUEUE, count=PROBE, lease=600.0))
        took = (between - began, time.monotonic() - between)
        if not any(delivery.tenant == f"other-{number}" for delivery in leased.deliveries):
            self.violations.append(f"other-{number} waits behind a tenant with many messages")
        self._settle(leased.deliveries)
        return took

    def _drain(self, what: str, expected: int) -> None:
        began, handled = time.monotonic(), 0
        while deliveries := self._backend.lease(
            LeaseRequest(queue=QUEUE, count=BATCH, lease=600.0, leased_so_far=handled)
        ).deliveries:
            handled += len(deliveries)
            self._settle(deliveries)
        self.figures[f"{what} handled/s"] = round(handled / (time.monotonic() - began))
        if handled != expected:
            self.violations.append(f"{handled} of {what} were handled: expected {expected}")
        left = [lane for lane in self._backend.inspect(QUEUE).lanes if lane.ready + lane.leased + lane.delayed]
        if left:
            self.violations.append(f"{len(left)} lanes are not empty after {what}")

    def _send(self, tenants: list[str]) -> None:
        results = self._backend.send(QUEUE, [OutgoingMessage(tenant=tenant, body=b"x" * 20) for tenant in tenants])
        if not all(isinstance(result, SentMessage) for result in results):
            self.violations.append(f"messages of {tenants[0]} were refused")

    def _settle(self, deliveries: Any) -> None:
        if not all(self._backend.settle([Settlement(delivery.receipt, Ack()) for delivery in deliveries])):
            self.violations.append("a message was taken from the one who held it")

"""Events and snapshots as tests need them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.metrics import Exporter, PrometheusExporter
from holdfast.queue import Delivery, OutgoingMessage, QueuePolicy, RefusedMessage, SentMessage
from holdfast.queue.backend import LaneDepth, LeaseResult, QueueSnapshot, Receipt, TenantDepth, sum_lanes
from holdfast.queue.events import (
    AttemptEvent,
    AttemptResult,
    BackendErrorEvent,
    PollEvent,
    QueueObservation,
    SendEvent,
)
from holdfast.queue.message import RefusalReason
from holdfast.queue.metrics import QueueMetrics

NOW = 1_750_000_000.0


class Kept:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.all: list[QueueObservation] = []

    def emit(self, event: QueueObservation) -> None:
        self.all.append(event)


def delivery(
    tenant: str = "acme",
    *,
    age: float = 0.0,
    waited: float | None = None,
    attempt: int = 1,
    queue: str = "mail",
    first_subscriber: bool = False,
    spilled: bool = False,
) -> Delivery:
    """One that was sent `age` seconds before now, and has waited for as long unless it is said otherwise."""
    return Delivery(
        receipt=Receipt(7, attempt),
        queue=queue,
        lane=-3 if spilled else 3,
        tenant=tenant,
        body=b"",
        attempt=attempt,
        sent_at=NOW - age,
        ready_since=NOW - (age if waited is None else waited),
        trace="00-0-0-00",
        is_first_subscriber=first_subscriber,
    )


def sent(
    *tenants: str, spilled: int = 0, duplicates: int = 0, refused: RefusalReason | None = None, queue: str = "mail"
) -> SendEvent:
    """A message of each tenant, the first of them spilled, or all refused; and duplicates of the first."""
    results: list[SentMessage | RefusedMessage] = [
        SentMessage(id=number, queue=queue, lane=-3 if number < spilled else 3, trace="", pressure=0.0)
        if refused is None
        else RefusedMessage(queue=queue, tenant=tenant, reason=refused, retry_after=1.0, pressure=1.0)
        for number, tenant in enumerate(tenants)
    ]
    results += [SentMessage(id=0, queue=queue, lane=-3, trace="", pressure=0.0, is_duplicate=True)] * duplicates
    senders = [*tenants, *[tenants[0]] * duplicates]
    messages = [OutgoingMessage(tenant=tenant, body=b"") for tenant in senders]
    return SendEvent(queue=queue, at=NOW, messages=messages, results=results)


def polled(*deliveries: Delivery, queue: str = "mail", at: float = NOW, **counts: int) -> PollEvent:
    return PollEvent(queue=queue, at=at, requested=10, result=LeaseResult(deliveries=deliveries, **counts))  # type: ignore[arg-type]


def handled(
    ending: AttemptResult = AttemptResult.ACKED,
    tenant: str = "acme",
    *,
    seconds: float = 0.25,
    error: str | None = None,
    job: str | None = None,
    queue: str = "mail",
) -> AttemptEvent:
    return AttemptEvent(
        delivery=delivery(tenant, queue=queue), at=NOW, seconds=seconds, result=ending, error=error, job=job
    )


def trouble(doing: str = "lease", queue: str = "mail") -> BackendErrorEvent:
    return BackendErrorEvent(queue=queue, at=NOW, operation=doing, error="EngineUnavailable")


def lane(number: int, ready: int = 0, leased: int = 0, delayed: int = 0, dead: int = 0, age: float = 0.0) -> LaneDepth:
    oldest = NOW - age if ready else None
    return LaneDepth(lane=number, ready=ready, leased=leased, delayed=delayed, dead=dead, oldest_since=oldest)


def tenant(name: str, ready: int = 0, spilled: int = 0, leased: int = 0, dead: int = 0) -> TenantDepth:
    return TenantDepth(tenant=name, ready=ready, spilled=spilled, leased=leased, delayed=0, dead=dead)


def snapshot(
    *lanes: LaneDepth, tenants: Sequence[TenantDepth] = (), queue: str = "mail", at: float = NOW, left_out: int = 0
) -> QueueSnapshot:
    totals = msgspec.structs.replace(sum_lanes(lanes), lanes_in_use=len(lanes) + left_out)
    return QueueSnapshot(
        queue=queue,
        at=at,
        policy=QueuePolicy(),
        lanes=lanes,
        tenants=tenants,
        totals=totals,
        lanes_left_out=left_out,
    )


class Scraped(QueueMetrics):
    """Queue metrics with an exporter for Prometheus."""

    def __init__(self, *exporters: Exporter, **options: Any) -> None:
        self.prometheus = PrometheusExporter()
        super().__init__(self.prometheus, *exporters, **options)

    def render(self) -> str:
        return self.prometheus.render()

"""Outcomes as callers see them: a zone that is partitioned from its callers cannot report that itself. Pure."""

from typing import Any

from holdfast._types import Outcome, Side, Sink
from holdfast.calls.classify import FailureKind
from holdfast.calls.events import AttemptEnded, CallEvent

__all__ = ["OutcomeSink"]

ASSUMED_STATUS = {
    FailureKind.UNSENT: 503,
    FailureKind.TRANSIENT: 502,
    FailureKind.TIMEOUT: 504,
    FailureKind.THROTTLED: 429,
    FailureKind.NOT_VISIBLE_YET: 404,
}
"""The status a gateway would send for a failure without one. PERMANENT is missing: it is mostly the caller's fault."""


class OutcomeSink:
    """A sink that passes attempts on as outcomes. An attempt has a zone only with `Dependency(endpoints=...)`."""

    def __init__(self, workload: str, sink: Sink[Outcome]) -> None:
        self._workload = workload
        self._sink = sink

    def emit(self, event: CallEvent) -> None:
        if isinstance(event, AttemptEnded):
            outcome = build_outcome(event, self._workload)
            if outcome is not None:
                self._sink.emit(outcome)


def build_outcome(event: AttemptEnded, workload: str) -> Outcome | None:
    """Return the outcome of an attempt, or None if it has no zone, or a failure that says nothing about the zone."""
    status = _find_status(event)
    if event.zone is None or event.address is None or status is None:
        return None
    return Outcome(
        workload=workload,
        operation=event.operation,
        zone=event.zone,
        instance=event.address,
        at=event.at,
        side=Side.CLIENT,
        **build_counts(status, event.seconds),
    )


def build_counts(status: int, seconds: float) -> dict[str, Any]:
    """Return the count and latency fields of an Outcome for one request with this HTTP status."""
    group = min(max(status // 100, 2), 5)
    return {f"count_{group}xx": 1, "fault_seconds" if group == 5 else "success_seconds": (seconds,)}


def _find_status(event: AttemptEnded) -> int | None:
    if event.status:  # botocore sets 0 without a response
        return event.status
    return 200 if event.failure is None else ASSUMED_STATUS.get(event.failure)

"""What callers see of a zone: a zone that is cut off cannot report that itself. Pure."""

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
    FailureKind.EVENTUAL: 404,
}
"""What a gateway would have answered for a failure without a status; a permanent one is mostly the caller's own."""


class OutcomeSink:
    """Hands attempts to another sink as outcomes, if they have a zone, from `Dependency(endpoints=...)`."""

    def __init__(self, workload: str, sink: Sink[Outcome]) -> None:
        self._workload = workload
        self._sink = sink

    def emit(self, event: CallEvent) -> None:
        if isinstance(event, AttemptEnded):
            outcome = build_outcome(event, self._workload)
            if outcome is not None:
                self._sink.emit(outcome)


def build_outcome(event: AttemptEnded, workload: str) -> Outcome | None:
    """What the attempt says about the health of its zone; None if it says nothing."""
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
    """Return the fields of an Outcome that count one request with this HTTP status, and how long it took."""
    group = min(max(status // 100, 2), 5)
    return {f"count_{group}xx": 1, "fault_seconds" if group == 5 else "success_seconds": (seconds,)}


def _find_status(event: AttemptEnded) -> int | None:
    if event.status:  # botocore's is 0 where there was no answer
        return event.status
    return 200 if event.failure is None else ASSUMED_STATUS.get(event.failure)

"""Outcomes as callers see them: a zone that is partitioned from its callers cannot report that itself. Pure."""

from holdfast._types import Outcome, RequestDetail, Side, Sink
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
    detail, took = RequestDetail(status=status), (event.seconds,)
    group = detail.status_class
    return Outcome(
        workload=workload,
        operation=event.operation,
        zone=event.zone,
        instance=event.address,
        at=event.at,
        side=Side.CLIENT,
        count_2xx=int(group == 2),
        count_3xx=int(group == 3),
        count_4xx=int(group == 4),
        count_5xx=int(group == 5),
        success_seconds=took if group < 5 else (),
        fault_seconds=took if group == 5 else (),
        detail=detail,
    )


def _find_status(event: AttemptEnded) -> int | None:
    if event.status:  # botocore sets 0 without a response
        return event.status
    return 200 if event.failure is None else ASSUMED_STATUS.get(event.failure)

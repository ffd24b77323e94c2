"""What callers see of a zone, for those who watch zones. Pure.

A server that cannot be reached reports nothing: that a zone is cut off is often seen by its callers alone.
"""

from holdfast._types import Outcome, Side, Sink
from holdfast.calls.classify import Kind
from holdfast.calls.events import Attempted, CallEvent

__all__ = ["OutcomeSink"]

ASSUMED_STATUS = {
    Kind.UNSENT: 503,
    Kind.TRANSIENT: 502,
    Kind.TIMEOUT: 504,
    Kind.THROTTLED: 429,
    Kind.EVENTUAL: 404,
}
"""What a gateway would have answered for a failure without a status. A permanent one without a status is not here: it
is most likely a mistake in the caller's own code, and says nothing about a zone."""


class OutcomeSink:
    """Turns attempts into outcomes as the client saw them, and hands these to another sink.

    Attempts without a zone are left out: they went to no endpoint of `Dependency(endpoints=...)`. As thread-safe as
    the sink that it hands them to.
    """

    def __init__(self, workload: str, sink: Sink[Outcome]) -> None:
        self._workload = workload
        self._sink = sink

    def emit(self, event: CallEvent) -> None:
        if isinstance(event, Attempted):
            outcome = outcome_of(event, self._workload)
            if outcome is not None:
                self._sink.emit(outcome)


def outcome_of(event: Attempted, workload: str) -> Outcome | None:
    """What the attempt says about the health of its zone; None if it says nothing."""
    status = _status_of(event)
    if event.zone is None or event.address is None or status is None:
        return None
    took = (event.seconds,)
    return Outcome(
        workload=workload,
        operation=event.operation,
        zone=event.zone,
        instance=event.address,
        at=event.at,
        side=Side.CLIENT,
        count_2xx=int(status < 300),
        count_3xx=int(300 <= status < 400),
        count_4xx=int(400 <= status < 500),
        count_5xx=int(status >= 500),
        success_seconds=took if status < 500 else (),
        fault_seconds=took if status >= 500 else (),
    )


def _status_of(event: Attempted) -> int | None:
    if event.status:  # botocore's is 0 where there was no answer
        return event.status
    return 200 if event.failure is None else ASSUMED_STATUS.get(event.failure)

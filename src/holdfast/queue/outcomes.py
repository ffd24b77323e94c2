"""What workers see of their own zone, for those who watch zones. Pure."""

from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Operation, Outcome, Side, Sink
from holdfast.queue.events import AttemptEvent, AttemptResult, QueueObservation

__all__ = ["WorkerOutcomes"]

_STATUS = {
    AttemptResult.ACKED: 200,
    AttemptResult.POSTPONED: 200,
    AttemptResult.RETRIED: 500,
    AttemptResult.BURIED: 500,
}
"""What a server would have answered. What was handed back, or lost to another worker, says nothing of how work goes."""
_FAULTS_OF_SENDERS = frozenset({"InvalidValue", "UnknownJob", "Reject"})
"""Errors by which the message itself is wrong: it would have failed in every zone."""


class WorkerOutcomes:
    """Turns what became of messages into outcomes of this worker, and hands these to another sink.

    The operation is the workload with the job, or with the queue for messages that call none. Attempts that failed are
    faults, whether they are repeated or not; messages that no handler could have handled are not. With `EmfSink`
    and `ServerSink` behind it, zones are judged by their workers as they are by their servers. As thread-safe as the
    sink that it hands them to.
    """

    def __init__(self, workload: str, zone: str, instance: str, sink: Sink[Outcome]) -> None:
        self._workload = check_workload_name(workload)
        self._zone = parse_zone(zone)
        self._instance = instance
        self._sink = sink

    def emit(self, event: QueueObservation) -> None:
        if not isinstance(event, AttemptEvent) or (status := get_status(event)) is None:
            return
        took = (event.seconds,)
        self._sink.emit(
            Outcome(
                workload=self._workload,
                operation=Operation(self._workload, event.job or event.delivery.queue),
                zone=self._zone,
                instance=self._instance,
                at=event.at,
                side=Side.SERVER,
                count_2xx=int(status == 200),
                count_4xx=int(status == 400),
                count_5xx=int(status == 500),
                success_seconds=took if status < 500 else (),
                fault_seconds=took if status == 500 else (),
            )
        )


def get_status(event: AttemptEvent) -> int | None:
    """What a server would have answered; None: nothing that says anything about its zone."""
    status = _STATUS.get(event.result)
    return 400 if status == 500 and event.error in _FAULTS_OF_SENDERS else status

"""Convert results of workers into zone outcomes for detectors. Pure."""

from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Operation, Outcome, RequestDetail, Side, Sink
from holdfast.calls.scope import get_trace_id
from holdfast.queue.events import AttemptEvent, AttemptResult, QueueObservation

__all__ = ["WorkerOutcomes"]

_STATUS = {
    AttemptResult.ACKED: 200,
    AttemptResult.POSTPONED: 200,
    AttemptResult.RETRIED: 500,
    AttemptResult.BURIED: 500,
}
"""The HTTP status of a server with this result. A released message and a lost lease say nothing about the zone."""
_FAULTS_OF_SENDERS = frozenset({"InvalidValue", "UnknownJob", "Reject"})
"""Errors that the message itself causes: it would have failed in every zone."""


class WorkerOutcomes:
    """A sink that converts attempts of a worker into outcomes of its zone, and passes them to another sink.

    The operation is the workload with the job, or with the queue for messages that call no job. Failed attempts are
    faults, repeated or not; messages that no handler could have handled are not. With `EmfSink` and `ServerSink` as the
    other sink, zones are judged by their workers as well as by their servers. As thread-safe as the other sink.
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
                detail=RequestDetail(status=status, trace=get_trace_id(event.delivery.trace)),
            )
        )


def get_status(event: AttemptEvent) -> int | None:
    """Return the HTTP status of a server with this result, or None if the event says nothing about the zone."""
    status = _STATUS.get(event.result)
    return 400 if status == 500 and event.error in _FAULTS_OF_SENDERS else status

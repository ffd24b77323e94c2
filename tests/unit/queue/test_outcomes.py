from dataclasses import replace

import pytest
from msgspec import structs

from holdfast import InvalidValue, Operation, Outcome, RequestDetail, Side, Zone
from holdfast.queue.events import AttemptResult, QueueObservation
from holdfast.queue.outcomes import WorkerOutcomes
from holdfast.telemetry.sinks.lines import EmfSink
from tests.support.emf import read_outcome
from tests.unit.queue.made import NOW, handled, polled, snapshot, trouble

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Outcomes:
    def __init__(self) -> None:
        self.all: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.all.append(event)


def told(*events: QueueObservation) -> list[Outcome]:
    kept = Outcomes()
    sink = WorkerOutcomes("shop", "use1-az1", "i-1", kept)
    for event in events:
        sink.emit(event)
    return kept.all


def test_a_message_that_was_handled_is_a_success_of_this_worker_in_its_zone() -> None:
    event = handled(job="charge")
    event = structs.replace(event, delivery=structs.replace(event.delivery, trace=TRACE))
    assert told(event) == [
        Outcome(
            workload="shop",
            operation=Operation("shop", "charge"),
            zone=Zone("use1-az1"),
            instance="i-1",
            at=NOW,
            side=Side.SERVER,
            count_2xx=1,
            success_seconds=(0.25,),
            detail=RequestDetail(status=200, trace="0af7651916cd43dd8448eb211c80319c"),
        )
    ]


def test_without_a_job_the_operation_is_the_queue() -> None:
    assert [outcome.operation for outcome in told(handled(queue="mail"))] == [Operation("shop", "mail")]


@pytest.mark.parametrize("ending", [AttemptResult.RETRIED, AttemptResult.BURIED])
def test_attempts_that_failed_are_faults(ending: AttemptResult) -> None:
    [outcome] = told(handled(ending, error="ConnectionError"))
    assert (outcome.count_5xx, outcome.fault_seconds, outcome.count_2xx, outcome.success_seconds) == (1, (0.25,), 0, ())


@pytest.mark.parametrize("error", ["Reject", "InvalidValue", "UnknownJob"])
@pytest.mark.parametrize("ending", [AttemptResult.RETRIED, AttemptResult.BURIED])
def test_messages_that_are_wrong_in_every_zone_are_no_faults_of_this_one(ending: AttemptResult, error: str) -> None:
    [outcome] = told(handled(ending, error=error))
    assert (outcome.count_4xx, outcome.count_5xx, outcome.fault_seconds) == (1, 0, ())


def test_a_message_that_was_postponed_is_a_success() -> None:
    [outcome] = told(handled(AttemptResult.POSTPONED, error="Postpone"))
    assert outcome.count_2xx == 1


@pytest.mark.parametrize(
    "event",
    [
        handled(AttemptResult.RELEASED),
        handled(AttemptResult.LEASE_LOST, error="Reject"),
        polled(),
        trouble(),
        snapshot(),
    ],
)
def test_what_says_nothing_about_the_zone_is_left_out(event: QueueObservation) -> None:
    assert told(event) == []


def test_outcomes_arrive_at_the_server_as_they_left() -> None:
    lines: list[bytes] = []

    class Lines:
        def emit(self, event: bytes) -> None:
            lines.append(event)

    WorkerOutcomes("shop", "use1-az1", "i-1", EmfSink(Lines(), component="worker", region="us-east-1")).emit(
        handled(AttemptResult.RETRIED, job="charge")
    )
    [line] = lines
    assert read_outcome(line) == replace(told(handled(AttemptResult.RETRIED, job="charge"))[0], detail=None)


@pytest.mark.parametrize(("workload", "zone"), [("a b", "use1-az1"), ("shop", "us-east-1a"), ("shop", "")])
def test_a_workload_or_a_zone_that_can_be_none_is_refused(workload: str, zone: str) -> None:
    with pytest.raises(InvalidValue):
        WorkerOutcomes(workload, zone, "i-1", Outcomes())

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.metrics import EmfExporter
from holdfast.queue.alarms import AlarmKind, QueueAlarm
from holdfast.queue.events import AttemptResult, QueueObservation
from holdfast.queue.metrics import QueueMetrics
from holdfast.testing import FakeClock
from tests.unit.metrics.exporters.test_emf import documents
from tests.unit.queue.made import NOW, delivery, handled, lane, polled, snapshot, tenant, trouble


def told(*events: QueueObservation, max_tenants: int = 20) -> list[dict[str, Any]]:
    lines: list[str] = []
    with EmfExporter(lines.append, namespace="shop/queues", clock=FakeClock(wall=NOW)) as exporter:
        sink = QueueMetrics(exporter, max_tenants=max_tenants)
        for event in events:
            sink.emit(event)
        assert lines == []
    return documents(lines)


def metrics_of(line: dict[str, Any]) -> dict[str, str]:
    return {metric["Name"]: metric["Unit"] for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]}


EVERYTHING = (
    polled(delivery(age=2), delivery(age=90, attempt=2), redelivered=1, dropped=2, spilled=3, buried=4),
    polled(),
    polled(),
    polled(delivery(age=7, first_subscriber=True)),
    handled(seconds=0.1),
    handled(AttemptResult.RETRIED, seconds=0.3),
    trouble(),
    snapshot(
        lane(1, ready=5, leased=2, delayed=3, dead=4, age=30),
        lane(-1, ready=10, age=600.5),
        tenants=[tenant("acme", ready=2, spilled=10, leased=1)],
    ),
)


def test_a_line_says_what_happened_in_a_queue_and_one_what_happened_to_a_tenant() -> None:
    queue, acme, other = told(*EVERYTHING)
    assert queue == {
        "_aws": {
            "Timestamp": NOW * 1000,
            "CloudWatchMetrics": [
                {
                    "Namespace": "shop/queues",
                    "Dimensions": [["Queue"]],
                    "Metrics": [{"Name": name, "Unit": unit} for name, unit in metrics_of(queue).items()],
                }
            ],
        },
        "Queue": "mail",
        "Polls": 4,
        "NumberOfEmptyReceives": 2,
        "NumberOfMessagesReceived": 3,
        "MessagesAcked": 1,
        "MessagesRetried": 1,
        "MessagesPostponed": 0,
        "MessagesBuried": 0,
        "MessagesReleased": 0,
        "LeasesLost": 0,
        "MessagesRedelivered": 1,
        "MessagesDropped": 2,
        "MessagesSpilled": 3,
        "MessagesBuriedAfterCrash": 4,
        "EmptyPollRatio": 50,
        "AgeOnReceipt": [2, 7, 90],
        "AgeOfFirstAttempt": [2, 7],
        "AgeOfFirstSubscriberFirstAttempt": [7],
        "HandlerLatency": [100, 300],
        "BackendErrors": 1,
        "ApproximateNumberOfMessagesVisible": 15,
        "ApproximateNumberOfMessagesNotVisible": 2,
        "ApproximateNumberOfMessagesDelayed": 3,
        "ApproximateAgeOfOldestMessage": 600.5,
        "ApproximateNumberOfMessagesSpilled": 10,
        "DeadLetters": 4,
        "LanesInUse": 2,
    }
    assert acme["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Queue", "Tenant"]]
    del acme["_aws"], other["_aws"]
    assert acme == {
        "Queue": "mail",
        "Tenant": "acme",
        "NumberOfMessagesReceived": 3,
        "MessagesAcked": 1,
        "MessagesRetried": 1,
        "AgeOnReceipt": [2, 7, 90],
        "AgeOfFirstAttempt": [2, 7],
        "AgeOfFirstSubscriberFirstAttempt": [7],
        "HandlerLatency": [100, 300],
        "ApproximateNumberOfMessagesVisible": 12,
        "ApproximateNumberOfMessagesNotVisible": 1,
        "ApproximateNumberOfMessagesSpilled": 10,
    }
    assert other == {
        "Queue": "mail",
        "Tenant": "other",
        "ApproximateNumberOfMessagesVisible": 3,
        "ApproximateNumberOfMessagesNotVisible": 1,
        "ApproximateNumberOfMessagesDelayed": 3,
        "DeadLetters": 4,
    }


def test_ages_are_in_seconds_and_handlers_in_milliseconds() -> None:
    units = metrics_of(told(*EVERYTHING)[0])
    assert {name for name, unit in units.items() if unit != "Count"} == {
        "EmptyPollRatio",
        "AgeOnReceipt",
        "AgeOfFirstAttempt",
        "AgeOfFirstSubscriberFirstAttempt",
        "HandlerLatency",
        "ApproximateAgeOfOldestMessage",
    }
    assert (units["EmptyPollRatio"], units["AgeOfFirstAttempt"], units["HandlerLatency"]) == (
        "Percent",
        "Seconds",
        "Milliseconds",
    )


def test_what_was_not_measured_is_not_told() -> None:
    [looked] = told(snapshot(lane(1, ready=1)), max_tenants=0)
    assert metrics_of(looked).keys() == {
        "ApproximateNumberOfMessagesVisible",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesSpilled",
        "DeadLetters",
        "LanesInUse",
    }
    [empty] = told(snapshot())  # and no line for tenants of whom there is nothing to say
    assert empty["DeadLetters"] == 0
    [idle] = told(polled())
    assert "AgeOfFirstAttempt" not in idle
    assert idle["EmptyPollRatio"] == 100
    [away] = told(trouble())
    assert metrics_of(away).keys() == {"BackendErrors"}


def test_lines_come_with_the_first_event_after_the_time_is_over_and_begin_anew() -> None:
    lines: list[str] = []
    clock = FakeClock()
    exporter = EmfExporter(lines.append, namespace="shop", interval=10, clock=clock)
    sink = QueueMetrics(exporter, max_tenants=0)
    for _ in range(3):
        sink.emit(polled(delivery()))
        clock.advance(4.9)
    assert lines == []
    sink.emit(polled())
    sink.emit(polled())
    assert [line["Polls"] for line in documents(lines)] == [3]
    exporter.flush()
    assert [(line["Polls"], line["NumberOfMessagesReceived"]) for line in documents(lines)] == [(3, 3), (2, 0)]
    exporter.close()
    exporter.close()
    assert len(lines) == 2


def test_alarms_are_left_to_cloudwatch() -> None:
    alarm = QueueAlarm(queue="mail", kind=AlarmKind.DEAD_LETTERS, is_open=True, at=1, value=4, threshold=1, since=1)
    assert told(alarm) == []


def test_of_ten_thousand_tenants_the_busiest_and_the_deepest_have_lines_and_the_rest_one() -> None:
    lines: list[str] = []
    clock = FakeClock()
    exporter = EmfExporter(lines.append, namespace="shop", clock=clock)
    sink = QueueMetrics(exporter)
    for number in range(10_000):
        sink.emit(polled(delivery(f"tenant {number}")))
    sink.emit(snapshot(lane(1, ready=10_000), tenants=[tenant(f"tenant {number}", ready=1) for number in range(9_000)]))
    exporter.flush()
    found = documents(lines)
    assert len(found) <= 1 + 20 + 20 + 1
    assert sum(line.get("NumberOfMessagesReceived", 0) for line in found[1:]) == 10_000
    assert sum(line.get("ApproximateNumberOfMessagesVisible", 0) for line in found[1:]) == 10_000


def test_tenants_keep_their_names_from_one_window_to_the_next() -> None:
    lines: list[str] = []
    exporter = EmfExporter(lines.append, namespace="shop", clock=FakeClock())
    sink = QueueMetrics(exporter, max_tenants=1)
    sink.emit(polled(delivery("first")))
    exporter.flush()
    sink.emit(polled(delivery("second"), delivery("first")))
    exporter.flush()
    assert [line.get("Tenant") for line in documents(lines)] == [None, "first", None, "first", "other"]


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_fits_into_a_dimension(queue: str, name: str) -> None:
    assert len(told(polled(delivery(name), queue=queue))) == 2


def test_the_largest_line_is_far_below_the_limit() -> None:
    events = [handled(seconds=1 / (number + 3), tenant="t" * 512) for number in range(1000)]
    ages = [polled(delivery("t" * 512, age=1 / (number + 3), first_subscriber=True)) for number in range(1000)]
    lines = told(*events, *ages, *EVERYTHING)
    assert max(len(json.dumps(line)) for line in lines) < 100_000


def test_no_depth_stands_for_several_queues() -> None:
    first, *lines = told(*(snapshot(lane(1, ready=number), queue=f"q{number}") for number in range(203)), max_tenants=0)
    assert {line["Queue"] for line in lines} == {f"q{number}" for number in range(200)}
    assert first["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [[]]
    assert (metrics_of(first), first["QueuesNotMonitored"]) == ({"QueuesNotMonitored": "Count"}, 3)

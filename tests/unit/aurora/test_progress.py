"""Progress is read from the latest state of an execution's history, in whatever order its events come."""

import json
from datetime import UTC, datetime
from typing import Any

from holdfast.aurora.progress import read_progress

AT = 1_800_000_000.0
COUNTERS = {"overall": {"retries": 1}, "dedicatedReader": {"retries": 2}, "failover": {"retries": 0}}
RUN = {
    "counters": COUNTERS,
    "cluster": {"dedicatedReaderInstanceId": "reader", "oldWriterInstanceId": "writer"},
    "check": {"reason": "reader is modifying"},
}


def entered(number: int, name: str, data: dict[str, Any] | None) -> dict[str, Any]:
    details = {"name": name} if data is None else {"name": name, "input": json.dumps(data)}
    return {"id": number, "timestamp": datetime.fromtimestamp(AT, UTC), "stateEnteredEventDetails": details}


def test_the_latest_state_is_shown_with_its_instance_retries_round_and_end_of_waiting() -> None:
    events = [
        entered(9, "WaitForDedicatedReaderRetry", RUN),
        {"id": 10, "type": "Other"},
        entered(1, "ValidateInput", {}),
    ]
    progress = read_progress(events)
    assert progress is not None
    assert progress.text == "wait for dedicated reader retry (reader), retry 2 of 5, round 2 of 4"
    assert (progress.waits_until, progress.reason) == (AT + 600, "reader is modifying")


def test_each_step_names_its_instance() -> None:
    names = ("CheckFailoverStatus", "ScaleOldWriter", "FinalVerification", "WaitForFailover")
    found = [read_progress([entered(1, name, RUN)]) for name in names]
    assert [each and each.instance for each in found] == ["reader", "writer", "", "reader"]
    assert [each and each.waits_until for each in found] == [None, None, None, AT + 120]


def test_inside_the_map_the_round_and_the_retries_are_shown_too() -> None:
    """However many readers there are: the latest events of a long Map do not include the state before it."""
    item = {"instanceId": "as-1", "counters": {"overall": {"retries": 1}, "autoScalingReader": {"retries": 1}}}
    progress = read_progress([entered(6, "WaitForAutoScalingReader", item)])
    assert progress is not None
    assert progress.text == "wait for auto scaling reader (as-1), retry 1 of 5, round 2 of 4"
    assert progress.waits_until == AT + 60


def test_a_failed_run_is_shown_in_the_state_that_failed_with_the_reason() -> None:
    progress = read_progress([entered(7, "DedicatedReaderStatusError", RUN), entered(8, "ReleaseLockAfterError", RUN)])
    assert progress is not None
    assert (progress.state, progress.reason) == ("DedicatedReaderStatusError", "reader is modifying")


def test_a_run_that_has_entered_no_state_has_no_progress() -> None:
    assert read_progress([{"id": 1, "type": "ExecutionStarted"}]) is None
    progress = read_progress([entered(1, "ValidateInput", None)])
    assert progress is not None
    assert progress.text == "validate input"

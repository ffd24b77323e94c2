"""The state machine has every state of the diagram, and every one of its paths ends with a notification."""

import json
from collections.abc import Iterator
from typing import Any

from holdfast.aurora.machine import (
    NOTIFICATION_ERROR,
    NOTIFICATION_ERRORS,
    RESULT_FIELDS,
    TIMEOUTS,
    Function,
    Resources,
    build_machine,
)
from tests.table import every_row

FAMILIES = ("DedicatedReader", "Failover", "OldWriter", "AutoScalingReader")
ACTS = ("ScaleDedicatedReader", "FailoverToDedicatedReader", "ScaleOldWriter", "ScaleAutoScalingReader")
DEFINITION = build_machine(Resources(functions={each: f"arn:{each}" for each in Function}, lock_table="locks"))
MAP = DEFINITION["States"]["ProcessAutoScalingReaders"]
INNER = MAP["ItemProcessor"]
TIMED_OUT = {"Lambda.Unknown", "Sandbox.Timedout", "States.Timeout"}
SEND = "arn:send-notification"
STATES: dict[str, dict[str, Any]] = {**DEFINITION["States"], **INNER["States"]}


def following(state: dict[str, Any]) -> Iterator[str]:
    for part in (state, *state.get("Choices", ()), *state.get("Catch", ())):
        if "Next" in part:
            yield part["Next"]
    if "Default" in state:
        yield state["Default"]


def reach(definition: dict[str, Any]) -> set[str]:
    found, waiting = set(), [definition["StartAt"]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += following(definition["States"][name])
    return found


def test_the_states_of_the_diagram_are_there_with_their_types() -> None:
    family = {
        "WaitFor{}": "Wait",
        "Check{}Status": "Task",
        "Evaluate{}Status": "Choice",
        "Increment{}Retry": "Pass",
        "WaitFor{}Retry": "Wait",
        "Refresh{}Info": "Task",
        "Update{}Info": "Pass",
        "{}StatusError": "Task",
    }
    expected = {
        **{name.format(each): kind for each in FAMILIES for name, kind in family.items()},
        **dict.fromkeys(ACTS, "Task"),
        "ValidateInput": "Pass",
        "ProcessAutoScalingReaders": "Map",
        "AutoScalingReaderComplete": "Pass",
        "PrepareFinalVerification": "Pass",
        "FinalVerification": "Task",
        "FinalVerificationAutoScaling": "Task",
        "EvaluateFinalVerification": "Pass",
        "CheckFinalVerificationResult": "Choice",
        "IncrementOverallRetry": "Pass",
        "WaitBeforeRetry": "Wait",
        "OverallRetryError": "Task",
        "SendCompletionNotification": "Task",
    }
    assert {name: STATES[name]["Type"] for name in expected} == expected


def test_waits_retries_and_limits_are_those_of_the_diagram() -> None:
    waits = {name: state["Seconds"] for name, state in STATES.items() if state["Type"] == "Wait"}
    first = {f"WaitFor{each}": 120 if each == "Failover" else 60 for each in FAMILIES}
    again = {f"WaitFor{each}Retry": 600 for each in FAMILIES}
    assert waits == {**first, **again, "WaitForClusterStart": 600, "WaitBeforeRetry": 60}
    limits = {
        choice["Variable"]: choice["NumericLessThan"]
        for state in STATES.values()
        for choice in state.get("Choices", ())
        for choice in (choice, *choice.get("And", ()))
        if "NumericLessThan" in choice
    }
    counters = {"dedicatedReader": 5, "failover": 5, "oldWriter": 5, "autoScalingReader": 5, "clusterStart": 5}
    assert limits == {
        f"$.counters.{name}.retries": limit for name, limit in {**counters, "overall": 3, "replacements": 2}.items()
    }
    assert (MAP["MaxConcurrency"], INNER["ProcessorConfig"]) == (1, {"Mode": "INLINE"})
    # So that the progress inside the Map shows the round.
    assert MAP["ItemSelector"]["counters"]["overall.$"] == "$.counters.overall"


def test_every_state_is_reached_and_every_path_ends() -> None:
    assert reach(DEFINITION) == set(DEFINITION["States"])
    assert reach(INNER) == set(INNER["States"])
    ends = {name for name, state in STATES.items() if not list(following(state))}
    assert {STATES[name]["Type"] for name in ends} == {"Succeed", "Fail", "Pass"}
    assert [name for name in ends if STATES[name]["Type"] == "Pass"] == ["AutoScalingReaderComplete"]
    assert all(len(name) <= 80 for name in STATES)


def test_every_path_to_an_end_sends_a_notification_and_releases_the_lock() -> None:
    """Without the states that notify, or without those that release, no end can be reached."""
    sends = {name for name in STATES if "arn:send-notification" in json.dumps(STATES[name])}
    releases = {name for name in STATES if name.startswith("ReleaseLock")}
    # Where no lock was taken: the input is invalid, or another run holds it.
    unlocked = {"InvalidInputError", "SendSkippedNotification"}

    def ends_without(removed: set[str]) -> set[str]:
        states = {name: state for name, state in DEFINITION["States"].items() if name not in removed}
        found, waiting = set(), [DEFINITION["StartAt"]]
        while waiting:
            name = waiting.pop()
            if name in states and name not in found:
                found.add(name)
                waiting += following(states[name])
        return {name for name in found if states[name]["Type"] in {"Succeed", "Fail"}}

    # The failed reader has sent its notification inside the map.
    assert ends_without(sends) <= {"ScalingFailed"}
    assert ends_without(releases | unlocked) == set()
    assert ends_without(set()) >= {"ScalingSucceeded", "ScalingFailed", "ScalingSkipped", "NotificationFailed"}


def test_a_notification_that_cannot_be_sent_fails_the_execution_so_that_the_rule_on_its_status_tells() -> None:
    def find_end(name: str) -> str:
        while STATES[name]["Type"] not in {"Succeed", "Fail"}:
            name = STATES[name]["Next"]
        return str(STATES[name].get("Error"))

    sends = [name for name, state in STATES.items() if state.get("Parameters", {}).get("FunctionName") == SEND]
    assert len(sends) == 10

    def check(name: str) -> None:
        kind = STATES[name]["Parameters"]["Payload"]["kind"]
        assert find_end(STATES[name]["Catch"][0]["Next"]) == NOTIFICATION_ERRORS.get(kind, NOTIFICATION_ERROR)

    every_row(sends, check)


def test_every_task_has_a_timeout_above_that_of_its_function_a_retry_and_a_catch() -> None:
    tasks = {name: state for name, state in STATES.items() if state["Type"] == "Task"}

    def check(name: str) -> None:
        state = tasks[name]
        function = state["Parameters"].get("FunctionName", "").removeprefix("arn:")
        assert state["Resource"].startswith("arn:aws:states:::")
        assert state["TimeoutSeconds"] == (TIMEOUTS[Function(function)] + 30 if function else 60)
        assert state["Retry"][-1]["MaxAttempts"] == 3
        if function:
            assert set(state["Retry"][0]["ErrorEquals"]) >= {"Lambda.TooManyRequestsException", *TIMED_OUT}
        is_caught_by_map = name in INNER["States"] and name != "AutoScalingReaderStatusError"
        assert ("Catch" in state) is not is_caught_by_map
        if function:
            assert state["ResultSelector"] == {
                f"{key}.$": f"$.Payload.{key}" for key in RESULT_FIELDS[Function(function)]
            }

    every_row(tasks, check)
    assert "ResultPath" not in str(MAP["ItemProcessor"]["States"]["AutoScalingReaderComplete"])


def test_the_input_is_really_checked() -> None:
    choice = DEFINITION["States"]["CheckInput"]
    names = [part["And"][0]["Variable"] for part in choice["Choices"][0]["And"]]
    assert names == ["$.clusterIdentifier", "$.targetClass"]
    assert choice["Default"] == "InvalidInputError"

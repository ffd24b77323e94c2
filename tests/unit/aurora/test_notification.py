"""Notifications say what happened to which cluster, why, and what to do."""

from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.aurora.notification import build_notification
from tests.table import every_row

RUN = {"clusterIdentifier": "shop-cluster", "targetClass": "db.t4g.medium"}
FAILED = {"Error": "InsufficientCapacity", "Cause": '{"errorMessage": "there is none", "stackTrace": ["line 1"]}'}
INSTANCES = {
    "writerAndDedicatedReader": {"instances": ["a: x, available, writer"], "problems": ["a is late"]},
    "otherReaders": {"problems": ["b"]},
}


def test_each_kind_has_its_subject_reason_and_advice() -> None:
    again = "Run again to continue."
    rows: list[tuple[str, dict[str, Any], str, list[str]]] = [
        ("Completed", {"final": INSTANCES}, "scaling completed", ["Instances:\n  a: x, available, writer"]),
        ("Skipped", {}, "scaling skipped", ["is in progress, and goes on"]),
        ("InvalidInputError", {}, "not started: invalid input", ["Pass clusterIdentifier and targetClass"]),
        ("ClusterStateError", {"refresh": {"reason": "it is stopped"}}, "cannot be changed", ["Reason: it is stopped"]),
        ("FailoverStatusError", {"check": {"reason": "d is slow"}}, "failed at the failover", ["d is slow", again]),
        ("OverallRetryError", {"final": INSTANCES}, "not all instances", ["Reason: a is late; b", "Instances:", again]),
        ("UnexpectedError", {"error": {"Error": "E", "Cause": "why"}}, "scaling failed", ["Reason: E: why", again]),
        ("UnexpectedError", {"error": {}}, "scaling failed", ["Reason: error", again]),
        ("UnexpectedError", {"error": FAILED}, "scaling failed", ["Reason: InsufficientCapacity: there is none\n"]),
        ("UnexpectedError", {"error": {"Error": "E", "Cause": "[1]"}}, "scaling failed", ["Reason: E: [1]"]),
        (
            "OldWriterStatusError",
            {"check": {"reason": "w is available"}, "act": {"reason": "not while a is rebooting"}},
            "failed at the old writer",
            ["Reason: w is available (last attempt: not while a is rebooting)"],
        ),
        (
            "FailoverStatusError",
            {"check": {"reason": "d is not the writer"}, "act": FAILED},
            "failed at the failover",
            ["Reason: d is not the writer (last attempt: InsufficientCapacity: there is none)"],
        ),
        ("UnexpectedError", {"error": "text"}, "scaling failed", [again]),
        ("ABORTED", {"cause": "by Ann"}, "was stopped", ["Reason: by Ann", "A change that RDS has begun goes on."]),
        ("TIMED_OUT", {}, "timed out", [again]),
        ("FAILED", {"cause": None}, "scaling failed", [again]),
        ("OldWriterStatusError", {"check": "odd"}, "failed at the old writer", [again]),
    ]

    def check(row: tuple[str, dict[str, Any], str, list[str]]) -> None:
        kind, run, subject, lines = row
        found = build_notification(kind, {**RUN, **run}, "arn:1")
        assert found.subject.startswith("Aurora shop-cluster: ")
        assert subject in found.subject
        assert found.text.startswith("Scaling of shop-cluster to db.t4g.medium ")
        assert found.text.endswith("\nExecution: arn:1")
        assert [line for line in lines if line not in found.text] == []
        assert ("Reason:" in found.text) == any("Reason:" in line or "d is slow" in line for line in lines)

    every_row(rows, check)


def test_a_subject_fits_sns_whatever_the_input_is() -> None:
    found = build_notification("Completed", {"clusterIdentifier": "ü" * 200}, "")
    assert len(found.subject) == 100
    assert found.subject.isascii()
    assert "unknown cluster" in build_notification("FAILED", {}, "").text


def test_an_unknown_kind_is_refused_and_the_machine_has_none() -> None:
    with pytest.raises(InvalidValue, match="expected one of Completed"):
        build_notification("Other", {}, "")
    definition = build_machine(Resources(functions={each: each for each in Function}, lock_table="t"))
    states = {**definition["States"], **definition["States"]["ProcessAutoScalingReaders"]["ItemProcessor"]["States"]}
    kinds = [
        state["Parameters"]["Payload"]["kind"]
        for state in states.values()
        if state.get("Parameters", {}).get("FunctionName") == Function.SEND_NOTIFICATION
    ]
    assert len(kinds) >= 8
    for kind in kinds:
        assert build_notification(kind, RUN, "").text

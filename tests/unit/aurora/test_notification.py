"""Notifications say what happened to which cluster, why, and what to do."""

from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.aurora.notification import build_notification
from tests.table import every_row

EXECUTION = "arn:aws:states:ap-northeast-1:123456789012:execution:shop-scaling:shop-cluster_20251118T1414Z"
RUN = {"clusterIdentifier": "shop-cluster", "targetClass": "db.t4g.medium"}
FAILED = {"Error": "InsufficientCapacity", "Cause": '{"errorMessage": "there is none", "stackTrace": ["line 1"]}'}
A = {"id": "a", "class": "db.t4g.medium", "status": "available", "role": "writer"}
B = {**A, "id": "b", "class": "db.t4g.large", "role": "reader"}
LISTED = "Instances:\n  a: db.t4g.medium, available, writer"
INSTANCES = {
    "writerAndDedicatedReader": {"instances": [A], "problems": ["a is late"]},
    "otherReaders": {"problems": ["b"]},
}


def test_each_kind_has_its_subject_reason_and_advice() -> None:
    again = "Run it again to continue: holdfast aurora run shop-cluster --prefix shop --class db.t4g.medium"
    rows: list[tuple[str, dict[str, Any], str, list[str]]] = [
        ("Completed", {"final": INSTANCES}, "class change completed", [LISTED]),
        ("Skipped", {}, "class change skipped", ["is in progress, and goes on"]),
        ("InvalidInputError", {}, "not started: invalid input", ["needs clusterIdentifier and targetClass, both"]),
        (
            "ClusterStateError",
            {"refresh": {"reason": "it is stopped"}},
            "cannot be changed",
            ["Reason: it is stopped", "When the cluster is ready, run it again: holdfast"],
        ),
        ("FailoverStatusError", {"check": {"reason": "d is slow"}}, "failed at the failover", ["d is slow", again]),
        ("OverallRetryError", {"final": INSTANCES}, "not all instances", ["Reason: a is late; b", LISTED, again]),
        (
            "UnexpectedError",
            {"error": {"Error": "E", "Cause": "why"}},
            "class change failed",
            ["Reason: E: why", again],
        ),
        ("UnexpectedError", {"error": {}}, "class change failed", ["Reason: error", again]),
        ("UnexpectedError", {"error": FAILED}, "class change failed", ["Reason: there is none\n"]),
        ("UnexpectedError", {"error": {"Error": "E", "Cause": "[1]"}}, "class change failed", ["Reason: E: [1]"]),
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
            ["Reason: d is not the writer (last attempt: there is none)"],
        ),
        ("UnexpectedError", {"error": "text"}, "class change failed", [again]),
        ("ABORTED", {"cause": "by Ann"}, "was stopped", ["Reason: by Ann", "A change that RDS has begun goes on."]),
        ("TIMED_OUT", {}, "timed out", ["Reason: the run took longer than 80 hours", again]),
        ("FAILED", {"cause": None}, "class change failed", [again]),
        ("OldWriterStatusError", {"check": "odd"}, "failed at the old writer", [again]),
    ]

    def check(row: tuple[str, dict[str, Any], str, list[str]]) -> None:
        kind, run, subject, lines = row
        found = build_notification(kind, {**RUN, **run}, EXECUTION)
        assert found.subject.startswith("Aurora shop-cluster: ")
        assert subject in found.subject
        assert found.text.startswith("Class change of shop-cluster to db.t4g.medium ")
        assert found.text.endswith(f"\nExecution: {EXECUTION}")
        assert [line for line in lines if line not in found.text] == []
        assert ("Reason:" in found.text) == any("Reason:" in line or "d is slow" in line for line in lines)

    every_row(rows, check)


def test_every_end_lists_the_instances_as_they_are_or_as_they_were_verified() -> None:
    for kind in ("DedicatedReaderStatusError", "UnexpectedError", "ABORTED", "TIMED_OUT", "FAILED", "Skipped"):
        found = build_notification(kind, RUN, "", [B])
        assert "Instances:\n  b: db.t4g.large, available, reader\n" in found.text
    assert LISTED in build_notification("Completed", {**RUN, "final": INSTANCES}, "", [B]).text
    assert "PREFIX --class db.t4g.medium" in build_notification("FAILED", RUN, "").text


def test_a_completed_run_names_the_classes_that_it_has_applied() -> None:
    run = {**RUN, "fallbackClasses": [B["class"]], "cause": "it could not be sent"}
    rows = {
        "db.t4g.medium": [A],
        "db.t4g.large (fallback for db.t4g.medium)": [B],
        "db.t4g.medium and db.t4g.large (fallback for db.t4g.medium)": [B, A],
    }
    for classes, instances in rows.items():
        text = build_notification("Completed", run, "", instances).text
        assert text.startswith(f"Class change of shop-cluster to {classes} completed.\nNote: it could not be sent\n")


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

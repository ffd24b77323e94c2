"""The text of notifications about a run. Pure."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast._errors import InvalidValue

MAX_SUBJECT = 100
"""SNS accepts subjects of at most 100 ASCII characters."""
_SUBJECTS = {
    "Completed": "completed",
    "Skipped": "skipped",
    "InvalidInputError": "not started: invalid input",
    "ClusterStateError": "failed: the cluster cannot be changed",
    "DedicatedReaderStatusError": "failed at the dedicated reader",
    "FailoverStatusError": "failed at the failover",
    "OldWriterStatusError": "failed at the old writer",
    "AutoScalingReaderStatusError": "failed at an autoscaling reader",
    "OverallRetryError": "failed: not all instances were changed",
    "UnexpectedError": "failed",
    "ABORTED": "was stopped",
    "TIMED_OUT": "timed out",
    "FAILED": "failed",
}
"""What happened, by the kind of notification; upper case is the status of an execution."""
NOTIFIED_ERRORS = frozenset({"ScalingError"})
"""Errors of executions that have sent a notification themselves."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A message for people."""

    subject: str
    text: str


def build_notification(kind: str, run: Mapping[str, Any], execution: str) -> Notification:
    """Return the notification about a run. `run` is the data of its state machine, of which anything may be missing."""
    if kind not in _SUBJECTS:
        raise InvalidValue(f"kind is {kind!r}: expected one of {', '.join(_SUBJECTS)}")
    cluster, target = run.get("clusterIdentifier", "unknown cluster"), run.get("targetClass", "unknown class")
    lines = [f"Scaling of {cluster} to {target} {_SUBJECTS[kind]}."]
    reason = find_reason(kind, run)
    if reason:
        lines.append(f"Reason: {reason}")
    instances = _get(run, "final", "writerAndDedicatedReader", "instances") + _get(
        run, "final", "otherReaders", "instances"
    )
    if kind in {"Completed", "OverallRetryError"} and instances:
        lines += ["Instances:", *(f"  {each}" for each in instances)]
    if kind != "Completed":
        lines.append(_ADVICE.get(kind, "Instances that were changed keep their new class. Run again to continue."))
    lines.append(f"Execution: {execution}")
    subject = f"Aurora {cluster}: scaling {_SUBJECTS[kind]}"
    return Notification(_fit_subject(subject), "\n".join(lines))


_ADVICE = {
    "Skipped": "Another run of this cluster is in progress, and goes on.",
    "InvalidInputError": "Pass clusterIdentifier and targetClass as text.",
    "ABORTED": "A change that RDS has begun goes on. Run again to continue.",
}


def find_reason(kind: str, run: Mapping[str, Any]) -> str:
    """Return why a run failed, from the data of its state machine; empty if that is unknown."""
    if kind == "UnexpectedError":
        return _describe_error(run.get("error"))
    if kind == "OverallRetryError":
        problems = _get(run, "final", "writerAndDedicatedReader", "problems") + _get(
            run, "final", "otherReaders", "problems"
        )
        return "; ".join(map(str, problems))
    if kind == "ClusterStateError":
        return str(_find(run, "refresh", "reason") or "")
    if kind.endswith("StatusError"):
        attempt = _find(run, "act", "reason") or _describe_error(run.get("act"))
        return str(_find(run, "check", "reason") or "") + (f" (last attempt: {attempt})" if attempt else "")
    return str(run.get("cause") or "")


def _describe_error(error: object) -> str:
    """Return the error that a state has caught, in words."""
    if not isinstance(error, Mapping):
        return ""
    cause = error.get("Cause", "")
    with suppress(ValueError, TypeError, KeyError):  # the cause is plain text, if the error is not that of a function
        cause = json.loads(cause)["errorMessage"]
    return f"{error.get('Error', 'error')}: {cause}".strip(": ")


def _find(run: Any, *keys: str) -> Any:
    for key in keys:
        run = run.get(key) if isinstance(run, Mapping) else None
    return run


def _get(run: Any, *keys: str) -> list[Any]:
    found = _find(run, *keys)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []


def _fit_subject(text: str) -> str:
    return text.encode("ascii", "replace").decode()[:MAX_SUBJECT]

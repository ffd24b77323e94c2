"""The text of notifications about a run. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast._errors import InvalidValue
from holdfast.aurora.machine import TIMEOUT_SECONDS

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
    "ABORTED": "was stopped by someone",
    "TIMED_OUT": "timed out",
    "FAILED": "failed",
}
"""What happened, by the kind of notification; upper case is the status of an execution."""
NOTIFIED_ERRORS = frozenset({"ScalingError"})
"""Errors of executions that have sent a notification themselves."""
_OWN_ERRORS = frozenset({"InsufficientCapacity", "PendingChanges", "FailoverNotReady"})
"""Errors of our functions, whose message is a whole sentence."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A message for people."""

    subject: str
    text: str


def build_notification(
    kind: str, run: Mapping[str, Any], execution: str, instances: Sequence[Mapping[str, str]] = ()
) -> Notification:
    """Return the notification about a run.

    `run` is the data of its state machine. Every member of it may be missing. `instances` are those of the cluster now,
    with `id`, `class`, `status` and `role`. If the run itself has verified them, its own list is used.
    """
    if kind not in _SUBJECTS:
        raise InvalidValue(f"kind is {kind!r}: expected one of {', '.join(_SUBJECTS)}")
    cluster = run.get("clusterIdentifier", "unknown cluster")
    if kind in {"Completed", "OverallRetryError"}:
        verified = [each for part in VERIFIED_PARTS for each in _get(run, "final", part, "instances")]
        instances = verified or instances
    classes = _name_classes(run, instances) if kind == "Completed" else run.get("targetClass", "unknown class")
    lines = [f"Class change of {cluster} to {classes} {_SUBJECTS[kind]}."]
    reason = find_reason(kind, run)
    if reason:
        lines.append(f"{'Note' if kind in {'Completed', 'Skipped'} else 'Reason'}: {reason}")
    if instances:
        lines += ["Instances:", *("  {id}: {class}, {status}, {role}".format(**each) for each in instances)]
    if kind != "Completed":
        lines.append(_advise(kind, run, execution))
    lines.append(f"Execution: {execution}")
    return Notification(_fit_subject(f"Aurora {cluster}: class change {_SUBJECTS[kind]}"), "\n".join(lines))


VERIFIED_PARTS = ("writerAndDedicatedReader", "otherReaders")
"""The two parts of the final verification."""


def _name_classes(run: Mapping[str, Any], instances: Sequence[Mapping[str, str]]) -> str:
    """Return the classes that a completed run has given to the instances: the target class, or fallback classes."""
    target = run.get("targetClass", "unknown class")
    given = {each["class"] for each in instances}
    used = [each for each in (target, *_get(run, "fallbackClasses")) if each in given]
    return " and ".join(each if each == target else f"{each} (fallback for {target})" for each in used) or str(target)


def _advise(kind: str, run: Mapping[str, Any], execution: str) -> str:
    """Return what to do after a run that did not complete."""
    if kind == "Skipped":
        return "Another run of this cluster is in progress, and goes on."
    if kind == "InvalidInputError":
        return "The input of the execution needs clusterIdentifier and targetClass, both strings."
    cluster, target = run.get("clusterIdentifier", "CLUSTER"), run.get("targetClass", "CLASS")
    prefix = re.search(r":execution:(.+)-scaling:", execution)
    command = f"holdfast aurora run {cluster} --prefix {prefix[1] if prefix else 'PREFIX'} --class {target}"
    if kind == "ClusterStateError":
        return f"When the cluster is ready, run it again: {command}"
    first = (
        "A change that RDS has begun goes on." if kind == "ABORTED" else "Instances that were changed keep their class."
    )
    return f"{first} Run it again to continue: {command}"


def find_reason(kind: str, run: Mapping[str, Any]) -> str:
    """Return why a run failed, from the data of its state machine; empty if that is unknown."""
    if kind == "UnexpectedError":
        return _describe_error(run.get("error"))
    if kind == "OverallRetryError":
        return "; ".join(str(each) for part in VERIFIED_PARTS for each in _get(run, "final", part, "problems"))
    if kind == "ClusterStateError":
        return str(_find(run, "refresh", "reason") or "")
    if kind.endswith("StatusError"):
        attempt = _find(run, "act", "reason") or _describe_error(run.get("act"))
        return str(_find(run, "check", "reason") or "") + (f" (last attempt: {attempt})" if attempt else "")
    if kind == "TIMED_OUT":
        return f"the run took longer than {TIMEOUT_SECONDS // 3600} hours"
    return str(run.get("cause") or "")


def _describe_error(error: object) -> str:
    """Return the error that a state has caught, in words."""
    if not isinstance(error, Mapping):
        return ""
    name, cause = error.get("Error", "error"), error.get("Cause", "")
    with suppress(ValueError, TypeError, KeyError):  # the cause is plain text, if the error is not that of a function
        cause = json.loads(cause)["errorMessage"]
    return str(cause) if name in _OWN_ERRORS else f"{name}: {cause}".strip(": ")


def _find(run: Any, *keys: str) -> Any:
    for key in keys:
        run = run.get(key) if isinstance(run, Mapping) else None
    return run


def _get(run: Any, *keys: str) -> list[Any]:
    found = _find(run, *keys)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []


def _fit_subject(text: str) -> str:
    return text.encode("ascii", "replace").decode()[:MAX_SUBJECT]

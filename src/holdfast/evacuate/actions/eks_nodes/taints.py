"""Recognize the nodes of a zone, and add and remove the taints of a run. Pure.

A node has at most one taint with the same key and effect. The value of a taint is the mark of the run that added it, so
that a run removes only its own taints.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from holdfast._types import Zone

EVACUATED_KEY = "holdfast.dev/evacuated"
"""The key of the taints, and of the annotation of node pools."""
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
"""The effects of a taint: no pod is placed on the node; and also, those that run there are deleted."""
ZONE_ID_LABEL, ZONE_LABEL = "topology.k8s.aws/zone-id", "topology.kubernetes.io/zone"
MAX_VALUE = 63
"""Characters of a value of a taint, as of a label."""
_DIGEST = 12
"""Characters of the digest that replaces the end of an id that is too long."""

Node = Mapping[str, Any]
Taint = Mapping[str, Any]


def build_mark(run: str) -> str:
    """Return the id of a run as a value that Kubernetes accepts for a taint."""
    text = re.sub(r"[^A-Za-z0-9_.-]", "-", run).strip("-_.")
    if text == run and len(run) <= MAX_VALUE:
        return run
    digest = sha256(run.encode()).hexdigest()[:_DIGEST]  # two ids must not become the same mark
    return f"{text[: MAX_VALUE - _DIGEST - 1]}-{digest}".lstrip("-")


def is_in_zone(node: Node, zone: Zone, zone_name: str) -> bool:
    """Return whether a node is in a zone, by its AZ-ID, or else by the name that the account has for the zone."""
    labels = node["metadata"].get("labels", {})
    if ZONE_ID_LABEL in labels:
        return bool(labels[ZONE_ID_LABEL] == zone)
    return bool(labels.get(ZONE_LABEL) == zone_name)


def is_ready(node: Node) -> bool:
    """Return whether a node can run pods."""
    conditions = node.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def get_taints(node: Node) -> Sequence[Taint]:
    """Return all taints of a node."""
    return node["spec"].get("taints") or []


def get_marks(node: Node) -> dict[str, str]:
    """Return the marks of runs on a node, by the effect of the taint."""
    return {each["effect"]: each.get("value", "") for each in get_taints(node) if each["key"] == EVACUATED_KEY}


def find_missing(node: Node, effects: Collection[str]) -> list[str]:
    """Return those of some effects that no run has given to a node."""
    marks = get_marks(node)
    return [each for each in effects if each not in marks]


def build_addition(node: Node, mark: str, effects: Collection[str]) -> dict[str, Any] | None:
    """Return the patch that adds the effects which a node lacks; None if it has them. Other taints are kept."""
    missing = find_missing(node, effects)
    if not missing:
        return None
    added = [{"key": EVACUATED_KEY, "value": mark, "effect": each} for each in missing]
    return {"spec": {"taints": [*get_taints(node), *added]}}


def build_removal(node: Node, mark: str) -> dict[str, Any] | None:
    """Return the patch that removes the taints with a mark from a node; None if it has none. Other taints are kept."""
    if mark not in get_marks(node).values():
        return None
    kept = [each for each in get_taints(node) if (each["key"], each.get("value")) != (EVACUATED_KEY, mark)]
    return {"spec": {"taints": kept or None}}

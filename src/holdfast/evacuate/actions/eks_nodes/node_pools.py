"""Keep the node pools of Karpenter from launching nodes in a zone, by one more requirement. Pure.

An annotation with the mark of the run says whose requirement it is. Both are written by one patch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.evacuate.action import ChangeState, Reading
from holdfast.evacuate.actions.eks_nodes.taints import EVACUATED_KEY, ZONE_LABEL
from holdfast.evacuate.journal import EntryState

NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"

Pool = Mapping[str, Any]


def get_requirements(pool: Pool) -> Sequence[Mapping[str, Any]]:
    """Return the requirements of the nodes of a pool."""
    return pool["spec"]["template"]["spec"].get("requirements") or []


def list_other_zones(pool: Pool, zone_name: str) -> list[str] | None:
    """Return the zones, without the given one, to which a pool is limited; None if it is not limited."""
    limits = [set(each["values"]) for each in get_requirements(pool) if _is_about_zones(each, "In")]
    return sorted(set.intersection(*limits) - {zone_name}) if limits else None


def uses_zone(pool: Pool, zone_name: str) -> bool:
    """Return whether a pool may launch nodes in a zone."""
    for each in get_requirements(pool):
        if _is_about_zones(each, "In") and zone_name not in each["values"]:
            return False
        if _is_about_zones(each, "NotIn") and zone_name in each["values"]:
            return False
    return True


def read_pool(pool: Pool, mark: str, zone_name: str, state: EntryState) -> Reading:
    """Return the state of the change with a mark. `state` is that of the entry."""
    found, is_excluded = _get_mark(pool), _build_requirement(zone_name) in get_requirements(pool)
    if found == mark and (is_excluded or state is EntryState.RESTORING):
        return Reading(state=ChangeState.APPLIED)
    if found == mark:
        return Reading(state=ChangeState.ABSENT, note=f"others have removed the requirement that excludes {zone_name}")
    if not is_excluded:
        return Reading(state=ChangeState.ABSENT)
    author = f"run {found}" if found else "another person or program"
    return Reading(state=ChangeState.FOUND, note=f"{author} keeps it from launching nodes in {zone_name} already")


def build_exclusion(pool: Pool, mark: str, zone_name: str) -> dict[str, Any] | None:
    """Return the patch that excludes a zone from a pool; None if the pool has the requirement, from any author."""
    requirements, added = get_requirements(pool), _build_requirement(zone_name)
    return None if added in requirements else _build_patch([*requirements, added], mark)


def build_inclusion(pool: Pool, mark: str, zone_name: str) -> dict[str, Any] | None:
    """Return the patch that removes the requirement and the annotation with a mark; None if they are not there."""
    if _get_mark(pool) != mark:
        return None
    kept, ours = list(get_requirements(pool)), _build_requirement(zone_name)
    if ours in kept:
        del kept[len(kept) - 1 - kept[::-1].index(ours)]  # the last, because ours was added at the end
    return _build_patch(kept, None)


def _build_patch(requirements: list[Mapping[str, Any]], mark: str | None) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {EVACUATED_KEY: mark}},
        "spec": {"template": {"spec": {"requirements": requirements}}},
    }


def _build_requirement(zone_name: str) -> dict[str, Any]:
    return {"key": ZONE_LABEL, "operator": "NotIn", "values": [zone_name]}


def _get_mark(pool: Pool) -> str:
    return str(pool["metadata"].get("annotations", {}).get(EVACUATED_KEY, ""))


def _is_about_zones(requirement: Mapping[str, Any], operator: str) -> bool:
    return bool(requirement["key"] == ZONE_LABEL and requirement["operator"] == operator)

"""Taint the nodes of a zone in one cluster, evict their pods, and remove the taints again.

Every step reads the cluster first, and is safe to repeat: a node that has the taint is not written, and a pod that has
gone is not evicted. After a kill at any write, another process can continue, or restore by the taints alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, NotFound, OutcomeUnknown
from holdfast._types import Zone
from holdfast.evacuate.action import ChangeState, Reading
from holdfast.evacuate.actions.eks_nodes.kubernetes import NODES, KubernetesClient, Object
from holdfast.evacuate.actions.eks_nodes.pods import (
    belongs_elsewhere,
    describe_pods,
    find_bound_claims,
    find_obstacle,
    get_name,
    list_claims,
)
from holdfast.evacuate.actions.eks_nodes.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    build_addition,
    build_removal,
    find_missing,
    get_marks,
    is_in_zone,
    is_ready,
)
from holdfast.evacuate.journal import Entry, EntryState

PARALLEL_REQUESTS = 8
"""Requests to one cluster at the same time. A zone may have hundreds of pods, and an API server has many clients."""
FORCE_SECONDS = 60.0
"""Seconds before the deadline at which pods are deleted, if the option says so: most end within 30 s, the default."""


class Eviction(StrEnum):
    """How pods leave the nodes of the zone."""

    RESPECT_BUDGETS = "respect-budgets"
    """By evictions, which disruption budgets may forbid. Pods that are left at the deadline stay."""
    FORCE_AT_DEADLINE = "force-at-deadline"
    """By evictions. Shortly before the deadline, Kubernetes deletes the pods that are left, whatever budgets say."""
    FORCE = "force"
    """Kubernetes deletes all pods at once, whatever budgets say."""


class NodeChange(Struct, frozen=True, kw_only=True):
    """The change of the nodes of one cluster, as it is stored in the journal."""

    zone: Zone
    zone_name: str
    """The name that the account has for the zone."""
    mark: str
    """The value of the taints: the id of the run."""
    eviction: Eviction
    eviction_deadline_seconds: float

    @property
    def effects(self) -> tuple[str, ...]:
        """The effects of the taints that every node of the zone gets."""
        return (NO_SCHEDULE, NO_EXECUTE) if self.eviction is Eviction.FORCE else (NO_SCHEDULE,)


class ZonePods(NamedTuple):
    """The pods that should leave the zone."""

    movable: Sequence[Object]
    staying: Mapping[str, str]
    """Why pods cannot move, by namespace and name."""

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the nodes of pods that can move."""
        return frozenset(each["spec"]["nodeName"] for each in self.movable)


def list_zone_nodes(nodes: Collection[Object], zone: Zone, zone_name: str) -> list[Object]:
    """Return the nodes that are in a zone, without those that are being deleted."""
    kept = [each for each in nodes if "deletionTimestamp" not in each["metadata"]]
    return [each for each in kept if is_in_zone(each, zone, zone_name)]


def list_pods(client: KubernetesClient, nodes: Collection[Object], change: NodeChange) -> ZonePods:
    """Return the pods on some nodes that should leave them."""

    def list_node(node: Object) -> list[dict[str, Any]]:
        return client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}")

    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        pods = [each for listed in pool.map(list_node, nodes) for each in listed if belongs_elsewhere(each)]
    bound: frozenset[str] = frozenset()
    if any(list_claims(each) for each in pods):
        claims = client.list("/api/v1/persistentvolumeclaims")
        volumes = client.list("/api/v1/persistentvolumes")
        bound = find_bound_claims(claims, volumes, {change.zone, change.zone_name})
    obstacles = {get_name(each): find_obstacle(each, bound, change.mark) for each in pods}
    return ZonePods(
        [each for each in pods if not obstacles[get_name(each)]],
        {name: reason for name, reason in obstacles.items() if reason},
    )


def read_nodes(
    client: KubernetesClient, entry: Entry, change: NodeChange, now: float, refusals: Mapping[str, str]
) -> Reading:
    """Return the state of the change. `refusals` says why the last eviction of a pod was refused, by its name."""
    nodes = client.list(NODES)
    here = list_zone_nodes(nodes, change.zone, change.zone_name)
    ours = [each for each in nodes if change.mark in get_marks(each).values()]
    if entry.state is EntryState.RESTORING:
        if ours:
            return Reading(state=ChangeState.APPLIED)
        # A zone without nodes gets some when there are pods for it.
        return Reading(state=ChangeState.ABSENT, is_effective=not here or any(is_ready(each) for each in here))
    record = {"nodes": [each["metadata"]["uid"] for each in ours]}
    if entry.state is EntryState.APPLIED:
        reading = _read_applied(nodes, ours, record, entry.record.get("nodes", ()))
        if reading.state is not ChangeState.APPLIED or change.eviction is Eviction.FORCE:
            return reading
        return replace(reading, note=_describe_staying(list_pods(client, here, change), change, refusals))
    others = sorted({mark for each in here for mark in get_marks(each).values() if mark != change.mark})
    if others and not ours and not any(find_missing(each, [NO_SCHEDULE]) for each in here):
        note = f"run {', '.join(others)} has tainted the nodes in {change.zone} already"
        return Reading(state=ChangeState.FOUND, note=note)
    if any(find_missing(each, change.effects) for each in here):
        return Reading(state=ChangeState.ABSENT)
    if change.eviction is Eviction.FORCE:
        return Reading(state=ChangeState.APPLIED, record=record)
    pods, age = list_pods(client, here, change), now - entry.at
    if pods.movable and (age < change.eviction_deadline_seconds or _list_unforced(here, pods, change, age)):
        return Reading(state=ChangeState.ABSENT)
    return Reading(state=ChangeState.APPLIED, record=record, note=_describe_staying(pods, change, refusals))


def evacuate_nodes(client: KubernetesClient, change: NodeChange, age: float | None) -> dict[str, str]:
    """Taint the nodes of the zone that lack the taint, and ask once to evict each pod. Return the refused ones.

    `age` is the time since the evacuation began, in seconds, by which pods are deleted near the deadline; None if they
    must not be. Raise OutcomeUnknown if an error comes after a write: the taints must be removed some time.
    """
    here = list_zone_nodes(client.list(NODES), change.zone, change.zone_name)
    written = 0
    try:
        written += _taint(client, here, change.mark, change.effects)
        if change.eviction is Eviction.FORCE:
            return {}
        pods = list_pods(client, here, change)
        if age is not None:
            unforced = _list_unforced(here, pods, change, age)
            written += _taint(client, unforced, change.mark, (NO_SCHEDULE, NO_EXECUTE))
        return _evict(client, pods.movable)
    except (Conflict, OutcomeUnknown):
        raise
    except HoldfastError as error:
        if not written:
            raise
        raise OutcomeUnknown(f"{written} nodes were tainted, then a call failed: {error}") from error


def restore_nodes(client: KubernetesClient, mark: str) -> None:
    """Remove the taints with a mark from all nodes of the cluster, in any zone."""
    _update_all(client, client.list(NODES), lambda node: build_removal(node, mark))


def _read_applied(
    nodes: Sequence[Object], ours: Sequence[Object], record: Mapping[str, Any], tainted: Collection[str]
) -> Reading:
    """Return the state of a change that was made. `tainted` has the UIDs of the nodes that it tainted.

    A new node without the taint is no lapse: the next renewal taints it.
    """
    kept = [each for each in nodes if each["metadata"]["uid"] in tainted]
    if kept and not ours:
        note = (
            "others have removed the taints of this run from all nodes. The first `holdfast zone resume` only reports "
        )
        note += "that, and the second one taints them again"
        return Reading(state=ChangeState.DIFFERENT, note=note)
    return Reading(state=ChangeState.APPLIED, record=record)


def _list_unforced(here: Collection[Object], pods: ZonePods, change: NodeChange, age: float) -> list[Object]:
    """Return the nodes whose pods must be deleted now, because the deadline is near."""
    if change.eviction is not Eviction.FORCE_AT_DEADLINE or age < change.eviction_deadline_seconds - FORCE_SECONDS:
        return []
    used = [each for each in here if each["metadata"]["name"] in pods.nodes]
    return [each for each in used if find_missing(each, [NO_EXECUTE])]


def _taint(client: KubernetesClient, nodes: Collection[Object], mark: str, effects: Collection[str]) -> int:
    return _update_all(client, nodes, lambda node: build_addition(node, mark, effects))


def _update_all(
    client: KubernetesClient, nodes: Collection[Object], build_patch: Callable[[Object], Object | None]
) -> int:
    """Change some nodes, and return how many were written.

    A node that others change all the time does not stop the rest. Raise OutcomeUnknown if another error comes after a
    write.
    """
    written, conflict = 0, None
    for node in nodes:
        try:
            written += client.update(f"{NODES}/{quote(node['metadata']['name'])}", node, build_patch)
        except NotFound:
            continue  # it was deleted meanwhile
        except Conflict as error:
            conflict = error
        except OutcomeUnknown:
            raise
        except HoldfastError as error:
            if not written and conflict is None:
                raise
            raise OutcomeUnknown(
                f"{written} of {len(nodes)} nodes were changed, then a call failed: {error}"
            ) from error
    if conflict is not None and written:
        raise OutcomeUnknown(f"{written} of {len(nodes)} nodes were changed, then: {conflict}") from conflict
    if conflict is not None:
        raise conflict
    return written


def _evict(client: KubernetesClient, pods: Sequence[Object]) -> dict[str, str]:
    """Ask once to evict each pod. Return the reasons of refusals, by namespace and name.

    Raise EngineUnavailable if the server is throttled: the others would be refused, too.
    """

    def evict(pod: Object) -> str:
        try:
            return client.evict(pod)
        except EngineUnavailable:
            raise
        except HoldfastError as error:  # one pod does not stop the others, and the next pass asks again
            return str(error)

    # Kubernetes counts a budget anew for each eviction, so that several at a time do not exceed it.
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        reasons = list(pool.map(evict, pods))
    return {get_name(pod): reason for pod, reason in zip(pods, reasons, strict=True) if reason}


def _describe_staying(pods: ZonePods, change: NodeChange, refusals: Mapping[str, str]) -> str:
    """Return which pods stay in the zone, and why."""
    parts = []
    if pods.movable:
        texts = [f"{name} ({refusals.get(name, 'not evicted yet')})" for name in map(get_name, pods.movable)]
        parts.append(f"pods that are left after {change.eviction_deadline_seconds:.0f} s: {describe_pods(texts)}")
    if pods.staying:
        texts = [f"{name} ({reason})" for name, reason in pods.staying.items()]
        parts.append(f"pods that cannot move: {describe_pods(texts)}")
    return "; ".join(parts)

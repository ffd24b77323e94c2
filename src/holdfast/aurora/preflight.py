"""Check whether a run may begin, before anything is changed. Pure.

Every check has a name, and answers with one sentence that says what to do. If one check refuses, the run is not
started. `facts.py` reads the facts. If it cannot read those of a check, the check becomes a warning.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from holdfast.aurora.cluster import Availability, Cluster
from holdfast.aurora.plan import MODIFICATION_SECONDS, plan_run
from holdfast.aurora.schedule import check_class, check_cluster_id

__all__ = ["CHECKS", "CheckFinding", "CheckResult", "ClusterFacts", "PlannedRun", "check_run"]

HIGH_USE = 0.8
"""Connections in use, as a share of the limit, above which a warning is given."""
MAX_WRITER_TIER = 1
"""Writer and dedicated reader should have this promotion tier or a lower one, and the other readers a higher one."""
_WEEK_MINUTES = 7 * 24 * 60
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"([a-z]{3}):(\d\d):(\d\d)-([a-z]{3}):(\d\d):(\d\d)")
_CLASS_SIZE = re.compile(r"db\.([a-z])[a-z0-9-]*\.(?:(micro|small|medium|large)|(\d*)xlarge)")
_GIB_OF_LARGE = {"t": 8, "m": 8, "r": 16, "x": 32}
_SHARE_OF_LARGE = {"micro": 0.125, "small": 0.25, "medium": 0.5, "large": 1.0}
_MEMORY_PARAMETERS = ("shared_buffers", "innodb_buffer_pool_size")


class CheckResult(StrEnum):
    """The result of one check."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of one check, with one sentence about it."""

    name: str
    result: CheckResult
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """The run to be checked."""

    cluster_id: str
    classes: tuple[str, ...]
    """The target class, then the fallback classes."""
    starts_at: float
    is_daily: bool = False
    """Whether it starts again every day at that time."""
    modification_seconds: float = MODIFICATION_SECONDS
    """The expected time of one modification."""
    max_connections: int | None = None
    """The limit of connections with the smallest class, if it is known; by default, it is computed."""

    def __post_init__(self) -> None:
        check_cluster_id(self.cluster_id)
        for each in self.classes:
            check_class(each)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The run to be checked, and the state of its cluster. Mappings are parts of the replies of AWS."""

    run: PlannedRun
    cluster: Cluster
    cluster_description: Mapping[str, Any]
    """The cluster, from DescribeDBClusters."""
    instances: Sequence[Mapping[str, Any]]
    """Its instances, from DescribeDBInstances."""
    orderable_options: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of DescribeOrderableDBInstanceOptions, by instance class."""
    maintenance: Sequence[str] = ()
    """Pending maintenance actions of the cluster and its instances, in words."""
    endpoints: Sequence[Mapping[str, Any]] = ()
    global_clusters: Sequence[Mapping[str, Any]] = ()
    """The global databases that the cluster belongs to."""
    blue_green_deployments: Sequence[Mapping[str, Any]] = ()
    """Blue/green deployments of the cluster."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of cluster and instances that were set by a user."""
    connections: Mapping[str, float] = field(default_factory=dict)
    """The highest DatabaseConnections of each instance during the last day."""
    lock_holder: str = ""
    """The execution that is changing the cluster now."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why the facts of a check could not be read, by the name of the check."""


CheckAnswer: TypeAlias = tuple[CheckResult, str]


def check_run(facts: ClusterFacts) -> tuple[CheckFinding, ...]:
    """Return the findings of all checks."""
    unreadable = {
        name: (CheckResult.WARNING, f"could not be checked ({reason}): check it yourself")
        for name, reason in facts.unreadable.items()
    }
    return tuple(CheckFinding(name, *(unreadable.get(name) or check(facts))) for name, check in CHECKS.items())


def _check_engine(facts: ClusterFacts) -> CheckAnswer:
    engine, name = facts.cluster.engine, facts.cluster.id
    if not engine.startswith("aurora"):
        text = f"{name} is a Multi-AZ DB cluster ({engine}): change its class with ModifyDBCluster"
        return CheckResult.REFUSED, text
    classes = {*facts.run.classes, *(each.instance_class for each in facts.cluster.instances)}
    if "db.serverless" in classes or facts.cluster_description.get("EngineMode") == "serverless":
        return (
            CheckResult.REFUSED,
            f"{name} has serverless instances, or the class is db.serverless: change the capacity instead",
        )
    return CheckResult.OK, f"{engine} {facts.cluster_description.get('EngineVersion', '')}".strip()


def _check_target_class(facts: ClusterFacts) -> CheckAnswer:
    # Aurora has two kinds of storage, and a cluster with the usual one may not name it.
    storage = "aurora-iopt1" if facts.cluster_description.get("StorageType") == "aurora-iopt1" else "aurora"
    for target in facts.run.classes:
        rows = facts.orderable_options.get(target, ())
        if not rows:
            version = f"{facts.cluster.engine} {facts.cluster_description.get('EngineVersion', '')}".strip()
            return CheckResult.REFUSED, f"{target} does not exist for {version}: choose another class"
        fitting = [row for row in rows if row.get("StorageType", "aurora") == storage]
        if not fitting:
            return CheckResult.REFUSED, f"{target} does not exist with storage {storage}: choose another class"
        offered = {zone["Name"] for row in fitting for zone in row.get("AvailabilityZones", ())}
        missing = sorted({each.zone for each in facts.cluster.instances if each.zone} - offered)
        if missing:
            return CheckResult.REFUSED, f"{target} does not exist in {', '.join(missing)}: choose another class"
    return CheckResult.OK, f"{' and '.join(facts.run.classes)} can be ordered in all zones of the cluster"


def _check_change(facts: ClusterFacts) -> CheckAnswer:
    instances = facts.cluster.instances
    if not instances:
        return CheckResult.REFUSED, "the cluster has no instances: there is nothing to change"
    left = [each for each in instances if not each.has_class(facts.run.classes)]
    if not left:
        return (
            CheckResult.REFUSED,
            f"all instances have {' or '.join(facts.run.classes)} already: there is nothing to do",
        )
    return CheckResult.OK, f"{len(left)} of {len(instances)} instances need the new class"


def _check_state(facts: ClusterFacts) -> CheckAnswer:
    cluster = facts.cluster
    if cluster.status in {"stopped", "stopping"}:
        return CheckResult.REFUSED, f"the cluster is {cluster.status}: start it first"
    lost = [each for each in cluster.instances if each.availability is Availability.BROKEN]
    if lost:
        return CheckResult.REFUSED, f"{lost[0].id} is {lost[0].status}: repair or delete it first"
    busy = [f"{each.id} is {each.status}" for each in cluster.instances if each.status != "available"]
    if cluster.status != "available":
        busy.insert(0, f"the cluster is {cluster.status}")
    if cluster.writer is None:
        busy.append("the cluster has no writer")
    if busy:
        return CheckResult.WARNING, f"{', '.join(busy)}: the run waits for up to 50 minutes; better run it later"
    return CheckResult.OK, "the cluster and all instances are available"


def _check_dedicated_reader(facts: ClusterFacts) -> CheckAnswer:
    reader = facts.cluster.dedicated_reader
    if reader is None:
        return CheckResult.REFUSED, (
            "there is no reader to fail over to, so the database would be down for minutes: add a reader that "
            "Auto Scaling does not manage"
        )
    return CheckResult.OK, f"{reader.id} becomes the writer"


def _check_pending(facts: ClusterFacts) -> CheckAnswer:
    pending = [f"{each.id} ({', '.join(sorted(each.pending))})" for each in facts.cluster.instances if each.pending]
    if pending:
        return (
            CheckResult.REFUSED,
            f"{'; '.join(pending)}: RDS would apply these pending changes with the class; apply or undo them first",
        )
    return CheckResult.OK, "no instance has pending changes"


def _check_window(facts: ClusterFacts) -> CheckAnswer:
    run = facts.run
    seconds = plan_run(facts.cluster, run.classes, run.modification_seconds).seconds
    windows = {
        each.get("PreferredMaintenanceWindow", ""): each.get("DBInstanceIdentifier") or each.get("DBClusterIdentifier")
        for each in (facts.cluster_description, *facts.instances)
    }
    starts = [run.starts_at + day * 86_400 for day in range(7 if run.is_daily else 1)]
    open_windows = [
        f"{window} of {owner}"
        for window, owner in windows.items()
        if any(is_in_window(window, start, seconds) for start in starts)
    ]
    if not open_windows:
        return CheckResult.OK, "the run does not overlap a maintenance window"
    text = f"the run would overlap the maintenance window {open_windows[0]} UTC"
    if facts.maintenance:
        return CheckResult.REFUSED, f"{text}, for which maintenance is pending: run it at another time"
    return CheckResult.WARNING, f"{text}: choose another time"


def _check_pending_maintenance(facts: ClusterFacts) -> CheckAnswer:
    if facts.maintenance:
        text = f"maintenance is pending ({'; '.join(facts.maintenance)})"
        return CheckResult.WARNING, f"{text}: apply it first, or defer it"
    return CheckResult.OK, "no maintenance is pending"


def is_in_window(window: str, starts_at: float, seconds: float) -> bool:
    """Return whether a time span overlaps a weekly window such as `mon:03:00-mon:03:30`, in UTC."""
    found = _WINDOW.fullmatch(window.lower())
    if found is None:
        return False
    day, hour, minute, end_day, end_hour, end_minute = found.groups()
    opens = _DAYS.index(day) * 1440 + int(hour) * 60 + int(minute)
    length = (_DAYS.index(end_day) * 1440 + int(end_hour) * 60 + int(end_minute) - opens) % _WEEK_MINUTES
    at = datetime.fromtimestamp(starts_at, UTC)
    begins = at.weekday() * 1440 + at.hour * 60 + at.minute + at.second / 60
    return (begins - opens) % _WEEK_MINUTES < length or (opens - begins) % _WEEK_MINUTES < seconds / 60


def _check_connections(facts: ClusterFacts) -> CheckAnswer:
    limit = find_max_connections(facts)
    if limit is None:
        return CheckResult.WARNING, "the limit of connections is unknown: give it with --max-connections"
    if not facts.connections:
        text = "CloudWatch has no DatabaseConnections of the last day"
        return CheckResult.WARNING, f"{text}: check that clients need at most about {limit} connections"
    name, used = max(facts.connections.items(), key=lambda each: each[1])
    text = f"{name} had up to {used:.0f} connections, and the new class allows about {limit}"
    if used >= limit:
        return CheckResult.REFUSED, f"{text}: clients would be refused; choose a larger class, or use RDS Proxy"
    if used > limit * HIGH_USE:
        return CheckResult.WARNING, f"{text}: this is more than {HIGH_USE:.0%}, so choose a larger class"
    return CheckResult.OK, text


def find_max_connections(facts: ClusterFacts) -> int | None:
    """Return the limit of connections with the smallest class; None if it is not known."""
    if facts.run.max_connections is not None:
        return facts.run.max_connections
    if facts.parameters.get("max_connections", "").isdigit():
        return int(facts.parameters["max_connections"])
    limits = [compute_max_connections(facts.cluster.engine, each) for each in facts.run.classes]
    return None if None in limits else min(limit for limit in limits if limit is not None)


def compute_max_connections(engine: str, instance_class: str) -> int | None:
    """Return Aurora's default of `max_connections` for a class, about; None for an unknown kind of class."""
    gib = find_memory(instance_class)
    if gib is None:
        return None
    if engine == "aurora-postgresql":
        return min(int(gib * 1e9 / 9_531_392), 5000)
    memory = gib * 2**30
    return max(round(math.log2(memory / 805_306_368)) * 45, round(math.log2(memory / 8_187_281_408)) * 1000)


def find_memory(instance_class: str) -> float | None:
    """Return the memory of a class in GiB, from its family and size; None for an unknown kind of class."""
    found = _CLASS_SIZE.fullmatch(instance_class)
    if found is None or found[1] not in _GIB_OF_LARGE:
        return None
    share = _SHARE_OF_LARGE[found[2]] if found[2] else 2.0 * int(found[3] or 1)
    return _GIB_OF_LARGE[found[1]] * share


def _check_memory_parameters(facts: ClusterFacts) -> CheckAnswer:
    fixed = [name for name in _MEMORY_PARAMETERS if facts.parameters.get(name, "").isdigit()]
    if fixed:
        return (
            CheckResult.WARNING,
            f"{', '.join(fixed)} has a fixed value, which may not fit a smaller class: use a formula",
        )
    return CheckResult.OK, "no memory parameter has a fixed value"


def _check_global(facts: ClusterFacts) -> CheckAnswer:
    arn = facts.cluster_description.get("DBClusterArn")
    members = [each for found in facts.global_clusters for each in found.get("GlobalClusterMembers", ())]
    own = next((each for each in members if each.get("DBClusterArn") == arn), None)
    if own is None:
        return CheckResult.OK, "the cluster belongs to no global database"
    if not own.get("IsWriter"):
        return (
            CheckResult.REFUSED,
            "the cluster is a secondary of a global database, and has no writer: run it on the primary cluster",
        )
    small = [each for each in facts.run.classes if each.startswith("db.t")]
    if small:
        return (
            CheckResult.REFUSED,
            f"a global database cannot use {small[0]}: choose a memory-optimized class such as db.r6g.large",
        )
    return CheckResult.OK, "the cluster is the primary of a global database"


def _check_deployment(facts: ClusterFacts) -> CheckAnswer:
    active = [
        each for each in facts.blue_green_deployments if each.get("Status") not in {"SWITCHOVER_COMPLETED", "DELETING"}
    ]
    if active:
        name = active[0].get("BlueGreenDeploymentName", "")
        return CheckResult.REFUSED, f"the blue/green deployment {name} is in progress: switch over or delete it first"
    return CheckResult.OK, "no blue/green deployment is in progress"


def _check_parallel_query(facts: ClusterFacts) -> CheckAnswer:
    is_on = facts.parameters.get("aurora_parallel_query", "").upper() in {"1", "ON"}
    other = [each for each in facts.run.classes if not each.startswith("db.r")]
    if facts.cluster_description.get("EngineMode") == "parallelquery" or is_on:
        if other:
            return (
                CheckResult.REFUSED,
                f"parallel query needs a db.r* class, and {other[0]} is not one: choose another class",
            )
        return CheckResult.OK, "parallel query works with the new class"
    return CheckResult.OK, "parallel query is not used"


def _check_endpoints(facts: ClusterFacts) -> CheckAnswer:
    roles = {each.id for each in (facts.cluster.writer, facts.cluster.dedicated_reader) if each is not None}
    for each in facts.endpoints:
        listed = sorted(roles & {*each.get("StaticMembers", ())})
        if each.get("EndpointType") == "CUSTOM" and listed:
            text = f"lists {listed[0]}, whose role changes: it will still lead there; check what its clients expect"
            return CheckResult.WARNING, f"the custom endpoint {each.get('DBClusterEndpointIdentifier', '')} {text}"
    return CheckResult.OK, "no custom endpoint lists the writer or the dedicated reader"


def _check_tiers(facts: ClusterFacts) -> CheckAnswer:
    cluster = facts.cluster
    for each in (cluster.writer, cluster.dedicated_reader):
        if each is not None and each.tier > MAX_WRITER_TIER:
            return (
                CheckResult.WARNING,
                f"{each.id} has promotion tier {each.tier}: give writer and dedicated reader 0 or 1",
            )
    low = [each for each in cluster.other_readers if each.tier <= MAX_WRITER_TIER]
    if low:
        return CheckResult.WARNING, f"Aurora may promote {low[0].id} after a crash: give it a promotion tier above 1"
    return CheckResult.OK, "no other reader has promotion tier 0 or 1"


def _check_lock(facts: ClusterFacts) -> CheckAnswer:
    if facts.lock_holder:
        return CheckResult.REFUSED, f"{facts.lock_holder.rpartition(':')[2]} is in progress: wait for it, or stop it"
    return CheckResult.OK, "no other run is in progress"


CHECKS: Mapping[str, Callable[[ClusterFacts], CheckAnswer]] = {
    "engine": _check_engine,
    "target class": _check_target_class,
    "change needed": _check_change,
    "state": _check_state,
    "dedicated reader": _check_dedicated_reader,
    "pending changes": _check_pending,
    "maintenance window": _check_window,
    "pending maintenance": _check_pending_maintenance,
    "connections": _check_connections,
    "memory parameters": _check_memory_parameters,
    "global database": _check_global,
    "blue/green": _check_deployment,
    "parallel query": _check_parallel_query,
    "custom endpoints": _check_endpoints,
    "promotion tiers": _check_tiers,
    "other runs": _check_lock,
}
"""The checks, in the order of the findings."""
ONLY_VALID_NOW = frozenset({"change needed", "state", "pending changes", "other runs"})
"""Checks whose result is valid only now. `holdfast aurora schedule` leaves them out."""

"""The instances of an Aurora cluster and their roles, from what RDS describes. Pure.

Roles are found by facts, never by the name alone: a run swaps writer and dedicated reader, so after a run the instance
called `...-writer` is a reader.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

AUTOSCALING_TAG = "application-autoscaling:resourceId"
"""Application Auto Scaling gives this tag to the readers that it creates."""
AUTOSCALING_PREFIX = "application-autoscaling-"
"""The ids of readers that Application Auto Scaling creates begin with this."""
AUTOSCALING_PATTERN = r".*-reader-as-\d+"
"""The default pattern for ids of autoscaling readers that have neither tag nor prefix."""


class Availability(Enum):
    """The meaning of an instance's status for a run."""

    AVAILABLE = "available"
    BUSY = "busy"
    """Not available now, and expected to be later."""
    GONE = "gone"
    """Deleted, or being deleted."""
    STOPPED = "stopped"
    BROKEN = "broken"
    """Does not become available by itself."""


_GONE = ("deleting", "delete-precheck")
_STOPPED = ("stopped", "stopping")
_BROKEN = ("failed", "incompatible-", "inaccessible-", "insufficient-capacity", "restore-error", "storage-full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a cluster."""

    id: str
    instance_class: str
    status: str
    is_writer: bool = False
    tier: int = 15
    """Promotion tier: if the writer fails, Aurora promotes a reader of the lowest tier."""
    is_autoscaling: bool = False
    """Whether Application Auto Scaling created the instance, and may delete it."""
    pending: frozenset[str] = frozenset()
    """Names of changes that are not applied yet."""
    zone: str = ""

    @property
    def availability(self) -> Availability:
        if self.status == "available":
            return Availability.AVAILABLE
        if self.status in _GONE:
            return Availability.GONE
        if self.status in _STOPPED:
            return Availability.STOPPED
        return Availability.BROKEN if self.status.startswith(_BROKEN) else Availability.BUSY

    def has_class(self, classes: Sequence[str]) -> bool:
        """Return whether the instance has one of these classes and will keep it."""
        return self.instance_class in classes and "DBInstanceClass" not in self.pending

    def is_ready(self, classes: Sequence[str]) -> bool:
        """Return whether the instance is available with one of these classes."""
        return self.availability is Availability.AVAILABLE and self.has_class(classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster with its instances, without those that are being deleted."""

    id: str
    status: str
    engine: str
    instances: tuple[Instance, ...]

    @property
    def writer(self) -> Instance | None:
        return next((instance for instance in self.instances if instance.is_writer), None)

    @property
    def dedicated_reader(self) -> Instance | None:
        """The reader to fail over to: of lowest tier among those that Auto Scaling cannot delete."""
        own = [instance for instance in self.instances if not instance.is_writer and not instance.is_autoscaling]
        return min(own, key=lambda instance: (instance.tier, instance.id), default=None)

    @property
    def other_readers(self) -> tuple[Instance, ...]:
        """All readers but the dedicated one: usually those of Auto Scaling. Numbers in their ids are in their order."""
        dedicated = self.dedicated_reader
        others = [instance for instance in self.instances if not instance.is_writer and instance is not dedicated]
        return tuple(sorted(others, key=lambda instance: _split_numbers(instance.id)))

    def find(self, instance_id: str) -> Instance | None:
        """Return an instance by its id, or None if it is gone."""
        return next((instance for instance in self.instances if instance.id == instance_id), None)


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key to sort by, with which `reader-2` comes before `reader-10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def parse_cluster(
    cluster: Mapping[str, Any], instances: Iterable[Mapping[str, Any]], autoscaling_pattern: str = AUTOSCALING_PATTERN
) -> Cluster:
    """Return the cluster that DescribeDBClusters and DescribeDBInstances describe."""
    members = {member["DBInstanceIdentifier"]: member for member in cluster.get("DBClusterMembers", ())}
    parsed = [
        _parse_instance(each, members.get(each["DBInstanceIdentifier"], {}), autoscaling_pattern) for each in instances
    ]
    return Cluster(
        id=cluster["DBClusterIdentifier"],
        status=cluster.get("Status", ""),
        engine=cluster.get("Engine", ""),
        instances=tuple(instance for instance in parsed if instance.availability is not Availability.GONE),
    )


def describes_same_instances(cluster: Mapping[str, Any], instances: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether both descriptions list the same instances: between the two reads, something may have changed."""
    members = {member["DBInstanceIdentifier"] for member in cluster.get("DBClusterMembers", ())}
    return members == {each["DBInstanceIdentifier"] for each in instances}


def _parse_instance(described: Mapping[str, Any], member: Mapping[str, Any], pattern: str) -> Instance:
    name = described["DBInstanceIdentifier"]
    tags = {tag["Key"] for tag in described.get("TagList", ())}
    return Instance(
        id=name,
        instance_class=described.get("DBInstanceClass", ""),
        status=described.get("DBInstanceStatus", ""),
        is_writer=bool(member.get("IsClusterWriter")),
        tier=member.get("PromotionTier", described.get("PromotionTier", 15)),
        is_autoscaling=AUTOSCALING_TAG in tags
        or name.startswith(AUTOSCALING_PREFIX)
        or re.fullmatch(pattern, name) is not None,
        pending=frozenset(key for key, value in described.get("PendingModifiedValues", {}).items() if value),
        zone=described.get("AvailabilityZone", ""),
    )

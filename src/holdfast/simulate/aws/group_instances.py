"""An Auto Scaling group, and its instances, which start and end with the clock.

After a change, a group launches instances in the zones of its subnets first. When these are in service, it terminates
the instances of other zones. It may exceed its maximum by 10 %, or by one instance, meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

LAUNCH_SECONDS = 60.0
"""Seconds from the launch of an instance until it is in service."""


@dataclass(slots=True)
class Instance:
    """An instance of a group."""

    id: str
    zone_name: str
    ready_at: float
    """The time at which it is in service."""
    state: str = "InService"
    health: str = "Healthy"
    weight: str = ""
    """Units of capacity, in a group with weights."""
    type: str = "m7g.large"


@dataclass(slots=True, kw_only=True)
class Group:
    """An Auto Scaling group. Tests may change every field."""

    arn: str
    name: str
    subnets: list[str]
    zone_names: list[str]
    """The zones of a group without subnets."""
    min_size: int
    max_size: int
    desired: int
    tags: Mapping[str, str]
    target_groups: list[str] = field(default_factory=list)
    policies: list[dict[str, Any]] = field(default_factory=list)
    """Scaling policies, with the fields of DescribePolicies except the name of the group."""
    scheduled_actions: list[dict[str, Any]] = field(default_factory=list)
    """Scheduled actions, in the same form. They are listed, but not carried out."""
    refreshes: list[dict[str, Any]] = field(default_factory=list)
    """Instance refreshes, in the same form. They are listed, but not carried out."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further fields of the description, which have no effect, such as `Operator` and `WarmPoolConfiguration`."""
    suspended: set[str] = field(default_factory=set)
    """The processes that are suspended."""
    instances: list[Instance] = field(default_factory=list)
    launch_seconds: float = LAUNCH_SECONDS
    created_at: float = 0.0
    seen_at: float = 0.0
    """The time until which launches and terminations were carried out."""
    launched: int = 0
    """Instances that were launched so far."""

    def launch(self, zone_name: str, *, ready_at: float) -> Instance:
        """Start an instance in a zone."""
        self.launched += 1
        ending = f"{crc32(self.arn.encode()):08x}{self.launched:09x}"
        self.instances.append(Instance(f"i-{ending}", zone_name, ready_at, state="Pending"))
        return self.instances[-1]


def change_instances(group: Group, zone_names: Sequence[str]) -> None:
    """Launch and terminate the instances that a group would at its time `seen_at`."""
    counts = {name: sum(each.zone_name == name for each in group.instances) for name in zone_names}
    leaving = [each for each in group.instances if each.zone_name not in counts]
    staying = [each for each in group.instances if each.zone_name in counts and each.state == "InService"]
    if "Terminate" not in group.suspended:
        for _ in range(len(staying) + len(leaving) - group.desired):
            if leaving:
                group.instances.remove(leaving.pop())
            else:
                fullest = max(staying, key=lambda each: counts[each.zone_name])
                staying.remove(fullest)
                group.instances.remove(fullest)
                counts[fullest.zone_name] -= 1
    if "Launch" in group.suspended or not counts:
        return
    room = max(group.max_size + 1, group.max_size * 11 // 10) - len(group.instances)
    for _ in range(room):
        name = min(counts, key=counts.__getitem__)
        is_uneven = "AZRebalance" not in group.suspended and max(counts.values()) - counts[name] >= 2
        if sum(counts.values()) >= group.desired and not is_uneven:
            return
        counts[name] += 1
        group.launch(name, ready_at=group.seen_at + group.launch_seconds)

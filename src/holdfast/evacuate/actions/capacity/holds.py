"""Keep a group or a service from being made smaller, and release it: one write for each.

A group gets a higher MinSize. An ECS service gets its scale-in suspended, and a higher MinCapacity if it is scaled out,
too. Neither shows who changed it, so a value counts as ours as long as it is the one that we set.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from shlex import join
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast._errors import Conflict
from holdfast.evacuate.action import ChangeState, Reading
from holdfast.evacuate.actions.capacity.ecs_tasks import DIMENSION
from holdfast.evacuate.actions.capacity.services import GROUP, count_group_units
from holdfast.evacuate.ecs import count_tasks
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.refusals import BUSY, translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "application-autoscaling:RegisterScalableTarget",
    "autoscaling:UpdateAutoScalingGroup",
)
SUFFIX = "#capacity"
"""The end of the id of a hold. The ARN alone is the resource of the action that moves the group or the service."""
SUSPENDED_KEYS = ("DynamicScalingInSuspended", "DynamicScalingOutSuspended", "ScheduledScalingSuspended")
_SCALE_IN = SUSPENDED_KEYS[0]
_INVALID = {"ValidationError", "ValidationException", "ObjectNotFoundException"}
"""Codes of refusals by which AWS also says that a group or a service was deleted."""


class Hold(Struct, frozen=True, kw_only=True):
    """A change that holds capacity, as it is recorded in the journal."""

    kind: str
    """The type of the held service: `auto-scaling-group` or `ecs-service`."""
    name: str
    """The name of the group, or the resource of the scalable target."""
    before: int
    held: int
    """The smallest size, before and after. Equal if only scale-in is suspended."""
    suspends: bool = False
    """Whether the scale-in of an ECS service is suspended."""
    zone_names: tuple[str, ...] = ()
    """The other zones, by the names of the account."""
    others: float = 0.0
    """Healthy units that the other zones must have together, before the change is in effect."""
    per_zone: float = 0.0
    """Healthy units that each of them must have."""
    size_before: int = 0
    """The desired size before units were added that no scaling policy removes again; 0 if there are none."""


class GroupHold:
    """Holds Auto Scaling groups by their MinSize."""

    def read(self, session: "AwsSession", hold: Hold, entry: Entry) -> Reading:
        """Return the state of a hold."""
        group = self._find(session, hold, entry)
        if group is None:
            return Reading(state=ChangeState.GONE, note=f"{hold.name} was deleted")
        current = group["MinSize"]
        if current not in (hold.before, hold.held):
            note = _describe_other_size("MinSize", current, hold)
            return Reading(state=ChangeState.DIFFERENT, note=note, shows_owner=False)
        if current == hold.before:
            note = _describe_left(hold, group["DesiredCapacity"], entry)
            return Reading(state=ChangeState.ABSENT, note=note, shows_owner=False)
        units = count_group_units(group)
        if entry.state is EntryState.RESTORING or has_capacity(hold, units):
            return Reading(state=ChangeState.APPLIED, shows_owner=False)
        return Reading(
            state=ChangeState.APPLIED, note=describe_missing(hold, units), is_effective=False, shows_owner=False
        )

    def write(self, session: "AwsSession", hold: Hold, entry: Entry, *, releases: bool) -> None:
        """Set or release a hold. Raise Conflict if the group was deleted meanwhile."""
        arguments = {"MinSize": hold.before if releases else hold.held}
        if releases and hold.size_before:
            group = self._find(session, hold, entry)
            if group is not None and group["DesiredCapacity"] == hold.held:  # nobody else has changed it
                arguments["DesiredCapacity"] = hold.size_before
        with _noticing_deletion(session, hold.name, lambda: self._find(session, hold, entry) is None):
            session.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=hold.name, **arguments)

    def _find(self, session: "AwsSession", hold: Hold, entry: Entry) -> Mapping[str, Any] | None:
        """Return the group, unless it is being deleted. Another group with the same name is not it."""
        client, arn = session.client("autoscaling"), entry.resource.removesuffix(SUFFIX)
        with translate_refusals(session, BUSY):
            found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[hold.name])["AutoScalingGroups"]
        return next((each for each in found if each["AutoScalingGroupARN"] == arn and not each.get("Status")), None)


class ServiceHold:
    """Holds ECS services by their scalable targets."""

    def read(self, session: "AwsSession", hold: Hold, entry: Entry) -> Reading:
        """Return the state of a hold. It may have two parts: suspended scale-in, and a higher MinCapacity."""
        target = self._find(session, hold)
        if target is None:
            return Reading(state=ChangeState.GONE, note=f"{hold.name} is not a scalable target any more")
        current = target["MinCapacity"]
        made = [target["SuspendedState"][_SCALE_IN]] if hold.suspends else []
        made += [current == hold.held] if hold.held != hold.before else []
        is_restoring = entry.state is EntryState.RESTORING
        if hold.held != hold.before and current not in (hold.before, hold.held):
            note = _describe_other_size("MinCapacity", current, hold)
            # The other part of the hold may still be ours, and must be released some time.
            state = ChangeState.APPLIED if any(made) else ChangeState.DIFFERENT
            return Reading(state=state, note=note, shows_owner=False)
        if not (any(made) if is_restoring else all(made)):
            note = self._describe_left(session, hold, entry)
            return Reading(state=ChangeState.ABSENT, note=note, shows_owner=False)
        missing = "" if is_restoring else self._describe_missing(session, hold)
        return Reading(state=ChangeState.APPLIED, note=missing, is_effective=not missing, shows_owner=False)

    def write(self, session: "AwsSession", hold: Hold, _: Entry, *, releases: bool) -> None:
        """Set or release a hold. Raise Conflict if the target was deleted meanwhile."""
        target = self._find(session, hold)
        if target is None:
            raise Conflict(f"{hold.name} is not a scalable target any more")
        arguments: dict[str, Any] = {}
        if hold.suspends:
            arguments["SuspendedState"] = {**target["SuspendedState"], _SCALE_IN: not releases}
        if hold.held != hold.before and target["MinCapacity"] == (hold.held if releases else hold.before):
            arguments["MinCapacity"] = hold.before if releases else hold.held
        with _noticing_deletion(session, hold.name, lambda: self._find(session, hold) is None):
            # MaxCapacity is never sent: AWS would create a target that was deleted.
            session.client("application-autoscaling").register_scalable_target(
                ServiceNamespace="ecs", ResourceId=hold.name, ScalableDimension=DIMENSION, **arguments
            )

    def _find(self, session: "AwsSession", hold: Hold) -> Mapping[str, Any] | None:
        """Return the scalable target, with all keys of its suspended state."""
        client = session.client("application-autoscaling")
        with translate_refusals(session, BUSY):
            found = client.describe_scalable_targets(
                ServiceNamespace="ecs", ResourceIds=[hold.name], ScalableDimension=DIMENSION
            )["ScalableTargets"]
        if not found:
            return None
        state = dict.fromkeys(SUSPENDED_KEYS, False) | found[0].get("SuspendedState", {})
        return {**found[0], "SuspendedState": state}

    def _describe_left(self, session: "AwsSession", hold: Hold, entry: Entry) -> str:
        if not hold.size_before or entry.state is not EntryState.RESTORING:
            return ""
        _, cluster, name = hold.name.split("/")
        with translate_refusals(session, BUSY):
            found = session.client("ecs").describe_services(cluster=cluster, services=[name])["services"]
        return _describe_left(hold, found[0]["desiredCount"], entry) if found else ""

    def _describe_missing(self, session: "AwsSession", hold: Hold) -> str:
        """Return which units a hold waits for; "" if it waits for none."""
        if not hold.others and not hold.per_zone:
            return ""
        _, cluster, name = hold.name.split("/")
        with translate_refusals(session, BUSY):
            units = count_tasks(session, cluster, serviceName=name).get(f"service:{name}", Counter())
        return "" if has_capacity(hold, units) else describe_missing(hold, units)


def has_capacity(hold: Hold, units: Mapping[str, float]) -> bool:
    """Return whether the other zones have the units that a hold waits for. Pure. `units` are by name of the zone."""
    found = [units.get(each, 0.0) for each in hold.zone_names]
    return sum(found) >= hold.others and all(each >= hold.per_zone for each in found)


def describe_missing(hold: Hold, units: Mapping[str, float]) -> str:
    """Return how many of the units that a hold waits for are healthy. Pure."""
    found = sum(units.get(each, 0.0) for each in hold.zone_names)
    wanted = max(hold.others, hold.per_zone * len(hold.zone_names))
    return f"{found:g} of {wanted:g} healthy units in the other zones"


def _describe_other_size(name: str, current: int, hold: Hold) -> str:
    return (
        f"{name} is {current}: another person or tool changed it. Holdfast had set {hold.held}; before the evacuation "
        f"it was {hold.before}"
    )


def _describe_left(hold: Hold, size: int, entry: Entry) -> str:
    """Return which units of a released service nobody removes; "" if there are none, or it is not released yet."""
    if not hold.size_before or size <= hold.size_before or entry.state is not EntryState.RESTORING:
        return ""
    command = ""
    if hold.kind != GROUP:
        _, cluster, name = hold.name.split("/")
        names = ["--cluster", cluster, "--service", name, "--desired-count", str(hold.size_before)]
        command = f": {join(['aws', 'ecs', 'update-service', *names, '--region', entry.resource.split(':')[3]])}"
    return (
        f"its desired size is {size}, and was {hold.size_before} before the evacuation. No scaling policy lowers it: "
        f"set it by hand{command}"
    )


@contextmanager
def _noticing_deletion(session: "AwsSession", name: str, is_gone: Callable[[], bool]) -> Iterator[None]:
    """Raise Conflict, so that it is read again, if AWS refuses a change because its resource was deleted."""
    with translate_refusals(session, BUSY):
        try:
            yield
        except session.client("autoscaling").exceptions.ClientError as error:
            if error.response["Error"]["Code"] in _INVALID and is_gone():
                raise Conflict(f"{name} was deleted just before it was changed") from error
            raise

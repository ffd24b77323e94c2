"""Hold the capacity of Auto Scaling groups and ECS services, measure it, and add some before traffic is moved.

When traffic leaves a zone, the load of its units falls, and policies would remove units just when all of them may be
needed. So the current size becomes the smallest one until the zone is restored. The guard `capacity` compares the
capacity in the other zones with the highest load of the last days.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from holdfast._clock import Clock
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    HOLD_STAGE,
    PARALLEL_CALLS,
    RESTORE_HOLD_STAGE,
    SCALE_OUT_STAGE,
    STOPS_RUN_IF_FAILED,
    ActionType,
    Discovery,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
)
from holdfast.evacuate.actions.capacity.discovery import PERMISSIONS, MeasurementOptions, discover_capacity
from holdfast.evacuate.actions.capacity.holds import PERMISSIONS as HOLD_PERMISSIONS
from holdfast.evacuate.actions.capacity.holds import GroupHold, Hold, ServiceHold
from holdfast.evacuate.actions.capacity.services import GROUP
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.journal import Entry
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS

DEFAULT_DAYS = 7


class CapacityOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the action `capacity`."""

    lookback_days: Annotated[int, Meta(ge=1, le=14)] = DEFAULT_DAYS
    """The guard `capacity` uses the highest load of this number of days. A week has every weekday; CloudWatch keeps
    minutes for 15 days."""
    scale_out_first: bool = False
    """Whether to add units in the other zones before traffic is moved, if capacity is missing there. That takes
    minutes."""


class Capacity:
    """The action `capacity`. See `holdfast.evacuate.action.Action`."""

    restoration_stage = RESTORE_HOLD_STAGE
    parallel_calls = PARALLEL_CALLS

    def __init__(
        self, accounts: Accounts, clock: Clock, *, days: int = DEFAULT_DAYS, scale_out_first: bool = False
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._days = days
        self._scales_out = scale_out_first
        self.evacuation_stage = SCALE_OUT_STAGE if scale_out_first else HOLD_STAGE
        # New units must start and become healthy. A hold has an effect at once, but AWS may be slow to accept it.
        self.timeout = 600.0 if scale_out_first else 180.0

    def discover(self, target: Target) -> Discovery:
        options = MeasurementOptions(days=self._days, scales_out=self._scales_out, now=self._clock.wall())
        return discover_accounts(
            self._accounts, target, lambda account, target: discover_capacity(account, target, options)
        )

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        hold = msgspec.convert(resource.details["hold"], Hold)
        name = "MinSize" if hold.kind == GROUP else "MinCapacity"
        parts = [f"raise {name} from {hold.before} to {hold.held}"] if hold.held != hold.before else []
        parts += ["suspend scale-in by policies"] if hold.suspends else []
        return PlannedChange(
            resource=resource,
            description=f"{', and '.join(parts)}, until {target.zone} is restored",
            side_effects=resource.details["effects"],
            change={**resource.details["hold"], STOPS_RUN_IF_FAILED: bool(hold.others or hold.per_zone)},
        )

    def read(self, entry: Entry) -> Reading:
        hold = msgspec.convert(entry.change, Hold)
        return _get_type(hold).read(self._accounts.find(entry.resource).session, hold, entry)

    def apply(self, entry: Entry) -> None:
        hold = msgspec.convert(entry.change, Hold)
        _get_type(hold).write(self._accounts.find(entry.resource).session, hold, entry, releases=False)

    def restore(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the entry says everything
        hold = msgspec.convert(entry.change, Hold)
        _get_type(hold).write(self._accounts.find(entry.resource).session, hold, entry, releases=True)

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Nothing expires."""


def _get_type(hold: Hold) -> GroupHold | ServiceHold:
    return GroupHold() if hold.kind == GROUP else ServiceHold()


ACTIONS.register("capacity")(
    ActionType(
        open=lambda options, resources: Capacity(
            resources.accounts(), resources.clock, days=options.lookback_days, scale_out_first=options.scale_out_first
        ),
        options_type=CapacityOptions,
        permissions=tuple(sorted({*PERMISSIONS, *HOLD_PERMISSIONS, *TAG_PERMISSIONS})),
        terraform="""\
# An evacuation raises these values. Without `ignore_changes`, Terraform would set them back meanwhile:
resource "aws_autoscaling_group" "example" {
  lifecycle {
    ignore_changes = [min_size, desired_capacity]
  }
}

resource "aws_appautoscaling_target" "example" {
  lifecycle {
    ignore_changes = [min_capacity, suspended_state]
  }
}
""",
    )
)

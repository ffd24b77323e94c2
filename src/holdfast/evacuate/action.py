"""The interface between evacuation and its actions: one protocol, and the values that it uses. Pure.

An action moves resources of some types away from a zone. It is one module or folder in `actions/`. It decides nothing
about the run: it discovers resources, plans one change for each, reads whether the change was made, makes it once, and
undoes it once. The runner records, repeats and verifies.

No write is repeated blindly. After every write, and whenever its reply was lost, the runner calls `read`, and decides
by the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from holdfast._plugins import Plugins
from holdfast._types import Zone
from holdfast.evacuate.capacity import ServiceCapacity
from holdfast.evacuate.journal import Entry
from holdfast.evacuate.selection import Selection

if TYPE_CHECKING:
    from holdfast._clock import Clock
    from holdfast.evacuate.accounts import Accounts
    from holdfast.status.writer import StatusWriter


SCALE_OUT_STAGE = -1
"""The stage of actions that add capacity before any traffic is moved."""
STOPS_RUN_IF_FAILED = "stops_run_if_failed"
"""A key of `PlannedChange.change`. If its value is true and the change fails, the run makes no further changes."""
LOCK_STAGE = 0
"""The stage of actions that stop the whole run if others evacuate another zone at the same time."""
SHIFT_STAGE = 1
"""The stage of actions that move traffic by a data plane. These are most likely to work while a zone fails."""
HOLD_STAGE = 2
"""The stage of actions that keep capacity from being removed."""
CAPACITY_STAGE = 4
"""The stage of actions that move instances, tasks and functions: control planes, which may be slow. Stage 3 is for
databases, which have no action yet."""
RESTORE_CAPACITY_STAGE = 1
"""The first stage of a restore: capacity in the zone. The later stages wait until it is healthy."""
RESTORE_SHIFT_STAGE = 2
RESTORE_STATUS_STAGE = 3
"""The stages of a restore that bring traffic back: of balancers, then of everything that obeys the status."""
RESTORE_HOLD_STAGE = 4
"""The last stage of a restore: capacity may be removed again."""
PARALLEL_CALLS = 4
"""Resources of one action in one account that are changed at the same time. AWS does not say how many calls its control
planes accept, so there are few."""


class Target(Struct, frozen=True, kw_only=True):
    """The zone that is evacuated, and for whom."""

    zone: Zone
    workload: str | None = None
    run: str
    """The id of the run. Actions leave it in AWS where they can, to recognize their own changes."""
    reason: str = ""
    allows_second_zone: bool = False
    """Whether an operator has decided to evacuate the zone although another one is out."""
    lists_unmovable: bool = True
    """Whether a person will read the plan, so that resources which cannot be moved are listed, too."""
    selection: Selection = msgspec.field(default_factory=Selection)
    """The resources that are evacuated. Actions apply only its tags, because these must be read from AWS."""
    scope: Selection = msgspec.field(default_factory=Selection)
    """All resources of the workload, by the settings. `selection` may have fewer."""


class Resource(Struct, frozen=True, kw_only=True):
    """Something that can be moved away from a zone."""

    id: str
    """The ARN, or another name that is unique."""
    type: str
    """Such as `load-balancer`."""
    name: str
    account: str = ""
    region: str = ""
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Facts that the action found. Only the action knows their meaning."""
    is_always_included: bool = False
    """Whether its change protects the service and moves nothing. It is made whatever types are chosen."""


class PlannedChange(Struct, frozen=True, kw_only=True):
    """One change of one resource."""

    resource: Resource
    description: str
    """The change in words, such as `start a zonal shift away from use1-az1 for 12 h`."""
    side_effects: Sequence[str] = ()
    change: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Everything that is needed to make the change, to recognize it, and to undo it. Stored in the journal."""


class Unmovable(Struct, frozen=True, kw_only=True):
    """A resource that stays in the zone."""

    resource: Resource
    reason: str
    remedy: str = ""
    """The command or the setting that would make it movable."""


class OtherEvacuation(Struct, frozen=True, kw_only=True):
    """A sign that traffic was moved away from a zone by others, such as an autoshift of AWS."""

    zone: Zone
    source: str
    """Who or what moved the traffic, and of which resource, in words."""
    resource: str = ""


class Unreadable(Struct, frozen=True, kw_only=True):
    """An account, a region or a store that could not be read, so that its resources are unknown."""

    scope: str
    reason: str


class Discovery(Struct, frozen=True, kw_only=True):
    """Everything that an action found."""

    resources: Sequence[Resource] = ()
    unmovable: Sequence[Unmovable] = ()
    other_evacuations: Sequence[OtherEvacuation] = ()
    unreadable: Sequence[Unreadable] = ()
    notes: Sequence[str] = ()
    """Other facts that an operator should know, such as a list that could not be read."""
    capacities: Sequence[ServiceCapacity] = ()
    """The services whose capacity in the other zones must suffice."""


class ChangeState(StrEnum):
    """The state of a change, as the resource shows it."""

    ABSENT = "absent"
    """The resource is as before the change."""
    APPLIED = "applied"
    """Our change was made."""
    FOUND = "found"
    """Others made the same change."""
    DIFFERENT = "different"
    """Others changed the resource in another way. Neither apply nor undo ours."""
    GONE = "gone"
    """The resource does not exist any more, or no longer allows the change."""


class Reading(Struct, frozen=True, kw_only=True):
    """The state of a change, as read just now."""

    state: ChangeState
    record: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Facts that are needed to undo or renew the change."""
    note: str = ""
    """Details for people: who made another change, or why a resource is gone."""
    is_effective: bool = True
    """Whether a change that was made or undone has taken effect. Until then, the runner reads again."""
    shows_owner: bool = True
    """Whether the resource shows which run made the change. If not, the journal decides whether this run did."""
    other_zone: Zone | None = None
    """The zone that another person or program moves traffic away from. A run that meets it stops."""


class Action(Protocol):
    """A way to move resources away from a zone. Thread-safe.

    Methods raise errors of `holdfast.HoldfastError`: EngineUnavailable if nothing was written and the call may be
    repeated, as after throttling; OutcomeUnknown if the reply to a write was lost; others for refusals.
    """

    @property
    def evacuation_stage(self) -> int:
        """The position of the action when changes are made. Lower numbers come first, equal ones at the same time.

        An action that needs no control plane, such as `status`, has a low number: control planes fail more often.
        """

    @property
    def restoration_stage(self) -> int:
        """The position of the action when changes are undone. Lower numbers come first here, too."""

    @property
    def timeout(self) -> float:
        """Seconds after which a resource that is not done is reported, and the run goes on without it."""

    @property
    def parallel_calls(self) -> int:
        """Resources in one account that are changed at the same time, mostly PARALLEL_CALLS."""

    def discover(self, target: Target) -> Discovery:
        """Find all resources in the zone. Accounts that cannot be read are reported, not raised."""

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        """Plan the change of one resource. Pure."""

    def read(self, entry: Entry) -> Reading:
        """Read the resource of an entry, and return the state of its change."""

    def apply(self, entry: Entry) -> None:
        """Make the change. Called only after `read` returned ABSENT.

        Mostly with one write. An action with several writes must be able to continue after each of them.
        """

    def restore(self, entry: Entry, reading: Reading) -> None:
        """Undo the change, in the same way. Called only with a reading that says APPLIED."""

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Extend a change that expires. Called only with a reading that says APPLIED. Others do nothing."""


class ActionResources(Protocol):
    """The resources that an action may use."""

    @property
    def clock(self) -> "Clock":
        """The clock of the run."""

    def accounts(self) -> "Accounts":
        """Return the AWS accounts of the settings."""

    def status_writers(self, addresses: Sequence[str]) -> "Mapping[str, StatusWriter]":
        """Return writers of status stores by address; without addresses, of the store of the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionType:
    """A kind of action, as it is registered."""

    open: Callable[[Any, ActionResources], Action]
    """Return the action with its options, an `options_type`."""
    options_type: type[Struct]
    """The options of the action in the settings, with a default for each."""
    permissions: tuple[str, ...] = ()
    """The IAM actions that it needs in every account, such as `arc-zonal-shift:StartZonalShift`."""
    terraform: str = ""
    """Lines for Terraform configurations of the resources, so that Terraform does not undo an evacuation."""


ACTIONS: Plugins[ActionType] = Plugins(
    "evacuation action", package="holdfast.evacuate.actions", group="holdfast.evacuation_actions"
)
"""The registered kinds of actions, by name."""

"""The interface between evacuation and its actions: one protocol, and the values that it uses. Pure.

An action moves resources of some types away from a zone. It is one module in `actions/`. It decides nothing about the
run: it discovers resources, plans one change for each, reads whether the change is there, makes it once, and undoes it
once. The runner records, repeats and verifies.

No write is repeated blindly. After every write, and whenever its reply was lost, the runner calls `read`, and decides
by the result.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from holdfast._types import Zone
from holdfast.evacuate.journal import Entry


class Target(Struct, frozen=True, kw_only=True):
    """The zone that is evacuated, and for whom."""

    zone: Zone
    workload: str | None = None
    run: str
    """The id of the run. Actions leave it in AWS where they can, to recognize their own changes."""
    reason: str = ""


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
    """What the action found out. Only the action knows its content."""


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
    """A sign that traffic was moved away from a zone by somebody else, such as an autoshift of AWS."""

    zone: Zone
    source: str
    """Who or what moved it, and what of, in words."""
    resource: str = ""


class Unreadable(Struct, frozen=True, kw_only=True):
    """An account or a region that could not be read. What is there is unknown."""

    scope: str
    reason: str


class Discovery(Struct, frozen=True, kw_only=True):
    """Everything that an action found."""

    resources: Sequence[Resource] = ()
    unmovable: Sequence[Unmovable] = ()
    other_evacuations: Sequence[OtherEvacuation] = ()
    unreadable: Sequence[Unreadable] = ()


class ChangeState(StrEnum):
    """Whether a change is there."""

    ABSENT = "absent"
    """The resource is as before the change."""
    APPLIED = "applied"
    """Our change is there."""
    FOUND = "found"
    """The same change is there, made by somebody else."""
    DIFFERENT = "different"
    """Somebody else changed the resource in another way. Neither apply nor undo ours."""
    GONE = "gone"
    """The resource does not exist any more, or no longer allows the change."""


class Reading(Struct, frozen=True, kw_only=True):
    """The state of a change, as read just now."""

    state: ChangeState
    record: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What must be known to undo or renew the change."""
    note: str = ""
    """Details for people: who made another change, or why a resource is gone."""
    is_effective: bool = True
    """Whether an applied change has taken effect. Until then, the runner reads again."""


class Action(Protocol):
    """A way to move resources away from a zone. Thread-safe.

    Methods raise errors of `holdfast.HoldfastError`: EngineUnavailable if nothing was written and the call may be
    repeated, as after throttling; OutcomeUnknown if the reply to a write was lost; others for refusals.
    """

    @property
    def evacuation_stage(self) -> int:
        """When the changes are made: stages follow each other in ascending order. Data planes come first."""

    @property
    def restoration_stage(self) -> int:
        """When the changes are undone, likewise."""

    def discover(self, target: Target) -> Discovery:
        """Find all resources in the zone. Accounts that cannot be read are reported, not raised."""

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        """Plan the change of one resource. Pure."""

    def read(self, entry: Entry) -> Reading:
        """Return whether the change of an entry is there now."""

    def apply(self, entry: Entry) -> None:
        """Make the change, with one write. Called only after `read` returned ABSENT."""

    def restore(self, entry: Entry, reading: Reading) -> None:
        """Undo the change, with one write. Called only with a reading that says APPLIED."""

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Extend a change that expires. Called only with a reading that says APPLIED. Others do nothing."""

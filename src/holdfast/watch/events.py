"""The events of the detection loop, for its sink. Pure."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from holdfast._types import Verdict
from holdfast.watch.traffic import TrafficSample


class VerdictChange(msgspec.Struct, frozen=True):
    """A verdict that opened or closed."""

    verdict: Verdict
    at: float
    is_closed: bool


class CurrentVerdict(msgspec.Struct, frozen=True):
    """The verdict of the latest window of a workload, also if it is healthy or unknown."""

    verdict: Verdict


class ChangedAlarm(msgspec.Struct, frozen=True):
    """An alarm that changed its state, OK, ALARM or INSUFFICIENT_DATA, or whose withheld actions run now."""

    name: str
    old: str
    new: str
    reason: str
    has_actions: bool
    """Whether it is a conclusion about a zone or a resource, so that people should know."""
    description: str
    """The meaning of ALARM."""
    since: float
    """Time of the last change of the state, in seconds since the epoch. It is long ago if `was_suppressed`."""
    actions_run: bool = False
    """Whether actions run now."""
    suppressed_by: str | None = None
    """The reason if actions are withheld: WaitPeriod, Alarm or ExtensionPeriod."""
    was_suppressed: bool = False
    """Whether actions were withheld before, and run now."""


class AlarmChanges(msgspec.Struct, frozen=True):
    """The alarms of a workload that changed their state in one period, apart from those about single operations."""

    workload: str
    at: float
    changes: Sequence[ChangedAlarm]


WatchEvent: TypeAlias = TrafficSample | VerdictChange | CurrentVerdict | AlarmChanges
"""All events of a WorkloadWatcher, for its sink `events`."""

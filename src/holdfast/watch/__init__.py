"""The detection loop as a library: telemetry in, bins, a detector and alarms per workload, verdicts, events out.

May import telemetry, alarms, detect, status, evacuate and below; the server adds HTTP around it. Start reading at
`watch.py`.
"""

from holdfast.watch.events import AlarmChanges, ChangedAlarm, CurrentVerdict, VerdictChange, WatchEvent
from holdfast.watch.store import RecordedVerdict, WatchStore
from holdfast.watch.traffic import TrafficSample
from holdfast.watch.watch import VerdictHandler, WatchedWorkload, WorkloadWatcher

__all__ = [
    "AlarmChanges",
    "ChangedAlarm",
    "CurrentVerdict",
    "RecordedVerdict",
    "TrafficSample",
    "VerdictChange",
    "VerdictHandler",
    "WatchEvent",
    "WatchStore",
    "WatchedWorkload",
    "WorkloadWatcher",
]

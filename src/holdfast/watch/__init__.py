"""The detection loop as a library: telemetry in, bins, a detector and alarms per workload, verdicts, events out.

May import telemetry, alarms, detect, status, evacuate and below; the server adds HTTP around it. Start reading at
`watch.py`.
"""

from holdfast.watch.announce import announce_deploy
from holdfast.watch.deploy import AnnouncedDeploy
from holdfast.watch.deploy_store import DeployStore
from holdfast.watch.events import AlarmChanges, ChangedAlarm, CurrentVerdict, VerdictChange, WatchEvent
from holdfast.watch.store import RecordedVerdict, WatchStore
from holdfast.watch.traffic import TrafficSample
from holdfast.watch.watch import WorkloadWatcher
from holdfast.watch.workload import VerdictHandler, WatchedWorkload

__all__ = [
    "AlarmChanges",
    "AnnouncedDeploy",
    "ChangedAlarm",
    "CurrentVerdict",
    "DeployStore",
    "RecordedVerdict",
    "TrafficSample",
    "VerdictChange",
    "VerdictHandler",
    "WatchEvent",
    "WatchStore",
    "WatchedWorkload",
    "WorkloadWatcher",
    "announce_deploy",
]

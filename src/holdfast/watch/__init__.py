"""The detection loop as a library: telemetry in, bins, a detector per workload, verdicts, evacuation, events out.

May import telemetry, detect, status, evacuate and below; the server adds HTTP around it. Start reading at `watch.py`.
"""

from holdfast.watch.store import RecordedVerdict, WatchStore
from holdfast.watch.traffic import TrafficSample
from holdfast.watch.watch import (
    CurrentVerdict,
    VerdictChange,
    VerdictHandler,
    WatchedWorkload,
    WatchEvent,
    WorkloadWatcher,
)

__all__ = [
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

"""The detection loop as a library: telemetry in, bins, a detector per workload, verdicts, evacuation, events out.

May import telemetry, detect, status, evacuate and below; the server adds HTTP around it. Start reading at `watch.py`.
"""

from holdfast.watch.store import RecordedVerdict, WatchStore
from holdfast.watch.watch import TrafficSample, VerdictChange, WatchedWorkload, WatchEvent, WorkloadWatcher

__all__ = [
    "RecordedVerdict",
    "TrafficSample",
    "VerdictChange",
    "WatchEvent",
    "WatchStore",
    "WatchedWorkload",
    "WorkloadWatcher",
]

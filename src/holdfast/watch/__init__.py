"""The loop as a library: telemetry in, bins, a detector for each workload, verdicts, evacuation, events out.

May import telemetry, detect, status, evacuate and below; the server adds HTTP around it. Start reading at `watch.py`.
"""

from holdfast.watch.store import RecordedVerdict, WatchStore
from holdfast.watch.watch import Pulse, VerdictChange, Watch, WatchedWorkload, WatchEvent

__all__ = ["Pulse", "RecordedVerdict", "VerdictChange", "Watch", "WatchEvent", "WatchStore", "WatchedWorkload"]

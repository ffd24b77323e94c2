"""Canaries: probe the endpoint of each zone from inside that zone, as clients would, and report the results.

May import the engines, calls, telemetry and the base, and nothing that the core install lacks. Start reading at
`probe.py` for the rules, then `canary.py`; `checks.py` makes the requests. `holdfast canary` runs it.
"""

from holdfast.canary.canary import Canary
from holdfast.canary.metrics import CanaryMetrics
from holdfast.canary.probe import HttpCheck, Probe, ProbeResult, PythonCheck, ResultKind, TcpCheck

__all__ = ["Canary", "CanaryMetrics", "HttpCheck", "Probe", "ProbeResult", "PythonCheck", "ResultKind", "TcpCheck"]

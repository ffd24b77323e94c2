"""Measure requests by zone: CloudWatch's embedded metric format in and out, bins, and windows for detectors.

May import calls, the engines and the base. Start reading at `meter.py` and `emf.py` for one request, at
`sources/emf.py` and `bins.py` for many, and at `window.py` for a detector's input.
"""

from holdfast.telemetry.bins import BIN_SECONDS, Bin, BinDelta, BinKey, build_deltas
from holdfast.telemetry.emf import RequestRecord, encode_emf
from holdfast.telemetry.faults import FaultStatuses
from holdfast.telemetry.window import Cells, Deployment, Window, ZoneReading, build_window

__all__ = [
    "BIN_SECONDS",
    "Bin",
    "BinDelta",
    "BinKey",
    "Cells",
    "Deployment",
    "FaultStatuses",
    "RequestRecord",
    "Window",
    "ZoneReading",
    "build_deltas",
    "build_window",
    "encode_emf",
]

"""Measure requests by zone: CloudWatch's embedded metric format in and out, bins, and windows for detectors.

May import calls, the engines and the base. Start reading at `emf.py` for one request, at `bins.py` for many, and at
`window.py` for a detector's input.
"""

from holdfast.telemetry.bins import BIN_SECONDS, Bin, BinDelta, BinKey, Bins, build_deltas
from holdfast.telemetry.emf import RequestRecord, decode_emf, encode_emf
from holdfast.telemetry.window import Cells, Deployment, Window, ZoneReading, build_window

__all__ = [
    "BIN_SECONDS",
    "Bin",
    "BinDelta",
    "BinKey",
    "Bins",
    "Cells",
    "Deployment",
    "RequestRecord",
    "Window",
    "ZoneReading",
    "build_deltas",
    "build_window",
    "decode_emf",
    "encode_emf",
]

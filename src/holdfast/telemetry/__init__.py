"""Measure requests by zone: CloudWatch's embedded metric format in and out, bins, and windows for detectors.

May import calls, the engines and the base. Start reading at `emf.py` for one request, at `bins.py` for many, and at
`window.py` for what a detector sees.
"""

from holdfast.telemetry.bins import BIN_SECONDS, Bin, BinDelta, BinKey, Bins, deltas_of
from holdfast.telemetry.emf import Request, decode, encode
from holdfast.telemetry.window import Cells, Deploy, Window, ZoneReading, window_of

__all__ = [
    "BIN_SECONDS",
    "Bin",
    "BinDelta",
    "BinKey",
    "Bins",
    "Cells",
    "Deploy",
    "Request",
    "Window",
    "ZoneReading",
    "decode",
    "deltas_of",
    "encode",
    "window_of",
]

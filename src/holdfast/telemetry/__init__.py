"""What happened: requests as CloudWatch's embedded metric format, in and out, and bins of ten seconds.

May import calls, the engines and the base. Start reading at `emf.py` for one request, and at `bins.py` for many.
"""

from holdfast.telemetry.bins import BIN_SECONDS, Bin, BinKey, Bins
from holdfast.telemetry.emf import Request, decode, encode
from holdfast.telemetry.window import Window, ZoneReading, window_of

__all__ = [
    "BIN_SECONDS",
    "Bin",
    "BinKey",
    "Bins",
    "Request",
    "Window",
    "ZoneReading",
    "decode",
    "encode",
    "window_of",
]

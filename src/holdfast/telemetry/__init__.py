"""Measure requests by zone: CloudWatch's embedded metric format in and out, bins, and windows for detectors.

May import calls, the engines and the base. Start reading at `meter.py` and `emf.py` for one request, at
`sources/emf.py` and `bins.py` for many, and at `window.py` for a detector's input.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._errors import MissingExtra
from holdfast.telemetry.bins import BIN_SECONDS, Bin, BinDelta, BinKey, build_deltas
from holdfast.telemetry.context import Deployment, SharedResource
from holdfast.telemetry.emf import RequestRecord, encode_emf
from holdfast.telemetry.faults import FaultStatuses

if TYPE_CHECKING:
    from holdfast.telemetry.window import Cells, Window, ZoneReading, build_window

__all__ = [
    "BIN_SECONDS",
    "Bin",
    "BinDelta",
    "BinKey",
    "Cells",
    "Deployment",
    "FaultStatuses",
    "RequestRecord",
    "SharedResource",
    "Window",
    "ZoneReading",
    "build_deltas",
    "build_window",
    "encode_emf",
]

_OF_WINDOWS = frozenset({"Cells", "Window", "ZoneReading", "build_window"})

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute name

    def __getattr__(name: str) -> Any:
        """Import windows on first access: they need NumPy, and services that only send telemetry do not."""
        if name not in _OF_WINDOWS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(f"{__name__}.window")
        except ModuleNotFoundError as error:
            raise MissingExtra("detection", "server") from error
        found = globals()[name] = getattr(module, name)
        return found


def __dir__() -> list[str]:
    return __all__

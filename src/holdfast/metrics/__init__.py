"""Metrics of every part: describe an instrument once, export it to Prometheus, CloudWatch, OpenTelemetry or logs.

May import the base. A part defines its instruments in its own module, such as `holdfast.calls.metrics`, with a sink
that turns events into measurements. Start reading at `instruments.py`, then `exporter.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.metrics.exporter import EXPORTERS, ExportContext, Exporter, open_exporters
from holdfast.metrics.histogram import Histogram
from holdfast.metrics.instruments import Instrument, InstrumentType, Label, LogLine, Measurement, Series
from holdfast.metrics.sink import MetricsSink

if TYPE_CHECKING:
    from holdfast.metrics.exporters.emf import EmfExporter
    from holdfast.metrics.exporters.logs import LogExporter
    from holdfast.metrics.exporters.opentelemetry import OpenTelemetryExporter
    from holdfast.metrics.exporters.prometheus import PrometheusExporter

__all__ = [
    "EXPORTERS",
    "EmfExporter",
    "ExportContext",
    "Exporter",
    "Histogram",
    "Instrument",
    "InstrumentType",
    "Label",
    "LogExporter",
    "LogLine",
    "Measurement",
    "MetricsSink",
    "OpenTelemetryExporter",
    "PrometheusExporter",
    "Series",
    "open_exporters",
]


_MODULES = {
    "EmfExporter": "emf",
    "LogExporter": "logs",
    "OpenTelemetryExporter": "opentelemetry",
    "PrometheusExporter": "prometheus",
}


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute name

    def __getattr__(name: str) -> Any:
        """Import an exporter on first access: most programs use only one."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.exporters.{_MODULES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return __all__

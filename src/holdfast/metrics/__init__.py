"""Metrics of every part: describe an instrument once, export it to Prometheus, CloudWatch, OpenTelemetry or logs.

May import the base. A part describes its instruments in a module of its own, such as `holdfast.calls.metrics`, with a
sink that turns events into measurements. Start reading at `instruments.py`, then `exporter.py`.
"""

from holdfast.metrics.exporter import EXPORTERS, Exporter, ExportTarget, open_exporters
from holdfast.metrics.exporters.emf import EmfExporter
from holdfast.metrics.exporters.logs import LogExporter
from holdfast.metrics.exporters.opentelemetry import OpenTelemetryExporter
from holdfast.metrics.exporters.prometheus import PrometheusExporter
from holdfast.metrics.histogram import Histogram
from holdfast.metrics.instruments import Instrument, Label, LogLine, Measurement, Series, Type
from holdfast.metrics.sink import MetricsSink

__all__ = [
    "EXPORTERS",
    "EmfExporter",
    "ExportTarget",
    "Exporter",
    "Histogram",
    "Instrument",
    "Label",
    "LogExporter",
    "LogLine",
    "Measurement",
    "MetricsSink",
    "OpenTelemetryExporter",
    "PrometheusExporter",
    "Series",
    "Type",
    "open_exporters",
]

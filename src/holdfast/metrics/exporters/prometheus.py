"""Keep metrics in memory, and write them in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/ and https://prometheus.io/docs/practices/naming/
"""

import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar, Self, TypeVar

from holdfast._errors import SettingsError
from holdfast._forks import register_after_fork
from holdfast.metrics.exporter import EXPORTERS, ExportContext, Exporter, GaugeReader, GaugeReaders
from holdfast.metrics.histogram import Histogram
from holdfast.metrics.instruments import Instrument, InstrumentType, Measurement, Series
from holdfast.metrics.series import SeriesTable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the text format."""
LAST_PORT = 65_535

Labels = tuple[tuple[str, str], ...]
Value = TypeVar("Value", float, Histogram)


@EXPORTERS.register("prometheus")
class PrometheusExporter(Exporter):
    """An exporter that sums measurements in memory; `render` writes them for a scrape. Thread-safe.

    Every process has its own counters, and a forked child starts with empty ones, so that nothing is counted twice:
    scrape each process. By name it is `prometheus:PORT` or `prometheus:HOST:PORT`, which serves `GET /metrics` without
    credentials, on loopback unless a host is given; each of several processes takes the next port.
    """

    uses_attributes: ClassVar[bool] = False

    def __init__(self) -> None:
        self._instruments: dict[Instrument, None] = {}
        self._reads = GaugeReaders()
        self._begun: list[Series] = []
        self._opened = ExitStack()
        self.reset_after_fork()
        register_after_fork(self)

    @classmethod
    def open(cls, argument: str, context: ExportContext) -> Self:
        host, _, port_text = argument.rpartition(":")
        port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0
        if not 1 <= port <= LAST_PORT - context.processes + 1:
            raise SettingsError(
                f"prometheus:{argument}: expected prometheus:PORT or prometheus:HOST:PORT, with a port from 1 to "
                f"{LAST_PORT - context.processes + 1}; each of several processes takes the next port"
            )
        from holdfast.metrics.http_server import MetricsServer  # imports http.server, which nothing else needs

        exporter = cls()
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        exporter._opened.enter_context(MetricsServer(host, port + context.process, exporter.render))
        return exporter

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._table: SeriesTable[Histogram] = SeriesTable(Histogram)
        self._table.start_series(self._begun)

    def declare(self, instruments: Sequence[Instrument]) -> None:
        with self._lock:
            self._instruments |= dict.fromkeys(instruments)

    def record(self, measurements: Sequence[Measurement]) -> None:
        with self._lock:
            self._table.add(measurements)

    def start_series(self, series: Sequence[Series]) -> None:
        with self._lock:
            self._begun += series
            self._table.start_series(series)

    def keep_only(
        self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]
    ) -> None:
        with self._lock:
            self._table.keep_only(instruments, labels, breakdowns)

    def observe(self, instruments: Sequence[Instrument], read: GaugeReader) -> None:
        self.declare(instruments)
        self._reads.add(read)

    def close(self) -> None:
        self._opened.close()

    def render(self) -> str:
        """Return all metrics in the text format; serve them with `CONTENT_TYPE`."""
        observed = self._reads.measure()
        with self._lock:
            self._table.add(observed)
            numbers, histograms = self._table.numbers(), self._table.distributions()
        lines: list[str] = []
        for instrument in self._instruments:
            if instrument.type is InstrumentType.HISTOGRAM:
                lines += _histogram(instrument, histograms.get(instrument, {}))
            else:
                lines += _numbers(instrument, numbers.get(instrument, {}))
        return "".join(f"{line}\n" for line in lines)


def _families(
    instrument: Instrument, values: Mapping[Series, Value]
) -> Iterator[tuple[str, str, bool, dict[Labels, Value]]]:
    """Yield the total and the breakdown: name, description, whether it is the total, and values in order of labels."""
    families = [(instrument.prometheus_name, instrument.description, True)]
    if instrument.breakdown is not None:
        description = f"{instrument.description.removesuffix('.')}, by {instrument.breakdown.name}."
        families.append((instrument.breakdown_name(instrument.prometheus_name), description, False))
    for name, description, is_total in families:
        kept = {_labels(series): value for series, value in values.items() if (series.breakdown is None) == is_total}
        yield name, description, is_total, {labels: kept[labels] for labels in sorted(kept)}


def _numbers(instrument: Instrument, numbers: Mapping[Series, float]) -> Iterator[str]:
    for name, description, _, samples in _families(instrument, numbers):
        yield from _head(name, instrument.type, description, samples)
        for labels, value in samples.items():
            yield _sample(name, labels, value)


def _histogram(instrument: Instrument, histograms: Mapping[Series, Histogram]) -> Iterator[str]:
    """Yield a histogram for totals, and a small summary without quantiles for the breakdown."""
    edges = (*instrument.buckets, math.inf)
    for name, description, is_total, family in _families(instrument, histograms):
        kept = {labels: one for labels, one in family.items() if is_total or one.count}
        yield from _head(name, "histogram" if is_total else "summary", description, kept)
        for labels, one in kept.items():
            counts = (*one.cumulative(instrument.buckets), one.count) if is_total else ()
            for edge, count in zip(edges, counts, strict=False):
                yield _sample(f"{name}_bucket", (*labels, ("le", _number(edge))), count)
            yield _sample(f"{name}_sum", labels, one.sum)
            yield _sample(f"{name}_count", labels, one.count)


def _labels(series: Series) -> Labels:
    labels = [(label.name, value) for label, value in series.label_values()]
    if series.instrument.detail is not None:
        labels.append((series.instrument.detail.name, series.detail))
    return tuple(labels)


def _head(name: str, kind: str, description: str, samples: Collection[object]) -> list[str]:
    """Return the HELP and TYPE lines, or nothing if the family has no samples."""
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"] if samples else []


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{inside}}} {_number(value)}"


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be encoded
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else repr(value)

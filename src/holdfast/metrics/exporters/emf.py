"""Export metrics to CloudWatch as lines of its embedded metric format: a few per minute, not one per event.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
CloudWatch charges for logs by size, and for each combination of a metric and its dimensions by month.
"""

import logging
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Self, TextIO

import msgspec

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast.metrics.exporter import EXPORTERS, ExportContext, Exporter, GaugeReader, GaugeReaders
from holdfast.metrics.histogram import Histogram
from holdfast.metrics.instruments import ANY_DETAIL, Instrument, Measurement, Series
from holdfast.metrics.series import SeriesTable

MAX_VALUES = 100
"""Maximum values of one metric in one line: CloudWatch's limit."""
MAX_DIMENSION_CHARACTERS = 1024
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#: -]{0,254}")
_QUANTILES = [(rank + 0.5) / (MAX_VALUES - 1) for rank in range(MAX_VALUES - 1)]

Dimensions = tuple[tuple[str, str], ...]
Metrics = dict[str, tuple[str, Any]]
"""Unit and value, or list of values, by name."""

log = logging.getLogger(__name__)


class SampledDistribution:
    """A distribution as at most 100 values: all of them, or percentiles if there are more."""

    __slots__ = ("_histogram", "_values")

    def __init__(self) -> None:
        self._values: list[float] = []
        self._histogram: Histogram | None = None

    def add(self, value: float) -> None:
        if self._histogram is not None:
            self._histogram.add(value)
            return
        self._values.append(value)
        if len(self._values) > MAX_VALUES:
            self._histogram = Histogram.of(self._values)

    def merge(self, other: Self) -> None:
        for value in other._values if other._histogram is None else ():
            self.add(value)
        if other._histogram is not None:
            if self._histogram is None:
                self._histogram = Histogram.of(self._values)
            self._histogram.merge(other._histogram)

    def values(self) -> list[float]:
        """Return the values in ascending order; the largest is always exact."""
        if self._histogram is None:
            return sorted(self._values)
        return [*self._histogram.quantiles(_QUANTILES), self._histogram.max]


@EXPORTERS.register("emf")
class EmfExporter(Exporter):
    """An exporter that writes a line for each measured combination of labels, every `interval` seconds.

    `to` is a stream, or a function that is called with each line. Dimensions are the labels. Lines are written by the
    thread that records the first measurement after `interval` seconds: without measurements, nothing is written until
    `flush` or `close`, for example at the end of a Lambda invocation. Lines that cannot be written are dropped, and
    counted in `dropped_lines`. Thread-safe; a forked child starts with empty counters. By name it is `emf` or
    `emf:NAMESPACE`, which writes to standard output.
    """

    uses_attributes: ClassVar[bool] = False
    uses_standard_output: ClassVar[bool] = True

    def __init__(
        self,
        to: TextIO | Callable[[str], object],
        *,
        namespace: str,
        interval: float = 60.0,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidValue(
                f"namespace {namespace!r}: expected 1 to 255 letters, digits and ._-/#: that do not begin with AWS/"
            )
        if not 0 < interval < math.inf:
            raise InvalidValue(f"interval is {interval}: expected seconds, more than 0")
        self._write = to if callable(to) else _writer(to)
        self._namespace = namespace
        self._interval = interval
        self._clock = clock
        self._reads = GaugeReaders()
        self._opened = ExitStack()
        self.dropped_lines = 0
        """Lines that could not be written."""
        self.reset_after_fork()
        register_after_fork(self)

    @classmethod
    def open(cls, argument: str, context: ExportContext) -> Self:
        from holdfast.metrics.standard_output import StandardOutput

        output = StandardOutput()
        exporter = cls(output.write, namespace=argument or context.namespace)
        exporter._opened.enter_context(output)
        return exporter

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        self._flush_at = math.inf
        self._table: SeriesTable[SampledDistribution] = SeriesTable(SampledDistribution)

    def record(self, measurements: Sequence[Measurement]) -> None:
        with self._lock:
            now = self._clock.monotonic()
            taken = self._swap_table() if now >= self._flush_at else None
            if self._flush_at == math.inf:
                self._since, self._flush_at = self._clock.wall(), now + self._interval
            self._table.add(measurements)
        if taken is not None:
            self._write_all(*taken)

    def observe(self, instruments: Sequence[Instrument], read: GaugeReader) -> None:  # noqa: ARG002 - `read` has them
        self._reads.add(read)

    def flush(self) -> None:
        with self._lock:
            taken = self._swap_table()
        self._write_all(*taken)

    def close(self) -> None:
        self.flush()
        self._opened.close()

    def _swap_table(self) -> tuple[float, SeriesTable[SampledDistribution]]:
        """Return the start time and the measurements so far, and start an empty table."""
        taken = self._since, self._table
        self._since, self._flush_at, self._table = 0.0, math.inf, SeriesTable(SampledDistribution)
        return taken

    def _write_all(self, since: float, table: SeriesTable[SampledDistribution]) -> None:
        """Write lines. Called without the lock, so that measuring threads do not wait for each other."""
        table.add(self._reads.measure())
        since = since or self._clock.wall()
        for dimensions, metrics in build_lines(table).items():
            try:
                self._write(self._line(since, dimensions, metrics))
            except Exception:
                self.dropped_lines += 1
                if self.dropped_lines == 1:  # log only the first: the cause, such as a full disk, usually lasts
                    log.exception("could not write metrics; further dropped lines are only counted")

    def _line(self, since: float, dimensions: Dimensions, metrics: Metrics) -> str:
        named = {name: dimension_value(value) for name, value in dimensions}
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [list(named)],
            "Metrics": [{"Name": name, "Unit": unit} for name, (unit, _) in metrics.items()],
        }
        document = {
            "_aws": {"Timestamp": round(since * 1000), "CloudWatchMetrics": [directive]},
            **named,
            **{name: value for name, (_, value) in metrics.items()},
        }
        return msgspec.json.encode(document).decode()


Lines = dict[Dimensions, Metrics]
"""The metrics of each combination of dimensions."""


def build_lines(table: SeriesTable[SampledDistribution]) -> Lines:
    """Return the lines in order. Totals include zeros, which alarms need; breakdowns do not, because metrics cost."""
    lines: Lines = {}
    for instrument, numbers in table.numbers().items():
        if instrument.cloudwatch_names:
            _add_numbers(lines, instrument, numbers)
    for instrument, distributions in table.distributions().items():
        factor = 1000 if instrument.cloudwatch_unit == "Milliseconds" else 1
        for series, distribution in distributions.items():
            for name in _find_names(series):
                values = [round(factor * value, 3) for value in distribution.values()]
                metrics = lines.setdefault(_dimensions(series), {})
                metrics[name] = (instrument.cloudwatch_unit, values)
    return {line: lines[line] for line in sorted(lines)}


def _add_numbers(lines: Lines, instrument: Instrument, numbers: Mapping[Series, float]) -> None:
    totals: dict[Dimensions, dict[str, float]] = {}
    for series, value in numbers.items():
        is_total = series.breakdown is None
        if not math.isfinite(value) or not (is_total or value):
            continue
        dimensions = _dimensions(series)
        metrics = lines.setdefault(dimensions, {})
        for name in _find_names(series):
            _, before = metrics.get(name, (instrument.cloudwatch_unit, 0))
            metrics[name] = (instrument.cloudwatch_unit, round(before + value, 3))
        if is_total:
            totals.setdefault(dimensions, {})[series.detail] = value
    for dimensions, by_detail in totals.items():
        metrics = lines[dimensions]
        for name in instrument.cloudwatch_zeros:
            metrics.setdefault(name, ("Count", 0))
        for detail, name in instrument.cloudwatch_shares.items():
            metrics[name] = ("Percent", round(100 * by_detail.get(detail, 0) / sum(by_detail.values()), 3))


def _find_names(series: Series) -> tuple[str, ...]:
    names = series.instrument.cloudwatch_names
    return names.get(series.detail, names.get(ANY_DETAIL, ()))


def _dimensions(series: Series) -> Dimensions:
    return tuple((label.dimension, value) for label, value in series.label_values())


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(line: str) -> None:
        stream.write(f"{line}\n")  # in one call: others may write to the same stream
        stream.flush()

    return write


def dimension_value(text: str) -> str:
    """Return the text with only the characters and length that CloudWatch allows in a dimension value."""
    allowed = "".join(char if " " <= char <= "~" else "?" for char in text).lstrip(": ")
    return allowed[:MAX_DIMENSION_CHARACTERS].rstrip() or "?"

"""Export metrics and, optionally, span events with OpenTelemetry. Needs an extra.

Names and attributes follow https://opentelemetry.io/docs/specs/semconv/ if it defines some; others begin with
`holdfast`.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._errors import MissingExtra
from holdfast._forks import register_after_fork
from holdfast.metrics.cardinality import OTHER, CardinalityLimit
from holdfast.metrics.exporter import EXPORTERS, Exporter, GaugeReader
from holdfast.metrics.instruments import (
    Attributes,
    AttributeValue,
    Instrument,
    InstrumentType,
    LogLine,
    Measurement,
    Series,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

MAX_BREAKDOWN_VALUES = 100
"""Breakdown values of one queue over the life of a process: five times the number that are current at a time."""


@EXPORTERS.register("opentelemetry")
class OpenTelemetryExporter(Exporter):
    """An exporter that records with a meter, by default of the global provider. Thread-safe.

    With `span_events`, log lines that have a span event, such as retries of calls, are added to the current span.
    OpenTelemetry keeps every combination of attributes until the process ends. So after `max_breakdown_values` values
    of a breakdown, such as tenants of a queue, new ones are recorded as `other`.
    """

    def __init__(
        self,
        meter: "Meter | None" = None,
        *,
        span_events: bool = False,
        max_breakdown_values: int = MAX_BREAKDOWN_VALUES,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise MissingExtra("the OpenTelemetry exporter", "opentelemetry") from error
        self._meter = metrics.get_meter("holdfast") if meter is None else meter
        self._observation = metrics.Observation
        self._current_span: Callable[[], Any] = trace.get_current_span
        self.uses_logs = span_events  # type: ignore[misc]
        self._max_breakdown_values = max_breakdown_values
        self._recorders: dict[Instrument, Callable[..., None]] = {}
        self._breakdown_recorders: dict[Instrument, Callable[..., None]] = {}
        """Of gauges, whose breakdown is an instrument of its own."""
        self._reads: dict[Instrument, list[GaugeReader]] = {}
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[tuple[str, ...], CardinalityLimit] = {}
        self._gauges: dict[tuple[Instrument, tuple[str, ...]], set[Series]] = {}

    def declare(self, instruments: Sequence[Instrument]) -> None:
        for instrument in instruments:
            if instrument.in_opentelemetry and instrument not in self._recorders:
                self._create(instrument)

    def record(self, measurements: Sequence[Measurement]) -> None:
        gauges: dict[Series, float] = {}
        for measurement in measurements:
            series = measurement.series
            record = self._recorders.get(series.instrument)
            if record is None:
                continue
            if series.breakdown is not None:
                series = self._bounded(series)
            if series.instrument.type is InstrumentType.GAUGE:
                # Several values may map to `other`: their sum is set, because a gauge has one value.
                gauges[series] = gauges.get(series, 0) + measurement.value
            else:
                record(measurement.value, self._attributes(series, measurement.attributes))
        for series, value in gauges.items():
            self._set(series, value)

    def keep_only(
        self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]
    ) -> None:
        """Set the gauges of all other breakdowns to 0, because OpenTelemetry cannot remove them."""
        with self._lock:
            known = [series for instrument in instruments for series in self._gauges.get((instrument, labels), ())]
        for series in known:
            if series.breakdown not in breakdowns:
                self._set(series, 0)

    def observe(self, instruments: Sequence[Instrument], read: GaugeReader) -> None:
        for instrument in instruments:
            if not instrument.in_opentelemetry:
                continue
            with self._lock:
                reads = self._reads.setdefault(instrument, [])
                reads.append(read)
            if len(reads) == 1:
                self._meter.create_observable_gauge(
                    instrument.name, [self._callback(instrument)], instrument.unit, instrument.description
                )

    def log(self, line: LogLine) -> None:
        if line.span_event is not None:
            attributes = {f"holdfast.{name}": value for name, value in line.fields().items()}
            self._current_span().add_event(line.span_event, attributes)

    def _create(self, instrument: Instrument) -> None:
        name, unit, description = instrument.name, instrument.unit, instrument.description
        if instrument.type is InstrumentType.COUNTER:
            self._recorders[instrument] = self._meter.create_counter(name, unit, description).add
        elif instrument.type is InstrumentType.HISTOGRAM:
            self._recorders[instrument] = self._meter.create_histogram(
                name,
                unit,
                description,
                explicit_bucket_boundaries_advisory=instrument.boundaries or instrument.buckets,
            ).record
        else:
            self._recorders[instrument] = self._meter.create_gauge(name, unit, description).set
            if instrument.breakdown is not None:  # under the same name, sum() would count total and breakdown twice
                name = instrument.breakdown_name(name)
                self._breakdown_recorders[instrument] = self._meter.create_gauge(name, unit, description).set

    def _set(self, series: Series, value: float) -> None:
        recorders = self._recorders if series.breakdown is None else self._breakdown_recorders
        if series.breakdown is not None:
            with self._lock:
                self._gauges.setdefault((series.instrument, series.labels), set()).add(series)
        recorders[series.instrument](value, self._attributes(series, None))

    def _callback(self, instrument: Instrument) -> "Callable[[CallbackOptions], Iterator[Observation]]":
        def observed(_: "CallbackOptions") -> "Iterator[Observation]":
            for read in self._reads[instrument]:
                for measurement in read():
                    if measurement.series.instrument is instrument:
                        yield self._observation(measurement.value, self._attributes(measurement.series, None))

        return observed

    def _bounded(self, series: Series) -> Series:
        breakdown = series.breakdown
        with self._lock:
            named = self._named.get(series.labels)
            if named is None:
                named = self._named[series.labels] = CardinalityLimit(self._max_breakdown_values)
            if breakdown == OTHER or named.admits(breakdown):
                return series
        return msgspec.structs.replace(series, breakdown=OTHER)

    def _attributes(self, series: Series, given: Attributes | None) -> dict[str, AttributeValue]:
        instrument = series.instrument
        attributes: dict[str, AttributeValue] = dict(instrument.constants)
        attributes |= {label.attribute: value for label, value in series.label_values()}
        if given is not None:
            attributes.update(given)
        elif instrument.detail is not None:
            attributes[instrument.detail.attribute] = series.detail
        return attributes

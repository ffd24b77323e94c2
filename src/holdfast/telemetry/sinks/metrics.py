"""Count outcomes as metrics of your service, for Prometheus and other exporters."""

import threading
from collections.abc import Sequence

from holdfast._forks import register_after_fork
from holdfast._types import Operation, Outcome, Side, Zone
from holdfast.metrics.cardinality import MAX_NAMES, OTHER, CardinalityLimit
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import Instrument, InstrumentType, Label, Measurement, Series
from holdfast.metrics.sink import MetricsSink

__all__ = ["OutcomeMetrics"]

MAX_ZONES = 32
"""Zones with their own series, as many as a workload may have."""
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")

_LABELS = (Label("workload"), Label("service"), Label("operation"), Label("zone"), Label("side"))
REQUESTS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.requests",
    unit="{request}",
    description="Requests by the class of their status.",
    labels=_LABELS,
    detail=Label("status"),
)
DURATION = Instrument(
    type=InstrumentType.HISTOGRAM,
    name="holdfast.request.duration",
    unit="s",
    description="Duration of requests: of faults, or of all others.",
    labels=_LABELS,
    detail=Label("result"),
    # The boundaries that OpenTelemetry's conventions recommend for requests.
    boundaries=(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    prometheus_name="holdfast_request_seconds",
)

_Key = tuple[str, Operation, Zone, Side]


class _RequestSeries:
    """The series of one operation in one zone."""

    __slots__ = ("faults", "one", "requests", "successes")

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.requests = tuple(Series(REQUESTS, labels, status) for status in STATUS_CLASSES)
        self.one = tuple(Measurement(series, 1) for series in self.requests)
        self.successes, self.faults = Series(DURATION, labels, "success"), Series(DURATION, labels, "fault")


class OutcomeMetrics(MetricsSink[Outcome]):
    """A sink that counts outcomes for exporters: `OutcomeMetrics(PrometheusExporter())`. Thread-safe.

    Operations after the first `max_operations` are counted as `other`, and zones after the first 32. Ignored outcomes
    are not counted.
    """

    instruments = (REQUESTS, DURATION)

    def __init__(self, *exporters: Exporter, max_operations: int = MAX_NAMES) -> None:
        self._operations = CardinalityLimit(max_operations)
        self._zones = CardinalityLimit(MAX_ZONES)
        self._series: dict[_Key, _RequestSeries] = {}
        """Cache, without those of `other`: it would grow without bound."""
        self.reset_after_fork()
        register_after_fork(self)
        super().__init__(*exporters)

    def reset_after_fork(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.RLock()  # reentrant: the garbage collector may end a request, too

    def measure(self, event: Outcome) -> Sequence[Measurement]:
        if event.is_ignored:
            return ()
        key = (event.workload, event.operation, event.zone, event.side)
        series = self._series.get(key) or self._find_series(key)
        counts = (event.count_2xx, event.count_3xx, event.count_4xx, event.count_5xx)
        found = [
            series.one[index] if count == 1 else Measurement(series.requests[index], count)
            for index, count in enumerate(counts)
            if count
        ]
        found += [Measurement(series.successes, seconds) for seconds in event.success_seconds]
        found += [Measurement(series.faults, seconds) for seconds in event.fault_seconds]
        return found

    def _find_series(self, key: _Key) -> _RequestSeries:
        workload, operation, zone, side = key
        with self._lock:
            has_zone = self._zones.admits((workload, zone))
            has_operation = has_zone and self._operations.admits((workload, operation))
        service, name = (operation.service, operation.name) if has_operation else (OTHER, OTHER)
        labels = (workload, service, name, zone) if has_zone else (OTHER, OTHER, OTHER, OTHER)
        found = _RequestSeries((*labels, side.value))
        if has_zone and has_operation:
            self._series[key] = found
        return found

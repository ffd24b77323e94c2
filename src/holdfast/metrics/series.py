"""Keep the values of many instruments by their labels, for exporters that add them up in memory. Pure."""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from holdfast.metrics.instruments import Instrument, Measurement, Type

SeriesKey = tuple[tuple[str, ...], str | None, str]
"""The labels, the breakdown (None: the total) and the detail of a series."""


class Distribution(Protocol):
    """Keeps the values of a histogram."""

    def add(self, value: float, /) -> None:
        """Count one value."""


D = TypeVar("D", bound=Distribution)


class SeriesTable(Generic[D]):
    """What was measured so far. Not thread-safe."""

    __slots__ = ("_distribution", "distributions", "numbers")

    def __init__(self, distribution: Callable[[], D]) -> None:
        self._distribution = distribution
        self.numbers: dict[Instrument, dict[SeriesKey, float]] = {}
        """Counters and gauges."""
        self.distributions: dict[Instrument, dict[SeriesKey, D]] = {}
        """Histograms."""

    def add(self, measurements: Sequence[Measurement]) -> None:
        """Count measurements, each for its total and, if it has one, for its breakdown."""
        for measurement in measurements:
            instrument, value, labels = measurement.instrument, measurement.value, measurement.labels
            breakdown, detail = measurement.breakdown, measurement.detail
            keys: tuple[SeriesKey, ...] = ((labels, None, detail),)
            if breakdown is not None:
                keys = ((labels, None, detail), (labels, breakdown, detail))
            if instrument.type is Type.HISTOGRAM:
                series = self.distributions.get(instrument)
                if series is None:
                    series = self.distributions[instrument] = {}
                for key in keys:
                    kept = series.get(key)
                    if kept is None:
                        kept = series[key] = self._distribution()
                    kept.add(value)
                continue
            numbers = self.numbers.get(instrument)
            if numbers is None:
                numbers = self.numbers[instrument] = {}
            if instrument.type is Type.GAUGE:
                numbers[keys[-1]] = value
            else:
                for key in keys:
                    numbers[key] = numbers.get(key, 0) + value

    def begin(self, measurements: Sequence[Measurement]) -> None:
        """Begin the series of measurements at nothing, where they have not begun."""
        for measurement in measurements:
            instrument, key = measurement.instrument, (measurement.labels, measurement.breakdown, measurement.detail)
            if instrument.type is Type.HISTOGRAM:
                self.distributions.setdefault(instrument, {}).setdefault(key, self._distribution())
            else:
                self.numbers.setdefault(instrument, {}).setdefault(key, 0)

    def keep(self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]) -> None:
        """Remove the series of all values of the breakdown but these."""
        for instrument in instruments:
            for series in (self.numbers.get(instrument, {}), self.distributions.get(instrument, {})):
                for key in list(series):
                    if key[0] == labels and key[1] is not None and key[1] not in breakdowns:
                        del series[key]

"""Store the values of many series, for exporters that sum them in memory. Pure."""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from holdfast.metrics.instruments import Instrument, InstrumentType, Measurement, Series

COUNTER, HISTOGRAM = InstrumentType.COUNTER, InstrumentType.HISTOGRAM  # bound once: enum member access is slow


class Distribution(Protocol):
    """The distribution of a histogram's values."""

    def add(self, value: float, /) -> None:
        """Count one value."""

    def merge(self, other: Self, /) -> None:
        """Count all values of another distribution."""


D = TypeVar("D", bound=Distribution)


class SeriesTable(Generic[D]):
    """All values measured so far. Totals over a breakdown are summed only when read, which is rare. Not thread-safe."""

    def __init__(self, distribution: Callable[[], D]) -> None:
        self._distribution = distribution
        self._numbers: dict[Series, float] = {}
        self._distributions: dict[Series, D] = {}
        self._broken_down: dict[tuple[Instrument, tuple[str, ...]], set[Series]] = {}
        """The series of a breakdown, by instrument and labels."""

    def add(self, measurements: Sequence[Measurement]) -> None:
        numbers, distributions = self._numbers, self._distributions
        for measurement in measurements:
            series, value = measurement.series, measurement.value
            number = numbers.get(series)
            if number is not None:
                numbers[series] = number + value if series.instrument.type is COUNTER else value
                continue
            distribution = distributions.get(series)
            if distribution is not None:
                distribution.add(value)
            else:
                self.start_series((series,))
                self.add((measurement,))

    def start_series(self, series: Sequence[Series]) -> None:
        """Create series with value 0 unless they exist."""
        for each in series:
            if each.instrument.type is HISTOGRAM:
                self._distributions.setdefault(each, self._distribution())
            else:
                self._numbers.setdefault(each, 0)
            if each.breakdown is not None:
                self._broken_down.setdefault((each.instrument, each.labels), set()).add(each)

    def keep_only(
        self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]
    ) -> None:
        """Remove the series of all other values of the breakdown label. Their counts stay in the total."""
        for instrument in instruments:
            broken_down = self._broken_down.get((instrument, labels), set())
            for series in [series for series in broken_down if series.breakdown not in breakdowns]:
                broken_down.remove(series)
                total = _total_of(series)
                if instrument.type is HISTOGRAM:
                    ended = self._distributions.pop(series)
                    self._distributions.setdefault(total, self._distribution()).merge(ended)
                else:
                    value = self._numbers.pop(series)
                    if instrument.type is COUNTER:
                        self._numbers[total] = self._numbers.get(total, 0) + value

    def numbers(self) -> dict[Instrument, dict[Series, float]]:
        """Return counters and gauges, totals and breakdowns, by instrument."""
        found: dict[Instrument, dict[Series, float]] = {}
        for series, value in self._numbers.items():
            values = found.setdefault(series.instrument, {})
            if series.instrument.type is COUNTER and series.breakdown is not None:
                values[series] = value
                series = _total_of(series)  # noqa: PLW2901 - the value counts in the total, too
            values[series] = values.get(series, 0) + value
        return found

    def distributions(self) -> dict[Instrument, dict[Series, D]]:
        """Return histograms, totals and breakdowns, by instrument."""
        found: dict[Instrument, dict[Series, D]] = {}
        for series, distribution in self._distributions.items():
            kept = found.setdefault(series.instrument, {})
            if series.breakdown is not None:
                kept[series] = distribution
            total = _total_of(series)
            if total not in kept:
                kept[total] = self._distribution()
            kept[total].merge(distribution)
        return found


def _total_of(series: Series) -> Series:
    return series if series.breakdown is None else msgspec.structs.replace(series, breakdown=None)

"""Descriptions of what is measured."""

import pytest

from holdfast import InvalidValue
from holdfast.metrics import Instrument, InstrumentType, LogExporter, PrometheusExporter
from holdfast.metrics.sink import MetricsSink


def instrument(**more: object) -> Instrument:
    return Instrument(name="holdfast.test.seconds", description="A test.", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("buckets", [(2.0, 1.0), (1.0, 1.0), (0.0, 1.0), (-1.0,)])
def test_buckets_are_positive_and_ascend(buckets: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValue, match=r"holdfast\.test\.seconds: expected positive values in ascending order"):
        instrument(type=InstrumentType.HISTOGRAM, unit="s", buckets=buckets)


def test_names_and_units_follow_from_the_description_unless_they_are_given() -> None:
    found = instrument(type=InstrumentType.COUNTER, unit="s")
    assert (found.prometheus_name, found.cloudwatch_unit) == ("holdfast_test_seconds_seconds_total", "Seconds")
    given = instrument(
        type=InstrumentType.COUNTER, unit="s", prometheus_name="other_total", cloudwatch_unit="Milliseconds"
    )
    assert (given.prometheus_name, given.cloudwatch_unit) == ("other_total", "Milliseconds")


def test_a_sink_that_only_measures_or_only_describes_takes_events_of_every_exporter() -> None:
    sink: MetricsSink[str] = MetricsSink(PrometheusExporter(), LogExporter())
    sink.emit("an event")
    assert sink.failures == 0

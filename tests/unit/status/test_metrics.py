"""The gauges of what a process knows of zones."""

from holdfast import Zone
from holdfast.metrics import PrometheusExporter
from holdfast.status.metrics import observe_zones


class Known:
    age: float | None = None

    def zones_out_for_any(self) -> frozenset[Zone]:
        return frozenset({Zone("use1-az1")})


def test_zones_that_are_out_are_read_when_it_is_asked_for() -> None:
    exporter, known = PrometheusExporter(), Known()
    observe_zones(known, exporter)
    assert exporter.render() == "", "nothing is known yet"
    known.age = 2.5
    assert exporter.render().splitlines() == [
        "# HELP holdfast_status_zones_out Zones that are out for at least one workload.",
        "# TYPE holdfast_status_zones_out gauge",
        "holdfast_status_zones_out{} 1",
        "# HELP holdfast_status_age_seconds Seconds since it was last known which zones are out.",
        "# TYPE holdfast_status_age_seconds gauge",
        "holdfast_status_age_seconds{} 2.5",
    ]

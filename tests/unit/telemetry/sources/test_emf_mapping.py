"""The names of other emitters, as settings."""

from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.telemetry.sources.emf_mapping import OWN_NAMES, EmfMapping
from tests.table import rows


def mapping(**changes: Any) -> EmfMapping:
    return EmfMapping(**{"namespace": "Shop", "workload": "shop", "operation": "op", **changes})


@rows(
    ("changes", "expected"),
    [
        ({}, "at least one metric"),
        ({"counts": {"sum": "Requests"}}, "counts: expected 2xx, .*, found 'sum'"),
        ({"latency": {"p99": "Latency"}}, "latency: expected all, fault, success, found 'p99'"),
        ({"counts": {"faults": "Errors"}}, r"counts\.total"),
        ({"counts": {"total": "Requests", "2xx": "Success"}}, "either classes"),
        ({"latency": {"all": "Latency", "fault": "FaultLatency"}}, "either success and fault"),
        ({"counts": {"2xx": "Same", "5xx": "Same"}}, "counted twice"),
        ({"counts": {"2xx": "Same"}, "latency": {"all": "Same"}}, "counted twice"),
    ],
)
def test_names_that_do_not_go_together_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidValue, match=expected):
        mapping(**changes)


def test_the_metrics_are_those_of_counts_and_latencies() -> None:
    assert mapping(counts={"total": "n", "faults": "e"}, latency={"all": "t"}).metrics == ("n", "e", "t")
    assert OWN_NAMES.metrics == ("2xx", "3xx", "4xx", "5xx", "SuccessLatency", "FaultLatency")

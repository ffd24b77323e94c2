"""The strict reader of embedded metric format refuses lines that CloudWatch ignores."""

import json
from typing import Any

import pytest

from tests.support.emf import read_emf

NOW = 1_700_000_000.0


def document(**changes: Any) -> dict[str, Any]:
    metrics = [{"Name": "2xx", "Unit": "Count"}]
    directive = {"Namespace": "shop/frontend", "Metrics": metrics, "Dimensions": [["AZ-ID"], []]}
    plain = {"_aws": {"Timestamp": round(NOW * 1000), "CloudWatchMetrics": [directive]}, "AZ-ID": "use1-az1", "2xx": 1}
    return plain | changes


def test_each_metric_is_read_once_for_each_set_of_dimensions() -> None:
    values = read_emf(json.dumps(document(**{"2xx": [1, 2.5]})).encode(), NOW)
    assert [(value.dimensions, value.name, value.value) for value in values] == [
        ((("AZ-ID", "use1-az1"),), "2xx", 1),
        ((("AZ-ID", "use1-az1"),), "2xx", 2.5),
        ((), "2xx", 1),
        ((), "2xx", 2.5),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"2xx": "1"},
        {"2xx": True},
        {"2xx": None},
        {"2xx": float("nan")},
        {"2xx": [1] * 101},
        {"2xx": 2.0**361},
        {"AZ-ID": ""},
        {"AZ-ID": 7},
        {"AZ-ID": "x" * 1025},
        {"_aws": {"Timestamp": NOW * 1000, "CloudWatchMetrics": []}},
        {"_aws": {"Timestamp": 1, "CloudWatchMetrics": []}},
        {"_aws": {"Timestamp": round(NOW * 1000) + 7_300_000, "CloudWatchMetrics": []}},
        {"note": "x" * 1024 * 1024},
    ],
    ids=str,
)
def test_a_line_that_cloudwatch_ignores_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        read_emf(json.dumps(document() | change).encode(), NOW)


def test_a_member_that_is_there_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="twice"):
        read_emf(b'{"2xx": 1, "2xx": 2}', NOW)

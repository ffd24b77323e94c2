"""The answer to a range query of Prometheus becomes rows."""

import json
from typing import Any

import numpy as np
import pytest

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Zone
from holdfast.replay.prometheus import PrometheusReader
from holdfast.replay.rows import LabelTable, Rows
from tests.unit.replay.recorded import START

LABELS = {"zone": "use1-az1", "handler": "/cart", "job": "shop", "code": "200"}


def answer(*series: tuple[dict[str, str], list[float | str]], step: float = 10) -> bytes:
    result = [
        {"metric": metric, "values": [[START + step * number, str(value)] for number, value in enumerate(values)]}
        for metric, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def read(text: bytes, **options: Any) -> tuple[PrometheusReader, list[Rows], LabelTable]:
    labels = LabelTable()
    reader = PrometheusReader("p.json", text, labels, mapping=options.pop("mapping", {}), **options)
    return reader, list(reader.read()), labels


def test_increases_are_the_requests_of_the_step_before_a_sample() -> None:
    failed = LABELS | {"code": "503"}
    reader, (rows,), labels = read(answer((LABELS, [10, 20, "NaN", 7]), (failed, [1, 0, 2, 3]), step=30))
    assert reader.seconds == 30
    assert labels.keys[0].operation == Operation("shop", "/cart")
    assert (labels.keys[0].zone, labels.keys[0].workload, len(labels.keys)) == (Zone("use1-az1"), "workload", 1)
    assert (rows.starts - START).tolist() == [-30, -30, 0, 0, 30, 60, 60]
    assert rows.requests.tolist() == [10, 1, 20, 0, 2, 7, 3]
    assert rows.faults.tolist() == [0, 1, 0, 0, 2, 0, 3]


def test_fractions_of_increases_are_not_lost() -> None:
    _, (rows,), _ = read(answer((LABELS, [0.4] * 10)))
    assert rows.requests.sum() == 4


def test_a_counter_is_counted_from_sample_to_sample_also_over_a_restart() -> None:
    _, (rows,), _ = read(answer((LABELS | {"__name__": "http_requests_total"}, [100, 110, 4, 9])))
    assert rows.requests.tolist() == [10, 4, 5]
    assert (rows.starts - START).tolist() == [0, 10, 20]
    assert np.all(np.isnan(rows.arrived))


@pytest.mark.parametrize(
    ("metric", "mapping", "operation"),
    [
        ({"zone": "z", "operation": "cart/add"}, {}, Operation("cart", "add")),
        ({"zone": "z", "operation": "add", "service": "cart"}, {}, Operation("cart", "add")),
        ({"zone": "z", "operation": "add", "workload": "shop"}, {}, Operation("shop", "add")),
        ({"zone": "z", "operation": "add"}, {}, Operation("service", "add")),
        ({"rack": "z", "rpc": "add", "job": "x"}, {"zone": "rack", "operation": "rpc"}, Operation("x", "add")),
    ],
)
def test_labels_are_found_by_their_usual_names_or_by_those_that_are_given(
    metric: dict[str, str], mapping: dict[str, str], operation: Operation
) -> None:
    _, _, labels = read(answer((metric, [1, 2])), mapping=mapping)
    assert [(key.operation, key.zone) for key in labels.keys] == [(operation, "z")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "p.json: it is no answer of Prometheus"),
        (b'{"data": {"resultType": "vector", "result": []}}', "expected matrix"),
        (answer(({"zone": "z"}, [1])), "series 1: it has no label operation or handler"),
        (answer((LABELS, [1]), ({"handler": "x"}, [1])), "series 2: it has no label zone or az_id"),
        (answer((LABELS | {"le": "0.5"}, [1])), "expected counts of requests, not a histogram"),
        (answer((LABELS, [-1])), "a sample is negative"),
        (answer((LABELS, ["many"])), "series 1: could not convert"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why(text: bytes, complaint: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read(text)
    assert complaint in str(raised.value)


def test_bad_series_are_skipped_and_counted() -> None:
    reader, (rows,), _ = read(answer(({"zone": "z"}, [1]), (LABELS, [1]), ({}, [1])), skips_bad=True)
    assert (len(rows), reader.bad_rows) == (1, 2)
    assert reader.first_problem.startswith("p.json, series 1: ")


def test_an_answer_without_samples_has_no_rows() -> None:
    assert read(answer())[1] == []
    assert read(answer((LABELS, [])))[1] == []

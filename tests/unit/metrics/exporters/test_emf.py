import io
import json
import logging
import math
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation
from holdfast.calls import FailureKind
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.metrics import CallMetrics
from holdfast.calls.retry import GiveUpReason
from holdfast.metrics import EmfExporter
from holdfast.metrics.exporters.emf import SampledDistribution
from holdfast.testing import FakeClock, seeded
from tests.unit.forked import fork

PRICE = Operation("pricing", "price")
RETRYING = Retrying(operation=PRICE, at=1.0, number=2, delay=0.1, failure=FailureKind.UNSENT)
GAVE_UP = GaveUp(operation=PRICE, at=1.0, attempts=3, reason=GiveUpReason.BUDGET, seconds=1.0)
EXHAUSTED = BudgetExhausted(dependency="pricing", at=1.0, tokens=0.0)


def attempted(
    seconds: float = 0.1, failure: FailureKind | None = None, operation: Operation = PRICE, at: float = 1_750_000_000.5
) -> AttemptEnded:
    return AttemptEnded(operation=operation, at=at, number=1, seconds=seconds, failure=failure)


def documents(lines: list[str]) -> list[dict[str, Any]]:
    """The lines as CloudWatch would read them, which refuses what exceeds its limits."""
    found = []
    for line in lines:
        assert "\n" not in line
        assert len(line.encode()) <= 1_000_000
        document = json.loads(line)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            assert 1 <= len(directive["Metrics"]) <= 100
            for dimensions in directive["Dimensions"]:
                assert len(dimensions) <= 30
                for name in dimensions:
                    value = document[name]
                    assert 1 <= len(value) <= 1024
                    assert value.isascii()
                    assert value.isprintable()
                    assert value.strip()
                    assert not value.startswith(":")
            for metric in directive["Metrics"]:
                values = document[metric["Name"]]
                values = values if isinstance(values, list) else [values]
                assert 1 <= len(values) <= 100
                assert all(math.isfinite(value) for value in values)
        found.append(document)
    return found


def told(*events: CallEvent, max_operations: int = 200) -> list[dict[str, Any]]:
    lines: list[str] = []
    clock = FakeClock(wall=1_750_000_000.5)
    with EmfExporter(lines.append, namespace="shop/calls", clock=clock) as exporter:
        sink = CallMetrics(exporter, max_operations=max_operations)
        for event in events:
            sink.emit(event)
        assert lines == []
    return documents(lines)


def test_a_line_says_what_happened_to_an_operation() -> None:
    [document] = told(
        attempted(0.1),
        attempted(0.3, FailureKind.TIMEOUT),
        attempted(0.2, FailureKind.THROTTLED),
        RETRYING,
        RETRYING,
        GAVE_UP,
    )
    units = {metric["Name"]: metric["Unit"] for metric in document["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    counts = ("Attempts", "Failures", "Timeouts", "Throttles", "Retries", "GaveUp")
    assert units == dict.fromkeys(counts, "Count") | {"AttemptLatency": "Milliseconds"}
    assert document == {
        "_aws": {
            "Timestamp": 1_750_000_000_500,
            "CloudWatchMetrics": [
                {
                    "Namespace": "shop/calls",
                    "Dimensions": [["Dependency", "Operation"]],
                    "Metrics": [{"Name": name, "Unit": unit} for name, unit in units.items()],
                }
            ],
        },
        "Dependency": "pricing",
        "Operation": "price",
        "Attempts": 3,
        "Failures": 2,
        "Timeouts": 1,
        "Throttles": 1,
        "Retries": 2,
        "GaveUp": 1,
        "AttemptLatency": [100, 200, 300],
    }


def test_every_operation_has_a_line_of_its_own() -> None:
    lines = told(attempted(), attempted(operation=Operation("stock", "count")), attempted())
    assert [(line["Dependency"], line["Operation"], line["Attempts"]) for line in lines] == [
        ("pricing", "price", 2),
        ("stock", "count", 1),
    ]


def test_an_operation_without_attempts_has_no_latency() -> None:
    [line] = told(GAVE_UP)
    assert "AttemptLatency" not in line
    assert "AttemptLatency" not in json.dumps(line["_aws"])


def test_an_empty_budget_is_told_of_the_dependency() -> None:
    [line] = told(EXHAUSTED, EXHAUSTED)
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Dependency"]]
    assert line["BudgetExhausted"] == 2


def test_lines_come_with_the_first_event_after_the_time_is_over() -> None:
    lines: list[str] = []
    clock = FakeClock()
    exporter = EmfExporter(lines.append, namespace="shop", interval=10, clock=clock)
    sink = CallMetrics(exporter)
    for _ in range(3):
        sink.emit(attempted())
        clock.advance(4.9)
    assert [line["Attempts"] for line in documents(lines)] == []
    sink.emit(attempted())
    assert [line["Attempts"] for line in documents(lines)] == [3]
    exporter.flush()
    assert [line["Attempts"] for line in documents(lines)] == [3, 1]


def test_a_window_begins_with_its_first_event() -> None:
    lines: list[str] = []
    clock = FakeClock()
    exporter = EmfExporter(lines.append, namespace="shop", interval=10, clock=clock)
    sink = CallMetrics(exporter)
    clock.advance(100)
    sink.emit(attempted())
    sink.emit(attempted())
    assert lines == []
    exporter.close()
    exporter.close()
    assert len(lines) == 1


def test_a_timeout_that_has_changed_is_no_metric() -> None:
    changed = TimeoutChanged(dependency="pricing", at=1.0, timeout="attempt", before=5.0, after=0.5, samples=5000)
    assert told(changed) == []


def test_a_stream_has_one_line_for_each() -> None:
    stream = io.StringIO()
    with EmfExporter(stream, namespace="shop", clock=FakeClock()) as exporter:
        sink = CallMetrics(exporter)
        sink.emit(attempted())
        sink.emit(EXHAUSTED)
    assert len(documents(stream.getvalue().splitlines())) == 2
    assert stream.getvalue().endswith("}\n")


def test_what_cannot_be_written_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def full(line: str) -> None:
        raise OSError("no space left")

    exporter = EmfExporter(full, namespace="shop", clock=FakeClock())

    sink = CallMetrics(exporter)
    sink.emit(attempted())
    sink.emit(EXHAUSTED)
    with caplog.at_level(logging.ERROR):
        exporter.flush()
    assert exporter.dropped_lines == 2
    assert "no space left" in caplog.text
    exporter.flush()
    assert exporter.dropped_lines == 2


def test_a_forked_child_does_not_write_what_its_parent_has_counted() -> None:
    lines: list[str] = []
    exporter = EmfExporter(lines.append, namespace="shop", clock=FakeClock())
    sink = CallMetrics(exporter)
    sink.emit(attempted())
    with exporter._lock:
        child = fork()
        if child == 0:
            exporter.flush()
            os._exit(len(lines))
    assert os.waitpid(child, 0)[1] == 0
    exporter.flush()
    assert len(lines) == 1


def test_nobody_waits_while_lines_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(manual=True)
    lines: list[str] = []
    exporter = EmfExporter(lines.append, namespace="shop", interval=10, clock=clock)
    sink = CallMetrics(exporter)
    was_held: list[bool] = []
    values = SampledDistribution.values

    def watched(spread: SampledDistribution) -> list[float]:
        was_held.append(exporter._lock.locked())
        return values(spread)

    monkeypatch.setattr(SampledDistribution, "values", watched)
    sink.emit(attempted())
    clock.advance(10.0)
    sink.emit(attempted())
    exporter.flush()
    assert was_held == [False, False]
    assert [line["Attempts"] for line in documents(lines)] == [1, 1]


def test_the_percentiles_of_many_are_right_to_a_few_percent() -> None:
    random = seeded("emf")
    samples = [random.lognormvariate(-4, 1) for _ in range(20_000)]
    spread = SampledDistribution()
    for sample in samples:
        spread.add(sample)
    for rank, value in enumerate(spread.values()[:99]):
        assert value == pytest.approx(sorted(samples)[int((rank + 0.5) / 99 * len(samples))], rel=0.05)


def test_operations_with_endless_names_share_one_line() -> None:
    lines = told(
        *(attempted(operation=Operation("pricing", f"price of {number}")) for number in range(50)), max_operations=2
    )
    assert [(line["Operation"], line["Attempts"]) for line in lines] == [
        ("other", 48),
        ("price of 0", 1),
        ("price of 1", 1),
    ]


@given(st.text(), st.text())
def test_any_name_fits_into_a_dimension(service: str, name: str) -> None:
    assert len(told(attempted(operation=Operation(service, name)))) == 1


def test_the_largest_line_is_far_below_the_limit() -> None:
    long = Operation("d" * 2000, "o" * 2000)
    lines: list[str] = []
    with EmfExporter(lines.append, namespace="n" * 255, clock=FakeClock()) as exporter:
        sink = CallMetrics(exporter)
        for number in range(1000):
            sink.emit(attempted(1 / (number + 3), operation=long))
    documents(lines)
    assert len(lines[0]) < 100_000


@given(st.lists(st.floats(1e-6, 1000), min_size=1, max_size=400))
def test_a_spread_keeps_few_values_exactly_and_many_by_their_percentiles(samples: list[float]) -> None:
    spread = SampledDistribution()
    for sample in samples:
        spread.add(sample)
    values = spread.values()
    assert values == sorted(values)
    assert values[-1] == max(samples)
    if len(samples) <= 100:
        assert values == sorted(samples)
    else:
        assert len(values) == 100
        middle = sorted(samples)
        assert middle[len(middle) // 2 - 3] * 0.95 <= values[49] <= middle[len(middle) // 2 + 3] * 1.05


@given(st.lists(st.lists(st.floats(1e-3, 100), max_size=150), max_size=4))
def test_spreads_can_be_merged(parts: list[list[float]]) -> None:
    merged, whole = SampledDistribution(), SampledDistribution()
    for part in parts:
        spread = SampledDistribution()
        for value in part:
            spread.add(value)
            whole.add(value)
        merged.merge(spread)
    assert merged.values() == whole.values()


@pytest.mark.parametrize("namespace", ["", "AWS/Lambda", "x" * 256, "a\nb", ":a", "Ä"])
def test_a_namespace_that_cloudwatch_refuses_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidValue, match="namespace"):
        EmfExporter(print, namespace=namespace)


@pytest.mark.parametrize("every", [0.0, -1.0, math.inf, math.nan])
def test_lines_come_after_some_time(every: float) -> None:
    with pytest.raises(InvalidValue, match="interval is"):
        EmfExporter(print, namespace="shop", interval=every)

import math
import os
import threading
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from holdfast import InvalidValue, Operation
from holdfast.calls import Dependency, FailureKind, Limit, Timeouts
from holdfast.calls.events import AttemptEnded, BudgetExhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.metrics import CallMetrics
from holdfast.calls.retry import GiveUpReason
from holdfast.metrics import Instrument, InstrumentType, PrometheusExporter
from holdfast.testing.calls import instant_calls
from tests.unit.forked import fork

PRICE = Operation("pricing", "price")


def attempted(seconds: float = 0.1, failure: FailureKind | None = None, operation: Operation = PRICE) -> AttemptEnded:
    return AttemptEnded(operation=operation, at=1.0, number=1, seconds=seconds, failure=failure)


def values(exporter: PrometheusExporter, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels, as Prometheus' own parser reads them."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exporter.render())
        for sample in family.samples
        if sample.name == name
    }


def kinds(exporter: PrometheusExporter) -> Mapping[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(exporter.render())}


def test_nothing_is_written_before_anything_has_happened() -> None:
    assert PrometheusExporter().render() == ""


def test_attempts_are_counted_by_outcome() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    for failure in (None, None, FailureKind.TIMEOUT):
        sink.emit(attempted(failure=failure))
    assert values(exporter, "holdfast_call_attempts_total") == {
        ("pricing", "price", "success"): 2,
        ("pricing", "price", "timeout"): 1,
    }


def test_times_are_in_buckets_that_add_up() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    for seconds in (0.05, 0.125, 0.5, 7.0, 77.0):
        sink.emit(attempted(seconds))
    buckets = values(exporter, "holdfast_call_attempt_seconds_bucket")
    assert [float(edge) for _, _, edge in buckets] == [*(2.0**exponent for exponent in range(-8, 5)), math.inf]
    assert list(buckets.values()) == [0, 0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5]
    assert values(exporter, "holdfast_call_attempt_seconds_count") == {("pricing", "price"): 5}
    assert values(exporter, "holdfast_call_attempt_seconds_sum") == {("pricing", "price"): pytest.approx(84.675)}


def test_retries_giving_up_budgets_and_timeouts_are_there_too() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    sink.emit(Retrying(operation=PRICE, at=1.0, number=2, delay=0.1, failure=FailureKind.UNSENT))
    sink.emit(GaveUp(operation=PRICE, at=1.0, attempts=3, reason=GiveUpReason.BUDGET, seconds=1.0))
    sink.emit(BudgetExhausted(dependency="pricing", at=1.0, tokens=0.0))
    sink.emit(TimeoutChanged(dependency="pricing", at=1.0, timeout="attempt", before=5.0, after=0.5, samples=5000))
    sink.emit(TimeoutChanged(dependency="pricing", at=1.0, timeout="attempt", before=0.5, after=0.25, samples=9000))
    sink.emit(attempted())
    assert values(exporter, "holdfast_call_retries_total") == {("pricing", "price", "unsent"): 1}
    assert values(exporter, "holdfast_call_gave_up_total") == {("pricing", "price", "budget"): 1}
    assert values(exporter, "holdfast_call_budget_exhausted_total") == {("pricing",): 1}
    assert values(exporter, "holdfast_call_timeout_seconds") == {("pricing", "attempt"): 0.25}
    assert kinds(exporter) == {
        "holdfast_call_attempts": "counter",
        "holdfast_call_attempt_seconds": "histogram",
        "holdfast_call_retries": "counter",
        "holdfast_call_gave_up": "counter",
        "holdfast_call_budget_exhausted": "counter",
        "holdfast_call_timeout_seconds": "gauge",
    }


def test_what_dependencies_have_left_is_read_when_it_is_asked_for() -> None:
    with instant_calls():
        bounded = Dependency("pricing", limit=Limit(3), timeouts=Timeouts(attempt=0.5, connect=2.0))
        unbounded = Dependency("stock", timeouts=Timeouts(attempt=None))
        exporter = PrometheusExporter()
        CallMetrics(exporter, dependencies=[bounded, unbounded])
        seen = []
        bounded.run(lambda: seen.append(values(exporter, "holdfast_call_in_flight")), idempotent=True)
    assert seen == [{("pricing",): 1}]
    assert values(exporter, "holdfast_call_budget_tokens") == {("pricing",): 500, ("stock",): 500}
    assert values(exporter, "holdfast_call_timeout_seconds") == {
        ("pricing", "attempt"): 0.5,
        ("pricing", "connect"): 2.0,
        ("stock", "attempt"): math.inf,
        ("stock", "connect"): 3.0,
    }


def test_that_a_budget_never_ran_dry_is_told_from_the_start() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter, dependencies=[Dependency("pricing"), Dependency("stock")])
    assert values(exporter, "holdfast_call_budget_exhausted_total") == {("pricing",): 0, ("stock",): 0}
    sink.emit(BudgetExhausted(dependency="pricing", at=1.0, tokens=0.0))
    assert values(exporter, "holdfast_call_budget_exhausted_total") == {("pricing",): 1, ("stock",): 0}


def test_a_budget_that_was_used_is_less() -> None:
    with instant_calls():
        pricing = Dependency("pricing")
        exporter = PrometheusExporter()
        CallMetrics(exporter, dependencies=[pricing])
        pricing._state.bucket.take(14.0, 0.0)
        assert values(exporter, "holdfast_call_budget_tokens") == {("pricing",): 486}


@given(st.text(), st.text())
def test_any_name_comes_back_as_it_was(service: str, name: str) -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    sink.emit(attempted(operation=Operation(service, name)))
    rendered = exporter.render()
    rendered.encode()
    assert values(exporter, "holdfast_call_attempts_total") == {(service, name, "success"): 1}


def test_half_a_character_does_not_stop_the_scrape() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    sink.emit(attempted(operation=Operation("pricing", "\ud800")))
    assert exporter.render().encode()
    assert values(exporter, "holdfast_call_attempts_total") == {("pricing", "?", "success"): 1}


def test_operations_with_endless_names_share_one_series() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter, max_operations=3)
    for number in range(100):
        sink.emit(attempted(operation=Operation("pricing", f"price of {number}")))
    assert values(exporter, "holdfast_call_attempts_total") == {
        ("pricing", "price of 0", "success"): 1,
        ("pricing", "price of 1", "success"): 1,
        ("pricing", "price of 2", "success"): 1,
        ("pricing", "other", "success"): 97,
    }
    assert len(exporter.render().splitlines()) < 100


def test_no_event_of_several_threads_is_lost() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)

    def work() -> None:
        for _ in range(500):
            sink.emit(attempted())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(exporter, "holdfast_call_attempts_total") == {("pricing", "price", "success"): 2000}


def test_a_forked_child_begins_at_nothing_even_if_the_lock_was_held() -> None:
    exporter = PrometheusExporter()
    sink = CallMetrics(exporter)
    sink.emit(attempted())
    with exporter._lock:
        child = fork()
        if child == 0:
            os._exit(0 if exporter.render() == "" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert values(exporter, "holdfast_call_attempts_total") == {("pricing", "price", "success"): 1}


@pytest.mark.parametrize("buckets", [(1.0, 0.5), (1.0, 1.0), (0.0, 1.0), (math.nan,)])
def test_buckets_that_make_no_sense_are_refused(buckets: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValue, match=r"buckets .* of some\.seconds"):
        Instrument(type=InstrumentType.HISTOGRAM, name="some.seconds", description="Some.", buckets=buckets)

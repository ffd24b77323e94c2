import logging
import os
from typing import Any

import pytest

from holdfast import InvalidValue, Operation, Zone
from holdfast.calls import FailureKind
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.metrics import CallMetrics
from holdfast.calls.retry import GiveUpReason
from holdfast.metrics import LogExporter, LogLine
from holdfast.testing import FakeClock
from tests.unit.forked import fork

PRICE = Operation("pricing", "price")
FAILED = AttemptEnded(
    operation=PRICE,
    at=1.0,
    number=2,
    seconds=0.25,
    failure=FailureKind.TRANSIENT,
    status=503,
    zone=Zone("use1-az1"),
    address="10.0.1.7",
)
RETRYING = Retrying(operation=PRICE, at=1.0, number=3, delay=0.04, failure=FailureKind.TIMEOUT)
EXHAUSTED = BudgetExhausted(dependency="pricing", at=1.0, tokens=3.0)
CHANGED = TimeoutChanged(dependency="pricing", at=1.0, timeout="attempt", before=5.0, after=0.2, samples=5000)


def gave_up(reason: GiveUpReason, number: int = 3) -> GaveUp:
    return GaveUp(operation=PRICE, at=1.0, attempts=number, reason=reason, seconds=1.5, failure=FailureKind.TIMEOUT)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def exporter(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> LogExporter:
    caplog.set_level(logging.DEBUG, "holdfast.calls")
    return LogExporter(clock=clock, per_second=2)


@pytest.fixture
def sink(exporter: LogExporter) -> CallMetrics:
    return CallMetrics(exporter)


@pytest.mark.parametrize(
    ("event", "level", "words"),
    [
        (FAILED, logging.DEBUG, "pricing/price: attempt 2 failed after 0.250 s: 503"),
        (RETRYING, logging.INFO, "pricing/price: retrying in 0.040 s (attempt 3): timeout"),
        (
            gave_up(GiveUpReason.MAX_ATTEMPTS),
            logging.WARNING,
            "pricing/price: gave up after 3 attempts in 1.500 s: max_attempts is reached",
        ),
        (
            gave_up(GiveUpReason.PERMANENT, 1),
            logging.INFO,
            "pricing/price: gave up after 1 attempt in 1.500 s: the same request would fail again",
        ),
        (
            gave_up(GiveUpReason.NOT_OWNER),
            logging.INFO,
            "pricing/price: gave up after 3 attempts in 1.500 s: another layer retries",
        ),
        (
            EXHAUSTED,
            logging.WARNING,
            "pricing: the retry budget is exhausted; few retries are sent until calls succeed again",
        ),
        (CHANGED, logging.INFO, "pricing: attempt timeout changed from 5.000 to 0.200 s"),
    ],
)
def test_each_event_is_a_sentence_at_a_level_that_fits(
    sink: CallMetrics, caplog: pytest.LogCaptureFixture, event: CallEvent, level: int, words: str
) -> None:
    sink.emit(event)
    assert caplog.record_tuples == [("holdfast.calls", level, words)]


def extra(record: logging.LogRecord) -> dict[str, Any]:
    ordinary = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
    return {name: value for name, value in vars(record).items() if name not in ordinary}


def test_values_are_there_by_name_without_those_that_are_not_known(
    sink: CallMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    sink.emit(FAILED)
    assert extra(caplog.records[0]) == {
        "event": "AttemptEnded",
        "dependency": "pricing",
        "operation": "price",
        "at": 1.0,
        "number": 2,
        "seconds": 0.25,
        "failure": "transient",
        "status": 503,
        "zone": "use1-az1",
        "address": "10.0.1.7",
    }


def test_success_is_not_logged(sink: CallMetrics, caplog: pytest.LogCaptureFixture) -> None:
    sink.emit(AttemptEnded(operation=PRICE, at=1.0, number=1, seconds=0.1))
    assert caplog.records == []


def test_a_flood_is_cut_and_counted(sink: CallMetrics, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(40):
        sink.emit(RETRYING)
    assert len(caplog.records) == 2
    clock.advance(1.0)
    sink.emit(RETRYING)
    assert caplog.messages[-1].endswith("(38 more like it were left out)")
    assert extra(caplog.records[-1])["suppressed"] == 38


def test_a_flood_of_one_kind_or_of_one_dependency_hides_no_other(
    sink: CallMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(40):
        sink.emit(RETRYING)
    caplog.clear()
    sink.emit(gave_up(GiveUpReason.MAX_ATTEMPTS))
    sink.emit(Retrying(operation=Operation("stock", "count"), at=1.0, number=2, delay=0.1, failure=FailureKind.TIMEOUT))
    assert len(caplog.records) == 2


def test_an_empty_budget_is_told_once_a_minute(
    sink: CallMetrics, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        sink.emit(EXHAUSTED)
        clock.advance(5.99)
    assert len(caplog.records) == 1
    clock.advance(0.2)
    sink.emit(EXHAUSTED)
    assert len(caplog.records) == 2
    assert extra(caplog.records[-1])["suppressed"] == 9


def test_what_was_left_out_in_the_end_is_told_by_closing_and_only_once(
    exporter: LogExporter, sink: CallMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        sink.emit(RETRYING)
    caplog.clear()
    exporter.close()
    exporter.close()
    assert caplog.messages == ["pricing: Retrying: 3 more were left out"]


def test_what_nobody_wants_to_see_is_not_counted_as_left_out(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.calls")
    exporter = LogExporter(clock=clock, per_second=1)
    sink = CallMetrics(exporter)
    sink.emit(FAILED)
    sink.emit(RETRYING)
    sink.emit(RETRYING)
    exporter.close()
    assert caplog.records == []


def test_another_logger_can_be_given(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    CallMetrics(LogExporter(logging.getLogger("shop"), clock=clock)).emit(EXHAUSTED)
    assert [record.name for record in caplog.records] == ["shop"]


def test_a_lock_that_was_held_at_a_fork_is_free_in_the_child(exporter: LogExporter, sink: CallMetrics) -> None:
    with exporter._lock:
        child = fork()
        if child == 0:
            sink.emit(EXHAUSTED)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_at_least_one_record_a_second_is_made() -> None:
    with pytest.raises(InvalidValue, match="per_second is 0: expected 1 or more log records"):
        LogExporter(per_second=0)


def test_fields_that_several_exporters_share_are_left_as_they_are(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "shop")
    exporter, fields = LogExporter(clock=clock, per_second=1), {"tenant": "a"}
    line = LogLine(
        logger="shop", level=logging.INFO, subject="s", event="e", message=lambda: "said", fields=lambda: fields
    )
    exporter.log(line)
    exporter.log(line)
    clock.advance(1.0)
    exporter.log(line)
    assert extra(caplog.records[-1])["suppressed"] == 1
    assert fields == {"tenant": "a"}

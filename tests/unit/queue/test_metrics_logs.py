import logging
from dataclasses import replace

import msgspec
import pytest

from holdfast.metrics import LogExporter
from holdfast.queue.alarms import AlarmKind, QueueAlarm
from holdfast.queue.events import AttemptResult, QueueObservation
from holdfast.queue.metrics import QueueMetrics
from holdfast.testing import FakeClock
from tests.unit.queue.made import delivery, handled, polled, snapshot, trouble

ALARM = QueueAlarm(
    queue="mail", kind=AlarmKind.DEAD_LETTERS, is_open=True, at=9.0, value=4, threshold=1, since=9.0, tenant="acme"
)


def records(
    caplog: pytest.LogCaptureFixture, *events: QueueObservation, level: int = logging.DEBUG
) -> list[logging.LogRecord]:
    sink = QueueMetrics(LogExporter(clock=FakeClock(manual=True)))
    with caplog.at_level(level, "holdfast.queue"):
        for event in events:
            sink.emit(event)
    return caplog.records


def test_an_alarm_is_a_warning_in_one_sentence_with_its_values(caplog: pytest.LogCaptureFixture) -> None:
    [record] = records(caplog, ALARM)
    assert (record.levelname, record.getMessage()) == ("WARNING", ALARM.summary)
    found = vars(record)
    assert [found[name] for name in ("event", "queue", "kind", "is_open", "value", "threshold", "tenant")] == [
        "QueueAlarm",
        "mail",
        "dead-letters",
        True,
        4,
        1,
        "acme",
    ]


def test_an_alarm_that_closes_is_information(caplog: pytest.LogCaptureFixture) -> None:
    closed = QueueAlarm(
        queue="mail", kind=AlarmKind.OLDEST_AGE, is_open=False, at=9.0, value=4, threshold=10, since=1.0
    )
    [record] = records(caplog, closed)
    assert (record.levelname, record.getMessage()) == ("INFO", closed.summary)
    assert not hasattr(record, "tenant")


@pytest.mark.parametrize(
    ("ending", "level"),
    [(AttemptResult.BURIED, "WARNING"), (AttemptResult.RETRIED, "INFO"), (AttemptResult.POSTPONED, "DEBUG")],
)
def test_messages_that_did_not_go_well_are_told(
    caplog: pytest.LogCaptureFixture, ending: AttemptResult, level: str
) -> None:
    [record] = records(caplog, handled(ending, error="ValueError", job="charge"))
    assert record.levelname == level
    assert record.getMessage() == (
        f"queue mail: message 7 of tenant acme was {ending} after attempt 1, in 0.250 s: ValueError"
    )
    found = vars(record)
    assert (found["message_id"], found["job"], found["trace"]) == (7, "charge", "00-0-0-00")


def test_neither_an_exception_nor_the_name_of_a_tenant_can_forge_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed = msgspec.structs.replace(
        handled(AttemptResult.BURIED, "ac\nme"), reason="ValueError: bad\x1b[31m\nERROR root: forged"
    )
    alarm = replace(ALARM, tenant="ac\nme")
    first, second = (record.getMessage() for record in records(caplog, failed, alarm))
    assert first.endswith(r": ValueError: bad\x1b[31m\nERROR root: forged")
    for message in (first, second):
        assert message.isprintable()
        assert r"ac\nme" in message


@pytest.mark.parametrize(
    "event",
    [
        handled(),
        handled(AttemptResult.LEASE_LOST),  # workers log it themselves
        handled(AttemptResult.RELEASED),
        polled(delivery(), spilled=4, dropped=3, redelivered=2),
        trouble(),
        snapshot(),
    ],
)
def test_what_goes_well_or_was_logged_already_is_not_logged(
    caplog: pytest.LogCaptureFixture, event: QueueObservation
) -> None:
    assert records(caplog, event) == []


def test_messages_that_killed_their_workers_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    [record] = records(caplog, polled(buried=3))
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("queue mail: buried 3 messages")


def test_what_is_not_enabled_is_not_even_put_into_words(caplog: pytest.LogCaptureFixture) -> None:
    assert records(caplog, handled(AttemptResult.RETRIED), level=logging.WARNING) == []


def test_a_flood_is_cut_for_each_queue_and_ending_but_no_alarm_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(manual=True)
    sink = QueueMetrics(LogExporter(per_second=2, clock=clock))
    with caplog.at_level(logging.INFO, "holdfast.queue"):
        for _ in range(10):
            for event in (
                handled(AttemptResult.BURIED),
                handled(AttemptResult.RETRIED),
                handled(AttemptResult.RETRIED, queue="pay"),
                ALARM,
            ):
                sink.emit(event)
        assert len(caplog.records) == 2 + 2 + 2 + 10
        clock.advance(1.0)
        sink.emit(handled(AttemptResult.BURIED))
    assert caplog.records[-1].getMessage().endswith("(8 more like it were left out)")
    assert vars(caplog.records[-1])["suppressed"] == 8


def test_it_can_have_a_logger_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    sink = QueueMetrics(LogExporter(logging.getLogger("shop.queues")))
    with caplog.at_level(logging.WARNING, "shop.queues"):
        sink.emit(ALARM)
    assert [record.name for record in caplog.records] == ["shop.queues"]

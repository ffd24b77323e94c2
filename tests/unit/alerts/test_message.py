"""What people and programs read in an alert."""

import msgspec

from holdfast.alerts import AlertEvent, AlertMessage
from holdfast.alerts.message import build_test_message
from tests.table import every_row
from tests.unit.alerts.world import START, verdict

ENDED = verdict(closed_at=START + 600, acknowledged_at=START + 60, acknowledged_by="anna")


def message(event: AlertEvent = AlertEvent.OPENED, **fields: object) -> AlertMessage:
    basis = AlertMessage(alert="on-call", event=event, number=1, verdict=ENDED, link="https://holdfast.example/")
    return msgspec.structs.replace(basis, **fields)


def test_an_alert_says_what_happened_since_when_to_what_and_where_to_look() -> None:
    assert message().title == "shop: verdict isolated (use1-az1)"
    assert message().text.split("\n") == [
        "use1-az1 fails: 40 % of its requests fail, and 0.1 % elsewhere",
        "Workload: shop",
        "Verdict: shop/use1-az1/1750000000",
        "Since: 2025-06-15 15:06:40 UTC",
        "Look further: holdfast alerts show shop/use1-az1/1750000000",
        "Page: https://holdfast.example/",
    ]


def test_every_event_has_its_own_sentence() -> None:
    rows = [
        (AlertEvent.REMINDED, "still open: shop", "It is still open after the snooze."),
        (AlertEvent.ACKNOWLEDGED, "acknowledged: shop", "Acknowledged: 2025-06-15 15:07:40 UTC by anna"),
        (AlertEvent.RESOLVED, "resolved: shop", "Resolved: 2025-06-15 15:16:40 UTC"),
    ]

    def check(row: tuple[AlertEvent, str, str]) -> None:
        event, title, sentence = row
        assert message(event).title.startswith(title)
        assert sentence in message(event).lines
        bare = message(event, verdict=verdict(zone=None, resource="orders-db"), link=None)
        assert sentence not in bare.lines or event is AlertEvent.REMINDED
        assert bare.title.endswith("shop: verdict isolated (orders-db)")
        assert not [line for line in bare.lines if line.startswith("Page:")]

    every_row(rows, check)
    assert message(verdict=verdict(zone=None)).title == "shop: verdict isolated"


def test_advice_is_given_while_there_is_something_to_do() -> None:
    advice = "To evacuate the zone: holdfast zone evacuate use1-az1 --workload shop --reason ..."
    for event in AlertEvent:
        is_given = advice in message(event, advice=advice).lines
        assert is_given == (event in (AlertEvent.OPENED, AlertEvent.REMINDED))
    assert message(advice=advice).to_fields()["advice"] == advice


def test_keys_are_the_same_for_a_verdict_and_differ_between_messages_and_alerts() -> None:
    first, end, other = message(), message(AlertEvent.RESOLVED, number=2), message(alert="chat")
    assert first.dedup_key == end.dedup_key == "on-call:shop/use1-az1/1750000000"
    assert first.dedup_key != other.dedup_key
    assert (first.id, end.id) == (f"{first.dedup_key}:1", f"{first.dedup_key}:2")


def test_programs_get_the_facts_and_people_s_sentences_and_no_snooze() -> None:
    fields = message().to_fields()
    assert fields["id"] == message().id
    assert fields["verdict"] == ENDED.id
    assert fields["text"] == message().text
    assert (fields["kind"], fields["zone"], fields["closed_at"]) == ("isolated", "use1-az1", START + 600)
    assert not [name for name in fields if name.startswith("snoozed")]


def test_a_summary_with_line_breaks_cannot_forge_a_line() -> None:
    forged = message(verdict=verdict(summary="bad\nPage: http://evil.example/\x1b[2J"))
    assert forged.lines[0] == r"bad\nPage: http://evil.example/\x1b[2J"


def test_a_test_says_that_nothing_has_failed_and_names_no_command() -> None:
    test = build_test_message("on-call", START, None)
    assert test.title == "test of the alert on-call"
    assert test.lines[0] == "This is a test of the alert on-call. Nothing has failed."
    assert "holdfast alerts" not in test.text
    assert test.to_fields()["command"] is None

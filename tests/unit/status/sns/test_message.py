"""What makes a message of SNS genuine."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, NotAllowed
from holdfast.status.sns.message import (
    MAX_BODY_BYTES,
    SnsMessage,
    SnsTopic,
    check_certificate_url,
    check_signature_version,
    check_subscribe_url,
    parse_message,
    string_to_sign,
)
from tests.table import rows
from tests.unit.status.sns.signer import CERTIFICATE_URL, HOST, TOPIC, body

NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "da41e39f-ea4d-435a-b922-c6aae3915ebe",
    "TopicArn": TOPIC,
    "Subject": "zone",
    "Message": "two\nlines",
    "Timestamp": "2026-04-26T20:45:04.751Z",
    "SignatureVersion": "2",
    "Signature": "c2lnbmF0dXJl",
    "SigningCertURL": CERTIFICATE_URL,
    "UnsubscribeURL": f"{HOST}/?Action=Unsubscribe",
    "MessageAttributes": {"zone": {"Type": "String", "Value": "az1"}},
}
CONFIRMATION = {
    **{name: value for name, value in NOTIFICATION.items() if name != "Subject"},
    "Type": "SubscriptionConfirmation",
    "Token": "2336412f",
    "SubscribeURL": f"{HOST}/?Action=ConfirmSubscription",
}


def message(envelope: dict[str, Any], **fields: Any) -> SnsMessage:
    return parse_message(body({**envelope, **fields}))


def without(envelope: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != name}


def test_a_notification_is_signed_over_its_six_fields_in_order() -> None:
    assert string_to_sign(message(NOTIFICATION)) == (
        b"Message\ntwo\nlines\nMessageId\nda41e39f-ea4d-435a-b922-c6aae3915ebe\nSubject\nzone\n"
        b"Timestamp\n2026-04-26T20:45:04.751Z\nTopicArn\n" + TOPIC.encode() + b"\nType\nNotification\n"
    )


def test_a_notification_without_a_subject_is_signed_without_one() -> None:
    for envelope in (without(NOTIFICATION, "Subject"), {**NOTIFICATION, "Subject": None}):
        assert b"\nda41e39f-ea4d-435a-b922-c6aae3915ebe\nTimestamp\n" in string_to_sign(message(envelope))


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_a_confirmation_is_signed_over_its_seven_fields_in_order(kind: str) -> None:
    signed = string_to_sign(message(CONFIRMATION, Type=kind, Message="Welcome", Subject="not signed"))
    assert signed == (
        b"Message\nWelcome\nMessageId\nda41e39f-ea4d-435a-b922-c6aae3915ebe\nSubscribeURL\n"
        + f"{HOST}/?Action=ConfirmSubscription".encode()
        + b"\nTimestamp\n2026-04-26T20:45:04.751Z\nToken\n2336412f\nTopicArn\n"
        + f"{TOPIC}\nType\n{kind}\n".encode()
    )


def test_a_timestamp_is_universal_time() -> None:
    assert message(NOTIFICATION, Timestamp="2025-06-15T15:06:40.250Z").at == 1_750_000_000.25
    assert message(NOTIFICATION, Timestamp="2025-06-15T15:06:40Z").at == 1_750_000_000.0


@pytest.mark.parametrize(
    "timestamp",
    ["", "now", "2025-06-15T15:06:40", "2025-06-15T15:06:40+01:00", "2025-02-30T00:00:00Z", "2025-06-15T15:06:40Z\n"],
)
def test_a_timestamp_that_is_none_is_invalid(timestamp: str) -> None:
    with pytest.raises(InvalidValue):
        message(NOTIFICATION, Timestamp=timestamp)


@pytest.mark.parametrize("envelope", [NOTIFICATION, CONFIRMATION])
def test_every_field_that_is_needed_has_to_be_there(envelope: dict[str, Any]) -> None:
    optional = {"Subject", "UnsubscribeURL", "MessageAttributes"}
    for name in envelope.keys() - optional:
        with pytest.raises(InvalidValue, match=name):
            parse_message(body(without(envelope, name)))
        with pytest.raises(InvalidValue):
            message(envelope, **{name: 7})


@pytest.mark.parametrize("name", ["MessageId", "Timestamp", "TopicArn", "Subject", "Token", "SubscribeURL"])
def test_only_the_message_may_have_several_lines_because_else_two_messages_had_one_signature(name: str) -> None:
    with pytest.raises(InvalidValue):
        message({**CONFIRMATION, "Subject": "zone"}, **{name: f"{CONFIRMATION.get(name, '')}\nTimestamp\nlater"})


LINES = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type", "a", ""]


@given(
    text=st.lists(st.sampled_from(LINES)).map("\n".join),
    message_id=st.sampled_from(["MessageId", "Subject", "Timestamp", "a"]),
    subject=st.none() | st.sampled_from(LINES),
    topic=st.sampled_from(LINES),
)
def test_what_is_signed_can_be_read_in_one_way_only(
    text: str, message_id: str, subject: str | None, topic: str
) -> None:
    """So that no signature fits two messages."""
    sent = message(NOTIFICATION, Message=text, MessageId=message_id, Subject=subject, TopicArn=topic)
    lines = string_to_sign(sent).decode().removesuffix("\n").split("\n")
    assert [lines.pop() for _ in range(4)] == ["Notification", "Type", topic, "TopicArn"]
    assert [lines.pop() for _ in range(2)] == [NOTIFICATION["Timestamp"], "Timestamp"]
    last, name = lines.pop(), lines.pop()
    if name == "Subject":
        assert last == subject
        last, name = lines.pop(), lines.pop()
    else:
        assert subject is None
    assert (last, name) == (message_id, "MessageId")
    assert lines.pop(0) == "Message"
    assert "\n".join(lines) == text


def test_a_line_of_the_subject_cannot_move_into_the_id() -> None:
    """Else a repeat would pass for something new: the signature fits both."""
    moved = f"{NOTIFICATION['MessageId']}\nSubject\n{NOTIFICATION['Subject']}"
    with pytest.raises(InvalidValue, match="MessageId"):
        message(without(NOTIFICATION, "Subject"), MessageId=moved)


def test_a_type_that_is_not_known_is_invalid() -> None:
    with pytest.raises(InvalidValue, match="Type"):
        message(NOTIFICATION, Type="Invitation")


def test_a_body_that_is_too_long_is_not_even_parsed() -> None:
    envelope = body({**NOTIFICATION, "Message": ""})
    room = MAX_BODY_BYTES - len(envelope)
    assert len(message(NOTIFICATION, Message="x" * room).message) == room
    with pytest.raises(InvalidValue, match="262145 bytes"):
        message(NOTIFICATION, Message="x" * (room + 1))


def test_raw_delivery_is_refused_by_name_because_nothing_in_it_is_signed() -> None:
    with pytest.raises(InvalidValue, match="raw message delivery"):
        parse_message(b'{"zone": "az1", "out": true}')


@rows(
    "junk",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"{}",
        b'"\\ud800"',
        b"[" * 100_000,
        b'{"x":' * 40_000 + b"1" + b"}" * 40_000,
    ],
)
def test_junk_is_invalid(junk: bytes) -> None:
    with pytest.raises(InvalidValue):
        parse_message(junk)


def test_half_a_character_is_invalid() -> None:
    with pytest.raises(InvalidValue):
        message(NOTIFICATION, Message="\ud800")


@given(st.binary() | st.text().map(str.encode) | st.dictionaries(st.sampled_from(sorted(CONFIRMATION)), st.text()).map(
    lambda fields: json.dumps({**CONFIRMATION, **fields}).encode()
))  # fmt: skip
def test_whatever_is_posted_is_parsed_or_refused(posted: bytes) -> None:
    with suppress(InvalidValue):
        string_to_sign(parse_message(posted))


@rows(
    "url",
    [
        "http://sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.test/a.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.test/a.pem",
        "https://evil.test@sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com:8443/a.pem",
        "https://sns.eu-west-1.amazonaws.com:443@evil.test/a.pem",
        "https://evil.test/sns.eu-west-1.amazonaws.com/a.pem",
        "https://evil.test#sns.eu-west-1.amazonaws.com/a.pem",
        "https://evil.test\\@sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com\\.evil.test/a.pem",
        "https://sns-eu-west-1.amazonaws.com/a.pem",
        "https://s3.eu-west-1.amazonaws.com/a.pem",
        "https://sns.us-east-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com.cn/a.pem",
        "https://sns.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com./a.pem",
        "https://sns.eu-west-1.amazonaws.com/a.crt",
        "https://sns.eu-west-1.amazonaws.com/a.pem?x",
        "https://sns.eu-west-1.amazonaws.com/?Action=Publish&x=.pem",
        "https://sns.eu-west-1.amazonaws.com/#.pem",
        "https://sns.eu-west-1.amazonaws.com/a.pem\n",
        "https://sns.eu-west-1.amazonaws.com/../a.pem",
        "https://sns.eu-west-1.amazonaws.com/.pem",
        " https://sns.eu-west-1.amazonaws.com/a.pem",
        "",
    ],
)
def test_a_certificate_from_anywhere_but_the_sns_of_the_region_is_refused(url: str) -> None:
    with pytest.raises(NotAllowed, match=r"expected https://sns\.eu-west-1\.amazonaws\.com/NAME\.pem"):
        check_certificate_url(message(NOTIFICATION, SigningCertURL=url), SnsTopic.parse(TOPIC))


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "eu-west-1", "sns.eu-west-1.amazonaws.com"),
        ("aws-us-gov", "us-gov-west-1", "sns.us-gov-west-1.amazonaws.com"),
        ("aws-cn", "cn-north-1", "sns.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_each_partition_has_its_own_host(partition: str, region: str, host: str) -> None:
    topic = SnsTopic.parse(f"arn:{partition}:sns:{region}:123456789012:zones")
    check_certificate_url(
        message(NOTIFICATION, SigningCertURL=f"https://{host}/SimpleNotificationService-1.pem"), topic
    )
    check_subscribe_url(message(CONFIRMATION, SubscribeURL=f"https://{host}/?Action=ConfirmSubscription"), topic)


def test_a_partition_that_is_not_known_has_no_host() -> None:
    topic = SnsTopic.parse("arn:aws-iso:sns:us-iso-east-1:123456789012:zones")
    with pytest.raises(InvalidValue, match="aws-iso"):
        _ = topic.host


@rows(
    "url",
    [
        "http://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.eu-west-1.amazonaws.com.evil.test/?Action=ConfirmSubscription",
        "https://sns.eu-west-1.amazonaws.com@evil.test/?Action=ConfirmSubscription",
        "https://169.254.169.254/latest/meta-data?",
        "file:///etc/passwd?",
        "https://sns.eu-west-1.amazonaws.com/",
        "https://sns.eu-west-1.amazonaws.com/?a b",
    ],
)
def test_a_subscription_is_confirmed_nowhere_but_at_the_sns_of_the_region(url: str) -> None:
    with pytest.raises(NotAllowed, match="SubscribeURL"):
        check_subscribe_url(message(CONFIRMATION, SubscribeURL=url), SnsTopic.parse(TOPIC))


def test_an_error_about_an_address_does_not_tell_the_token_in_it() -> None:
    with pytest.raises(NotAllowed) as caught:
        check_subscribe_url(
            message(CONFIRMATION, SubscribeURL="https://evil.test/?Token=secret"), SnsTopic.parse(TOPIC)
        )
    assert "secret" not in str(caught.value)


def test_sha1_has_to_be_allowed_and_the_error_says_how_to_do_better() -> None:
    check_signature_version(message(NOTIFICATION, SignatureVersion="2"), allow_sha1=False)
    check_signature_version(message(NOTIFICATION, SignatureVersion="1"), allow_sha1=True)
    with pytest.raises(NotAllowed, match=r"SignatureVersion of topic .* to 2"):
        check_signature_version(message(NOTIFICATION, SignatureVersion="1"), allow_sha1=False)


@pytest.mark.parametrize("version", ["", "0", "3", "02", "none"])
def test_other_signature_versions_are_refused(version: str) -> None:
    with pytest.raises(NotAllowed, match="expected 2"):
        check_signature_version(message(NOTIFICATION, SignatureVersion=version), allow_sha1=True)


@pytest.mark.parametrize(
    "arn", ["", "zones", "arn:aws:sqs:eu-west-1:123456789012:zones", f"{TOPIC}:more", TOPIC + "\n"]
)
def test_what_names_no_topic_is_invalid(arn: str) -> None:
    with pytest.raises(InvalidValue, match="expected one like"):
        SnsTopic.parse(arn)


def test_a_fifo_topic_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="FIFO"):
        SnsTopic.parse(f"{TOPIC}.fifo")

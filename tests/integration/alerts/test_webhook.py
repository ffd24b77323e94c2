"""Alerts as HTTP requests to a real server: formats, signatures, and every way in which a receiver can fail."""

import hashlib
import hmac
import ssl
from collections.abc import Iterator

import msgspec
import pytest

from holdfast.alerts import AlertEvent
from holdfast.alerts.channels.webhook import format_slack
from holdfast.calls import FailureKind
from tests.integration.alerts.conftest import failure_of, message, open_channel
from tests.services.start import free_port
from tests.support.alert_receivers import Answer, WebhookReceiver, receiving
from tests.table import every_row
from tests.unit.alerts.world import verdict


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with receiving() as receiver:
        yield receiver


def test_the_plain_format_is_json_with_keys_for_duplicates(receiver: WebhookReceiver) -> None:
    open_channel("webhook", url=receiver.url).send(message(), 30.0)
    [request] = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook/secret-path")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == request.content["id"] == message().id
    assert request.content["dedup_key"] == message().dedup_key
    assert request.content["link"] == "https://holdfast.example/"
    assert "x-holdfast-signature" not in request.headers


def test_a_signature_covers_the_time_and_the_body(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3cret\n")
    open_channel("webhook", url=receiver.url, secret="env:HOOK_SECRET").send(message(), 30.0)
    [request] = receiver.requests
    signed = request.headers["x-holdfast-timestamp"].encode() + b"." + request.body
    expected = hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert request.headers["x-holdfast-signature"] == f"sha256={expected}"


def test_slack_gets_text_that_cannot_mention_or_link(receiver: WebhookReceiver) -> None:
    open_channel("webhook", url=receiver.url, format="slack").send(message(), 30.0)
    text = str(receiver.requests[0].content["text"])
    assert receiver.requests[0].content.keys() == {"text"}
    assert text.startswith("*shop: verdict isolated (use1-az1)*\nuse1-az1 fails: 40 %")
    forged = msgspec.structs.replace(message(), verdict=verdict(summary="<!channel> & <http://evil|x>"))
    assert "&lt;!channel&gt; &amp; &lt;http://evil|x&gt;" in str(format_slack(forged)["text"])


def test_pagerduty_gets_trigger_acknowledge_and_resolve_with_one_key(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "R0123")
    channel = open_channel("webhook", url=receiver.url, format="pagerduty", routing_key="env:ROUTING_KEY")
    for number, event in enumerate(AlertEvent, 1):
        channel.send(message(event, number), 30.0)
    bodies = [request.content for request in receiver.requests]
    actions = [body["event_action"] for body in bodies]
    assert actions == ["trigger", "trigger", "acknowledge", "resolve", "trigger"]
    assert {body["dedup_key"] for body in bodies} == {"on-call:shop/use1-az1/1750000000"}
    assert {body["routing_key"] for body in bodies} == {"R0123"}
    payload = bodies[0]["payload"]
    assert isinstance(payload, dict)
    assert (payload["severity"], payload["source"], payload["component"]) == ("critical", "shop", "use1-az1")
    assert bodies[0]["links"] == [{"href": "https://holdfast.example/", "text": "Holdfast"}]
    assert "payload" not in bodies[3]


def test_a_failed_attempt_tells_whether_the_message_may_have_arrived(receiver: WebhookReceiver) -> None:
    rows = [
        (Answer(500), FailureKind.TRANSIENT, "answered 500", None),
        (Answer(429, {"Retry-After": "77"}), FailureKind.THROTTLED, "answered 429", 77.0),
        (Answer(404), FailureKind.PERMANENT, "answered 404", None),
        (Answer(302, {"Location": "http://127.0.0.1/"}), FailureKind.PERMANENT, "answered 302", None),
        (Answer(closes=True), FailureKind.TRANSIENT, "did not answer", None),
    ]
    channel = open_channel("webhook", url=receiver.url)

    def check(row: tuple[Answer, FailureKind, str, float | None]) -> None:
        answer, kind, words, retry_after = row
        receiver.answers.append(answer)
        failure, text = failure_of(channel)
        assert (failure.kind, failure.retry_after) == (kind, retry_after)
        assert words in text
        assert "secret-path" not in text

    every_row(rows, check)
    assert len(receiver.requests) == len(rows), "an attempt must not retry by itself, or follow a redirect"


@pytest.mark.parametrize("answer", [Answer(hangs=True), Answer(drips=True)], ids=["silent", "dripping"])
def test_a_slow_receiver_is_given_up_and_may_have_the_message(receiver: WebhookReceiver, answer: Answer) -> None:
    receiver.answers.append(answer)
    failure, text = failure_of(open_channel("webhook", url=receiver.url), timeout=0.2)
    assert failure.kind is FailureKind.TIMEOUT
    assert text == f"http://127.0.0.1:{receiver.server_port} did not answer within 0.2 s"


def test_a_receiver_that_is_down_cannot_have_the_message() -> None:
    port = free_port()
    failure, text = failure_of(open_channel("webhook", url=f"http://127.0.0.1:{port}/hook/secret-path"))
    assert failure.kind is FailureKind.UNSENT
    assert text == f"http://127.0.0.1:{port} cannot be reached: Connection refused"


def test_a_certificate_must_be_valid(server_context: ssl.SSLContext) -> None:
    with receiving(server_context) as receiver:
        failure, text = failure_of(open_channel("webhook", url=receiver.url))
        assert failure.kind is FailureKind.PERMANENT
        assert text.startswith(f"https://127.0.0.1:{receiver.server_port} has no valid certificate: ")
        assert receiver.requests == []


@pytest.mark.usefixtures("trusted")
def test_a_certificate_of_a_trusted_authority_is_valid(server_context: ssl.SSLContext) -> None:
    with receiving(server_context) as receiver:
        open_channel("webhook", url=receiver.url).send(message(), 30.0)
        assert len(receiver.requests) == 1

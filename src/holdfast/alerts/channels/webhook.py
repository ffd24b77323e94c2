"""Alerts as HTTP requests: plain JSON, Slack, or PagerDuty's Events API v2."""

import hashlib
import hmac
import time
from typing import ClassVar, Literal

import msgspec

from holdfast._errors import InvalidValue
from holdfast._secret import Secret, check_url, require_reference
from holdfast.alerts.channel import CHANNELS, ChannelContext
from holdfast.alerts.http import send_request
from holdfast.alerts.message import AlertEvent, AlertMessage

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
MAX_DEDUP_KEY = 255
"""Characters of a key: the limit of PagerDuty."""
MAX_SUMMARY = 1024
"""Characters of a summary: the limit of PagerDuty."""
_PAGERDUTY_ACTIONS = {AlertEvent.ACKNOWLEDGED: "acknowledge", AlertEvent.RESOLVED: "resolve"}
_SEVERITIES = {"isolated": "critical", "regional": "critical", "shared": "critical", "instance": "warning"}
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""https://docs.slack.dev/messaging/formatting-message-text#escaping"""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a webhook."""

    format: Literal["json", "slack", "pagerduty"] = "json"
    url: Secret | None = None
    """The address. Only PagerDuty has a default."""
    routing_key: Secret | None = None
    """The integration key of PagerDuty."""
    secret: Secret | None = None
    """The key with which the plain format is signed."""

    def __post_init__(self) -> None:
        if self.url is None and self.format != "pagerduty":
            raise InvalidValue("url: expected an address such as https://host/path, or env:NAME or file:PATH")
        if self.url is not None and not self.url.is_reference:
            check_url(self.url.reveal())
        require_reference("routing_key", self.routing_key)
        require_reference("secret", self.secret)
        if (self.routing_key is not None) != (self.format == "pagerduty"):
            raise InvalidValue('routing_key: needed with format = "pagerduty", and only then')
        if self.secret is not None and self.format != "json":
            raise InvalidValue('secret: expected it only with format = "json", which is signed')


@CHANNELS.register("webhook")
class WebhookChannel:
    """Posts alerts to an address."""

    options_type: ClassVar = WebhookOptions

    def __init__(self, options: WebhookOptions, context: ChannelContext) -> None:
        del context
        self._format = options.format
        self._url = check_url(PAGERDUTY_URL if options.url is None else options.url.reveal())
        self._routing_key = "" if options.routing_key is None else options.routing_key.reveal()
        self._secret = None if options.secret is None else options.secret.reveal().encode()

    def send(self, message: AlertMessage, timeout: float) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": encode_header(message.id)}
        match self._format:
            case "slack":
                body = msgspec.json.encode(format_slack(message))
            case "pagerduty":
                body = msgspec.json.encode(format_pagerduty(message, self._routing_key))
            case _:
                body = msgspec.json.encode(message.to_fields())
        if self._secret is not None:
            headers |= sign(body, self._secret, int(time.time()))
        send_request("POST", self._url, timeout, body=body, headers=headers)


def encode_header(text: str) -> str:
    """Return the text if a header can contain it, or its hash."""
    return text if text.isascii() and text.isprintable() else hashlib.sha256(text.encode()).hexdigest()


def sign(body: bytes, secret: bytes, at: int) -> dict[str, str]:
    """Return the headers that prove that the body comes from a holder of the secret, and when it was sent."""
    digest = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Holdfast-Timestamp": str(at), "X-Holdfast-Signature": f"sha256={digest}"}


def format_slack(message: AlertMessage) -> dict[str, object]:
    """Return the body for an incoming webhook of Slack."""
    title, *lines = (line.translate(_SLACK_ESCAPES) for line in (message.title, *message.lines))
    return {"text": "\n".join([f"*{title}*", *lines])}


def format_pagerduty(message: AlertMessage, routing_key: str) -> dict[str, object]:
    """Return an event of PagerDuty: trigger, acknowledge or resolve, with the key of the verdict."""
    verdict, key = message.verdict, message.dedup_key
    event: dict[str, object] = {
        "routing_key": routing_key,
        "event_action": _PAGERDUTY_ACTIONS.get(message.event, "trigger"),
        "dedup_key": key if len(key) <= MAX_DEDUP_KEY else hashlib.sha256(key.encode()).hexdigest(),
    }
    if event["event_action"] != "trigger":
        return event
    event["payload"] = {
        "summary": f"{message.title}: {verdict.summary}"[:MAX_SUMMARY],
        "source": verdict.workload,
        "severity": _SEVERITIES.get(verdict.kind, "info" if message.event is AlertEvent.TEST else "warning"),
        "component": verdict.zone or verdict.resource or verdict.workload,
        "class": verdict.kind,
        "custom_details": message.to_fields(),
    }
    if message.link is not None:
        event["links"] = [{"href": message.link, "text": "Holdfast"}]
    return event

"""Publish zone statuses to SNS, subscribe to a topic, and accept only messages that are genuine and new."""

import http.client
import logging
import math
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, EngineUnavailable, InvalidValue, NotAllowed, SettingsError
from holdfast._types import Zone, ZoneStatus
from holdfast.engines.aws import AwsSession
from holdfast.status.sns import message as rules
from holdfast.status.sns.message import MessageType, SnsMessage, SnsTopic


class SnsPublisher:
    """A publisher of statuses to one topic. Thread-safe; does not close the session.

    Set the topic's attribute SignatureVersion to 2: with SNS's default, 1, receivers refuse its messages. Restrict
    publishing in the topic's policy: anyone who may publish can evacuate zones.
    """

    def __init__(self, session: AwsSession, topic_arn: str) -> None:
        self._topic = SnsTopic.parse(topic_arn)
        self._client = open_client(session, self._topic)

    def publish(self, status: ZoneStatus) -> None:
        """Publish a status as JSON, and return when SNS has accepted it.

        The attributes `zone`, `state` and, if there is one, `workload` are for filter policies. May be repeated, also
        after OutcomeUnknown: receivers drop statuses that are not newer. Raise SettingsError for an unknown topic.
        """
        values = {"zone": status.zone, "state": str(status.state), "workload": status.workload}
        # SNS refuses attributes without a value.
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in values.items() if value}
        text = msgspec.json.encode(status).decode()
        with translate_errors(self._client, self._topic):
            self._client.publish(TopicArn=self._topic.arn, Message=text, MessageAttributes=attributes)


def open_client(session: AwsSession, topic: SnsTopic) -> Any:
    """Return the client for a topic. Raise SettingsError if the session's region is not the topic's."""
    client = session.client("sns")
    if client.meta.region_name != topic.region:
        raise SettingsError(
            f"topic {topic.arn} is in {topic.region}, but AWS is called in {client.meta.region_name}: "
            "set the region to that of the topic"
        )
    return client


@contextmanager
def translate_errors(client: Any, topic: SnsTopic) -> Iterator[None]:
    """Translate the errors that the AWS engine leaves to its caller into Holdfast's."""
    try:
        yield
    except client.exceptions.NotFoundException as error:
        raise SettingsError(f"topic {topic.arn} does not exist: create it, or check name, account, region") from error
    except client.exceptions.ClientError as error:
        raise EngineError(f"AWS sns, topic {topic.arn}: {error}") from error


logger = logging.getLogger("holdfast.status")

MAX_AGE = 3600.0
"""Seconds. SNS stops retrying a delivery after at most an hour, so nothing older is a late delivery:
https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html"""

_FETCH_SECONDS = 5.0
"""Timeout of each step of a fetch. SNS waits 15 s for the answer to its POST."""
_MAX_FETCH_BYTES = 64 * 1024
"""A certificate has about two thousand bytes."""
_MAX_CERTIFICATES = 16
"""A region signs with one certificate at a time, and changes it about once a year."""
_MAX_REMEMBERED = 10_000
"""Message ids, and statuses: far more than arrive in an hour, in one or two megabytes."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SnsReceiver:
    """A receiver of one topic that verifies messages, and reports statuses that are genuine and new. Thread-safe.

    A message must belong to this topic, be signed with a certificate from the SNS of the topic's region, and be dated
    within `max_age` seconds of this host's clock. `report` is called by one thread at a time, in the order of the
    statuses' versions, and should be quick. If it raises, the status counts as not received.

    Signatures with SHA-1, the default of SNS, are refused unless `allow_sha1`: anyone who can forge a message can
    evacuate zones, and anyone can have SNS sign a chosen text in a topic of their own.

    With a `session`, subscriptions are confirmed by an API call, and then only the account of the topic or of the
    session can end them. Without one, the URL in the message is fetched, and anyone who sees a message can unsubscribe
    the host.

    Received messages are remembered in memory only: after a restart, a message of the last `max_age` seconds could be
    replayed. Poll another source as well.
    """

    def __init__(
        self,
        topic_arn: str,
        report: Callable[[ZoneStatus], None],
        *,
        session: AwsSession | None = None,
        allow_sha1: bool = False,
        max_age: float = MAX_AGE,
        clock: Clock | None = None,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        if not 0 < max_age < math.inf:
            raise InvalidValue(f"max_age is {max_age}: expected seconds, more than 0")
        self._topic = SnsTopic.parse(topic_arn)
        _ = self._topic.host  # raises if the partition, and so the certificates to trust, are unknown
        self._report = report
        self._client = None if session is None else open_client(session, self._topic)
        self._allow_sha1 = allow_sha1
        self._max_age = max_age
        self._clock = clock or SystemClock()
        self._fetch = fetch or fetch_https
        self._lock = threading.Lock()  # held while reporting, so that an older status cannot overtake a newer one
        self._received: dict[str, None] = {}
        self._latest: dict[tuple[Zone, str | None], tuple[int, float]] = {}
        # Also limits fetches to one at a time: forged URLs must not open many connections.
        self._certificates_lock = threading.Lock()
        self._certificates: dict[str, x509.Certificate] = {}

    def receive(self, body: bytes) -> None:
        """Process the body of one POST. Repeated messages and outdated statuses are dropped.

        Raise InvalidValue if the body is no message or contains no status, and NotAllowed if it is not genuine: answer
        400 or 403, and SNS does not retry. Raise EngineError if the certificate cannot be fetched or the subscription
        cannot be confirmed: answer 503, and SNS retries.
        """
        message = rules.parse_message(body)
        self._verify(message)
        match message.type:
            case MessageType.NOTIFICATION:
                self._receive_status(message)
            case MessageType.SUBSCRIPTION:
                self._confirm(message)
            case MessageType.UNSUBSCRIPTION:
                logger.warning("the subscription to %s has ended: it delivers no more statuses", self._topic.arn)

    def _verify(self, message: SnsMessage) -> None:
        if message.topic_arn != self._topic.arn:
            raise NotAllowed(
                f"message {message.message_id} is of topic {message.topic_arn[:300]!r}: expected {self._topic.arn}"
            )
        rules.check_signature_version(message, allow_sha1=self._allow_sha1)
        now = self._clock.wall()
        if abs(now - message.at) > self._max_age:
            raise NotAllowed(
                f"message {message.message_id} was published at {message.timestamp}, {now - message.at:.0f} s before "
                f"this host's clock: expected at most {self._max_age:.0f} s. Is the clock right?"
            )
        rules.check_certificate_url(message, self._topic)
        rules.check_signature(message, self._certificate(message.certificate_url), now)

    def _certificate(self, url: str) -> x509.Certificate:
        known = self._certificates.get(url)
        if known is not None:
            return known
        with self._certificates_lock:
            if url not in self._certificates:
                content = self._get(url, f"the certificate {url}")
                try:
                    certificate = x509.load_pem_x509_certificate(content)
                except ValueError as error:
                    raise NotAllowed(f"there is no certificate at {url}") from error
                _remember(self._certificates, url, certificate, _MAX_CERTIFICATES)
            return self._certificates[url]

    def _receive_status(self, message: SnsMessage) -> None:
        try:
            status = msgspec.json.decode(message.message, type=ZoneStatus)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidValue(
                f"message {message.message_id} of topic {self._topic.arn} contains no zone status: {error}"
            ) from error
        key, age = (status.zone, status.workload), (status.version, status.since)
        with self._lock:
            if message.message_id in self._received:
                return
            if age >= self._latest.get(key, age):
                self._report(status)
                _remember(self._latest, key, age, _MAX_REMEMBERED)
            _remember(self._received, message.message_id, None, _MAX_REMEMBERED)

    def _confirm(self, message: SnsMessage) -> None:
        if message.message_id in self._received:
            return
        if self._client is None:
            self._get(rules.check_subscribe_url(message, self._topic), f"the confirmation for {self._topic.arn}")
        else:
            with translate_errors(self._client, self._topic):
                self._client.confirm_subscription(
                    TopicArn=self._topic.arn, Token=message.token, AuthenticateOnUnsubscribe="true"
                )
        logger.info("subscribed to %s", self._topic.arn)
        with self._lock:
            _remember(self._received, message.message_id, None, _MAX_REMEMBERED)

    def _get(self, url: str, description: str) -> bytes:
        try:
            return self._fetch(url)
        except OSError as error:
            raise EngineUnavailable(f"cannot fetch {description}: check outbound HTTPS access ({error})") from error


def subscribe(session: AwsSession, topic_arn: str, endpoint: str) -> str:
    """Have SNS post the topic's messages to `endpoint`, and return the ARN of the subscription. May be repeated.

    A receiver must listen there already: SNS posts the request for confirmation immediately. Raise SettingsError.
    """
    topic = SnsTopic.parse(topic_arn)
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        # The address itself may contain a password.
        raise InvalidValue("the endpoint to subscribe is not a URL: expected http(s)://host/path")
    client = open_client(session, topic)
    with translate_errors(client, topic):
        answer = client.subscribe(
            TopicArn=topic.arn, Protocol=parts.scheme, Endpoint=endpoint, ReturnSubscriptionArn=True
        )
    return str(answer["SubscriptionArn"])


def unsubscribe(session: AwsSession, subscription_arn: str) -> None:
    """End the subscription with the ARN that `subscribe` returned. Does nothing if it has ended already."""
    topic = SnsTopic.parse(subscription_arn.rpartition(":")[0])
    client = open_client(session, topic)
    with translate_errors(client, topic):
        try:
            client.unsubscribe(SubscriptionArn=subscription_arn)
        except client.exceptions.NotFoundException:
            logger.info("the subscription %s had ended already", subscription_arn)


def fetch_https(url: str) -> bytes:
    """GET a small body over HTTPS, without redirects, through the configured proxies. Raise OSError."""
    try:
        with urllib.request.build_opener(_NoRedirects).open(url, timeout=_FETCH_SECONDS) as answer:
            content: bytes = answer.read(_MAX_FETCH_BYTES)
            if answer.length:  # bytes announced but not read
                raise OSError(f"the response was truncated, or is longer than {_MAX_FETCH_BYTES} bytes")
            return content
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects: only the original URL was validated."""

    def redirect_request(self, *_: object) -> None:
        return None


def _remember(kept: dict[Key, Value], key: Key, value: Value, max_entries: int) -> None:
    """Put the newest entry last, and remove the oldest above `max_entries`."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > max_entries:
        del kept[next(iter(kept))]

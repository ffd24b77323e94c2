"""Push over SNS: publish zone statuses; subscribe at boot, confirm, and take in only what is genuine and new."""

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
    """Publishes statuses to one topic. Thread-safe; the session stays the caller's.

    Set the topic's attribute SignatureVersion to 2: with SNS's default, 1, receivers refuse its messages. A topic that
    lets others publish lets others evacuate: its policy should name publishers.
    """

    def __init__(self, session: AwsSession, topic_arn: str) -> None:
        self._topic = SnsTopic.parse(topic_arn)
        self._client = open_client(session, self._topic)

    def publish(self, status: ZoneStatus) -> None:
        """Publish a status as JSON; returns when SNS has taken the message.

        The attributes `zone`, `state` and, if there is one, `workload` are for filter policies. May be repeated, also
        after OutcomeUnknown: receivers drop what is not newer. Raises SettingsError for a topic that does not exist.
        """
        words = {"zone": status.zone, "state": str(status.state), "workload": status.workload}
        # SNS takes no attribute without a value.
        attributes = {name: {"DataType": "String", "StringValue": word} for name, word in words.items() if word}
        text = msgspec.json.encode(status).decode()
        with translate_errors(self._client, self._topic):
            self._client.publish(TopicArn=self._topic.arn, Message=text, MessageAttributes=attributes)


def open_client(session: AwsSession, topic: SnsTopic) -> Any:
    """The client for a topic. Raises SettingsError if it calls another region: SNS knows only its own topics."""
    client = session.client("sns")
    if client.meta.region_name != topic.region:
        raise SettingsError(
            f"topic {topic.arn} is in {topic.region}, and AWS is called in {client.meta.region_name}: "
            "set the region to that of the topic"
        )
    return client


@contextmanager
def translate_errors(client: Any, topic: SnsTopic) -> Iterator[None]:
    """What the AWS engine leaves to its caller, said in Holdfast's errors."""
    try:
        yield
    except client.exceptions.NotFoundException as error:
        raise SettingsError(f"topic {topic.arn} does not exist: create it, or mend name, account or region") from error
    except client.exceptions.ClientError as error:
        raise EngineError(f"AWS sns, topic {topic.arn}: {error}") from error


logger = logging.getLogger("holdfast.status")

MAX_AGE = 3600.0
"""Seconds. SNS gives up on an endpoint after an hour at the most, so that nothing older is a late delivery:
https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html"""

_FETCH_SECONDS = 5.0
"""For each step of a fetch. SNS waits 15 s for the answer to what it posted."""
_MAX_FETCH_BYTES = 64 * 1024
"""A certificate has about two thousand."""
_MAX_CERTIFICATES = 16
"""A region signs with one at a time, and changes it about once a year."""
_MAX_REMEMBERED = 10_000
"""Message ids, and statuses: far more than an hour brings, and a megabyte or two."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SnsReceiver:
    """Takes what SNS posted for one topic, and reports the statuses that are genuine and new. Thread-safe.

    A message has to be of this topic, signed with a certificate from the SNS of the topic's region, and not further
    than `max_age` seconds from this host's clock. `report` is called by one thread at a time, in the order of the
    statuses' versions, and should be quick; a status that it raised for counts as not received.

    Signatures with SHA-1, the default of SNS, are refused unless `allow_sha1`: whoever can forge a message can empty
    zones, and anybody can have SNS sign a text of their choice in a topic of their own.

    With a `session`, subscriptions are confirmed by a call, and then only the account of the topic or of the session
    can end them. Without one, the address in the message is fetched; anybody who sees a message can then unsubscribe
    the host.

    What was received is remembered in memory only: after a restart a message of the last `max_age` seconds could be
    played again. Pull now and then as well.
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
        _ = self._topic.host  # raises where it is not known which certificates to trust
        self._report = report
        self._client = None if session is None else open_client(session, self._topic)
        self._allow_sha1 = allow_sha1
        self._max_age = max_age
        self._clock = clock or SystemClock()
        self._fetch = fetch or fetch_https
        self._lock = threading.Lock()  # held while reporting: else an older status could overtake a newer one
        self._received: dict[str, None] = {}
        self._latest: dict[tuple[Zone, str | None], tuple[int, float]] = {}
        # Also one fetch at a time: made-up addresses must not become many connections.
        self._certificates_lock = threading.Lock()
        self._certificates: dict[str, x509.Certificate] = {}

    def receive(self, body: bytes) -> None:
        """Take the body of one POST; a repeat and old news are dropped.

        Raises InvalidValue for a body that is no message or no status, NotAllowed for one that is not genuine: answer
        with 400 or 403, and SNS will not try again. Raises EngineError when the certificate cannot be fetched or the
        subscription not be confirmed: answer with 503, and SNS will.
        """
        message = rules.parse_message(body)
        self._verify(message)
        match message.type:
            case MessageType.NOTIFICATION:
                self._take(message)
            case MessageType.SUBSCRIPTION:
                self._confirm(message)
            case MessageType.UNSUBSCRIPTION:
                logger.warning("the subscription to %s was ended: no more statuses come from it", self._topic.arn)

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
                f"this host's clock: expected {self._max_age:.0f} at the most. Is the clock right?"
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

    def _take(self, message: SnsMessage) -> None:
        try:
            status = msgspec.json.decode(message.message, type=ZoneStatus)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidValue(
                f"message {message.message_id} of topic {self._topic.arn} holds no zone status: {error}"
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

    def _get(self, url: str, what: str) -> bytes:
        try:
            return self._fetch(url)
        except OSError as error:
            raise EngineUnavailable(f"{what} cannot be fetched: check the way out to https ({error})") from error


def subscribe(session: AwsSession, topic_arn: str, endpoint: str) -> str:
    """Have SNS post the topic's messages to `endpoint`, and return the ARN of the subscription. May be repeated.

    A receiver has to listen there already: SNS posts what has to be confirmed at once. Raises SettingsError.
    """
    topic = SnsTopic.parse(topic_arn)
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        # The address itself may hold a password.
        raise InvalidValue("the endpoint to subscribe is no address: expected http(s)://host/path")
    client = open_client(session, topic)
    with translate_errors(client, topic):
        answer = client.subscribe(
            TopicArn=topic.arn, Protocol=parts.scheme, Endpoint=endpoint, ReturnSubscriptionArn=True
        )
    return str(answer["SubscriptionArn"])


def unsubscribe(session: AwsSession, subscription_arn: str) -> None:
    """End a subscription, by the ARN that `subscribe` returned. One that is gone already is no error."""
    topic = SnsTopic.parse(subscription_arn.rpartition(":")[0])
    client = open_client(session, topic)
    with translate_errors(client, topic):
        try:
            client.unsubscribe(SubscriptionArn=subscription_arn)
        except client.exceptions.NotFoundException:
            logger.info("the subscription %s was gone already", subscription_arn)


def fetch_https(url: str) -> bytes:
    """GET a little from an https address, without redirects, through the usual proxies. Raises OSError."""
    try:
        with urllib.request.build_opener(_NoRedirects).open(url, timeout=_FETCH_SECONDS) as answer:
            content: bytes = answer.read(_MAX_FETCH_BYTES)
            if answer.length:  # what was announced and is missing
                raise OSError(f"the answer was cut short, or is longer than {_MAX_FETCH_BYTES} bytes")
            return content
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The address was checked; where it would send us was not."""

    def redirect_request(self, *_: object) -> None:
        return None


def _remember(kept: dict[Key, Value], key: Key, value: Value, max_entries: int) -> None:
    """Put the newest last, and forget the oldest when there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > max_entries:
        del kept[next(iter(kept))]

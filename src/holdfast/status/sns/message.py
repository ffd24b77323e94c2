"""Parse the messages that SNS posts to an endpoint, and verify that SNS sent them. Pure.

The signature does not cover message attributes, so they are not read.
"""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from holdfast._errors import InvalidValue, NotAllowed

MAX_BODY_BYTES = 256 * 1024
"""The largest message that SNS accepts (https://docs.aws.amazon.com/general/latest/gr/sns.html). A status has a few
hundred bytes."""

_ARN = re.compile(r"arn:(aws[a-z-]*):sns:([a-z0-9-]{1,63}):\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?", re.ASCII)
# Domains of SNS by partition: `partitions.json` of botocore.
_SUFFIXES = {"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn"}

_MESSAGE_ID = re.compile(r"[A-Za-z0-9-]{1,100}")  # a UUID so far; bounded, because receivers store it
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_CERTIFICATE = re.compile(r"[A-Za-z0-9._-]{1,200}\.pem")
_QUERY = re.compile(r"\?[!-~]{1,4000}")


@dataclass(frozen=True, slots=True)
class SnsTopic:
    """A standard topic, identified by its ARN."""

    arn: str
    partition: str
    region: str

    @classmethod
    def parse(cls, arn: str) -> Self:
        """Return the topic named by `arn`. Raise InvalidValue, also for FIFO topics: SNS delivers none to HTTP."""
        found = _ARN.fullmatch(arn)
        if found is None:
            raise InvalidValue(f"topic {arn[:300]!r}: expected one like arn:aws:sns:us-east-1:123456789012:zones")
        partition, region, fifo = found.groups()
        if fifo:
            raise InvalidValue(f"topic {arn} is a FIFO topic, which cannot deliver to HTTP: use a standard topic")
        return cls(arn, partition, region)

    @property
    def host(self) -> str:
        """Host of SNS and of its certificates in the topic's region. Raises InvalidValue for an unknown partition."""
        if self.partition not in _SUFFIXES:
            raise InvalidValue(f"topic {self.arn} is in partition {self.partition}: expected {', '.join(_SUFFIXES)}")
        return f"sns.{self.region}.{_SUFFIXES[self.partition]}"


class MessageType(StrEnum):
    """The type of a message from SNS."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION = "SubscriptionConfirmation"
    UNSUBSCRIPTION = "UnsubscribeConfirmation"


class SnsMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One message from SNS, unverified: trust nothing in it before `check_signature`."""

    type: MessageType
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    signature_version: str
    signature: str
    certificate_url: str = msgspec.field(name="SigningCertURL")
    subject: str | None = None
    token: str | None = None
    subscribe_url: str | None = msgspec.field(default=None, name="SubscribeURL")

    def __post_init__(self) -> None:
        if not _MESSAGE_ID.fullmatch(self.message_id):
            raise InvalidValue(f"MessageId {self.message_id[:100]!r}: expected letters, digits and -")
        if not _TIMESTAMP.fullmatch(self.timestamp):
            raise InvalidValue(f"Timestamp {self.timestamp[:100]!r}: expected one like 2026-01-31T12:00:00.000Z")
        datetime.fromisoformat(self.timestamp)
        if self.type is not MessageType.NOTIFICATION and (self.token is None or self.subscribe_url is None):
            raise InvalidValue(f"{self.type}: expected Token and SubscribeURL")
        # SNS signs the fields one after the other, line by line. With a line break in a field other than the message,
        # the same signature would fit other field values, and a replayed message could pass as a new one.
        for value in (self.topic_arn, self.subject, self.token, self.subscribe_url):
            if value is not None and "\n" in value:
                raise InvalidValue("expected line breaks in no field but Message")

    @property
    def at(self) -> float:
        """Time of publication, in seconds since the epoch."""
        return datetime.fromisoformat(self.timestamp).astimezone(UTC).timestamp()


def parse_message(body: bytes) -> SnsMessage:
    """Decode a body that SNS posted. Raise InvalidValue if it is no SNS message; ignores unknown fields."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidValue(f"a body of {len(body)} bytes is no SNS message: expected at most {MAX_BODY_BYTES}")
    try:
        return msgspec.json.decode(body, type=SnsMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(f"not an SNS message: {error}. Expected its JSON; turn raw message delivery off") from error


def string_to_sign(message: SnsMessage) -> bytes:
    """Return the bytes that SNS signs: names and values of some fields, in alphabetical order, each on a line.

    https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message-verify-message-signature.html
    """
    notification = message.type is MessageType.NOTIFICATION
    fields = {
        "Message": message.message,
        "MessageId": message.message_id,
        "Subject": message.subject if notification else None,
        "SubscribeURL": None if notification else message.subscribe_url,
        "Timestamp": message.timestamp,
        "Token": None if notification else message.token,
        "TopicArn": message.topic_arn,
        "Type": message.type.value,
    }
    return "".join(f"{name}\n{value}\n" for name, value in fields.items() if value is not None).encode()


def check_certificate_url(message: SnsMessage, topic: SnsTopic) -> None:
    """Raise NotAllowed unless the certificate is on the host of SNS: a sender that may choose the host may sign."""
    # Compared as text, because two URL parsers may read the same URL differently.
    prefix = f"https://{topic.host}/"
    if not (
        message.certificate_url.startswith(prefix)
        and _CERTIFICATE.fullmatch(message.certificate_url.removeprefix(prefix))
    ):
        raise NotAllowed(
            f"message {message.message_id} has its certificate at {message.certificate_url[:300]!r}: "
            f"expected {prefix}NAME.pem"
        )


def check_subscribe_url(message: SnsMessage, topic: SnsTopic) -> str:
    """Return the URL that confirms a subscription. Raise NotAllowed unless it is on the host of the topic's SNS."""
    prefix = f"https://{topic.host}/"
    url = message.subscribe_url or ""
    if not (url.startswith(prefix) and _QUERY.fullmatch(url.removeprefix(prefix))):
        host = url.partition("?")[0]  # the query contains a secret
        raise NotAllowed(f"message {message.message_id} has its SubscribeURL at {host[:300]!r}: expected {prefix}?...")
    return url


def check_signature_version(message: SnsMessage, *, allow_sha1: bool) -> None:
    """Raise NotAllowed for an unknown signature version, or for SHA-1 unless it is allowed."""
    if message.signature_version == "1" and not allow_sha1:
        raise NotAllowed(
            f"message {message.message_id} is signed with SHA-1 (SignatureVersion 1): set the attribute "
            f"SignatureVersion of topic {message.topic_arn[:300]} to 2, or allow SHA-1"
        )
    if message.signature_version not in {"1", "2"}:
        raise NotAllowed(
            f"message {message.message_id} has SignatureVersion {message.signature_version[:30]!r}: expected 2"
        )


def check_signature(message: SnsMessage, certificate: x509.Certificate, now: float) -> None:
    """Raise NotAllowed unless `certificate` is valid at `now` and its key signed the message."""
    moment = datetime.fromtimestamp(now, UTC)
    if not certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc:
        raise NotAllowed(
            f"message {message.message_id}: its certificate is valid from {certificate.not_valid_before_utc} to "
            f"{certificate.not_valid_after_utc}, and now it is {moment}"
        )
    digest = hashes.SHA1() if message.signature_version == "1" else hashes.SHA256()  # noqa: S303 - only if allowed
    try:
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise NotAllowed(f"message {message.message_id}: its certificate has no RSA key, which SNS signs with")
        signature = base64.b64decode(message.signature, validate=True)
        key.verify(signature, string_to_sign(message), padding.PKCS1v15(), digest)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError) as error:
        raise NotAllowed(f"message {message.message_id}: its signature is not from SNS") from error

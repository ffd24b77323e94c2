"""An SNS of one's own: a key, its certificate, and messages that are signed as SNS signs them."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

REGION = "eu-west-1"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:zones"
HOST = f"https://sns.{REGION}.amazonaws.com"
CERTIFICATE_URL = f"{HOST}/SimpleNotificationService-0123456789abcdef.pem"

# Written out here once more, from the description of SNS, and not taken from the code under test.
SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(seconds % 1 * 1000):03}Z"


class Signer:
    """Signs, and hands out its certificate to whoever fetches; `fetched` lists what was asked for."""

    def __init__(self, *, begin: float, end: float) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.certificate = certificate(self._key, begin, end)
        self.fetched: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        return self.certificate

    def sign(self, envelope: Mapping[str, Any], version: str = "2") -> dict[str, Any]:
        """The envelope with a signature that fits it."""
        names = [name for name in SIGNED[envelope["Type"]] if name in envelope]
        text = "".join(f"{name}\n{envelope[name]}\n" for name in names)
        digest = hashes.SHA1() if version == "1" else hashes.SHA256()
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), digest)
        return {
            "SigningCertURL": CERTIFICATE_URL,
            **envelope,
            "SignatureVersion": version,
            "Signature": base64.b64encode(signature).decode(),
        }

    def notification(self, message: str, when: float, version: str = "2", **fields: Any) -> dict[str, Any]:
        envelope = {"Type": "Notification", "MessageId": str(uuid4()), "TopicArn": TOPIC, "Message": message}
        return self.sign({**envelope, "Timestamp": at(when), **fields}, version)

    def confirmation(self, when: float, kind: str = "SubscriptionConfirmation", **fields: Any) -> dict[str, Any]:
        envelope = {"Type": kind, "MessageId": str(uuid4()), "TopicArn": TOPIC, "Message": "You have chosen."}
        url = f"{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f"
        return self.sign({**envelope, "Timestamp": at(when), "Token": "2336412f", "SubscribeURL": url, **fields})


def certificate(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, begin: float, end: float) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(begin, UTC))
        .not_valid_after(datetime.fromtimestamp(end, UTC))
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def body(envelope: Mapping[str, Any]) -> bytes:
    return json.dumps(envelope).encode()

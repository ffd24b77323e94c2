"""Statuses over SNS on two emulators: moto signs its messages for real, MiniStack has subscriptions confirmed.

What MiniStack posts goes through a server that signs it anew, with the key of the test, so that the receiver verifies
as it always does.
"""

import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast import (
    EngineError,
    EngineUnavailable,
    HoldfastError,
    NotAllowed,
    SettingsError,
    Zone,
    ZoneState,
    ZoneStatus,
)
from holdfast.engines.aws import AwsSession
from holdfast.status.sns import SnsPublisher, SnsReceiver, subscribe, unsubscribe
from holdfast.status.sns.receiver import fetch_https
from tests.services.start import free_port
from tests.unit.status.sns.signer import Signer, body, certificate

REGION = "us-east-1"  # where MiniStack looks when a request says nothing of a region, as one for a SubscribeURL
HOST = f"https://sns.{REGION}.amazonaws.com"
CERTIFICATE_URL = f"{HOST}/SimpleNotificationService-0123456789abcdef.pem"
PATIENCE = 20.0
Open = Callable[..., AwsSession]


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer(begin=time.time() - 3600, end=time.time() + 3600)


def new_topic(session: AwsSession) -> str:
    answer = session.client("sns").create_topic(Name=f"holdfast-{uuid4()}", Attributes={"SignatureVersion": "2"})
    arn: str = answer["TopicArn"]
    return arn


def status(version: int = 1, *, zone: str = "use1-az1", workload: str | None = None, out: bool = True) -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(zone),
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=time.time(),
        by="test",
        reason="gray",
        version=version,
    )


class Endpoint:
    """Where SNS posts to. Signs anew if there is a signer, hands it to the receiver, and says how that went."""

    def __init__(self, signer: Signer | None = None) -> None:
        self.signer = signer
        self.receiver: SnsReceiver | None = None
        self.posted: list[dict[str, Any]] = []
        self._outcomes: queue.Queue[HoldfastError | None] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/sns"

    def wait(self) -> HoldfastError | None:
        """What became of the next message."""
        return self._outcomes.get(timeout=PATIENCE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, content: bytes) -> HoldfastError | None:
        assert self.receiver is not None
        envelope = json.loads(content)
        self.posted.append(envelope)
        if self.signer is not None:
            content = body(self.signer.sign(genuine(envelope)))
        try:
            self.receiver.receive(content)
        except HoldfastError as error:
            return error
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outcome = endpoint.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200 if outcome is None else 400)
                self.end_headers()
                endpoint._outcomes.put(outcome)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def genuine(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope with addresses as SNS itself gives them."""
    changed = {**envelope, "SigningCertURL": CERTIFICATE_URL}
    if "SubscribeURL" in changed:
        changed["SubscribeURL"] = f"{HOST}/?{changed['SubscribeURL'].partition('?')[2]}"
    return changed


def fetch_from(emulator: str, signer: Signer | None = None) -> Callable[[str], bytes]:
    """Has the emulator answer for the real host; certificates of the test are the test's."""

    def fetch(url: str) -> bytes:
        if signer is not None and url == CERTIFICATE_URL:
            return signer.certificate
        assert url.startswith(f"{HOST}/")
        # An emulator tells services apart by who signed for what; a real one by its host.
        scope = f"AWS4-HMAC-SHA256 Credential=testing/20260101/{REGION}/sns/aws4_request, SignedHeaders=, Signature="
        request = Request(url.replace(HOST, emulator), headers={"Authorization": scope})
        with urlopen(request, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
            return content

    return fetch


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with closing(Endpoint()) as server:
        yield server


@pytest.fixture(params=["by a call", "by its address"])
def subscriber(
    request: pytest.FixtureRequest, ministack_url: str, connect: Open, endpoint: Endpoint, signer: Signer
) -> tuple[AwsSession, str, list[ZoneStatus]]:
    """A host that listens, a new topic, and what was reported."""
    session = connect(ministack_url)
    topic = new_topic(session)
    reported: list[ZoneStatus] = []
    endpoint.signer = signer
    if request.param == "by a call":
        endpoint.receiver = SnsReceiver(topic, reported.append, session=session, fetch=lambda _: signer.certificate)
    else:
        endpoint.receiver = SnsReceiver(topic, reported.append, fetch=fetch_from(ministack_url, signer))
    return session, topic, reported


def calls_of(session: AwsSession, operation: str) -> list[dict[str, str]]:
    """What will have been sent: no emulator heeds all of it."""
    sent: list[dict[str, str]] = []
    session.client("sns").meta.events.register(
        f"before-call.sns.{operation}", lambda params, **_: sent.append(dict(params["body"]))
    )
    return sent


def subscriptions(session: AwsSession, topic: str) -> list[dict[str, str]]:
    return list(session.paginate("sns", "list_subscriptions_by_topic", TopicArn=topic))


def test_a_host_subscribes_confirms_and_is_told(
    subscriber: tuple[AwsSession, str, list[ZoneStatus]], endpoint: Endpoint
) -> None:
    session, topic, reported = subscriber
    subscribe(session, topic, endpoint.url)
    assert endpoint.wait() is None
    # Confirmed now: the emulator knows the ARN, and posts.
    arn = subscribe(session, topic, endpoint.url)
    attributes = session.client("sns").get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    assert attributes["PendingConfirmation"] == "false"
    assert len(subscriptions(session, topic)) == 1

    publisher = SnsPublisher(session, topic)
    for_all, for_one, back = status(1), status(1, workload="shop"), status(2, out=False)
    for known in (for_all, for_one, back):
        publisher.publish(known)
        assert endpoint.wait() is None
    assert reported == [for_all, for_one, back]
    assert [envelope["Type"] for envelope in endpoint.posted] == ["SubscriptionConfirmation"] + ["Notification"] * 3

    unsubscribe(session, arn)
    unsubscribe(session, arn)
    assert subscriptions(session, topic) == []


def test_what_was_not_signed_is_not_believed_though_it_was_delivered(
    ministack_url: str, connect: Open, endpoint: Endpoint, signer: Signer
) -> None:
    """The signature of MiniStack is the word FAKE."""
    session = connect(ministack_url)
    topic = new_topic(session)
    endpoint.receiver = SnsReceiver(
        topic, lambda _: None, session=session, allow_sha1=True, fetch=lambda _: signer.certificate
    )
    subscribe(session, topic, endpoint.url)
    refused = endpoint.wait()
    assert isinstance(refused, NotAllowed)
    assert "its signature is not from SNS" in str(refused)
    (found,) = subscriptions(session, topic)
    attributes = session.client("sns").get_subscription_attributes(SubscriptionArn=found["SubscriptionArn"])
    assert attributes["Attributes"]["PendingConfirmation"] == "true"


def test_a_subscription_whose_token_is_not_known_is_not_confirmed(
    ministack_url: str, connect: Open, signer: Signer
) -> None:
    session = connect(ministack_url)
    topic = new_topic(session)
    receiver = SnsReceiver(topic, lambda _: None, session=session, fetch=fetch_from(ministack_url, signer))
    with pytest.raises(EngineError, match="Invalid token"):
        receiver.receive(
            body(signer.confirmation(time.time(), TopicArn=topic, Token="made-up", SigningCertURL=CERTIFICATE_URL))
        )


def test_a_pending_subscription_has_an_arn_and_a_confirmed_one_can_be_ended_by_its_account_only(
    ministack_url: str, connect: Open, endpoint: Endpoint, signer: Signer
) -> None:
    session = connect(ministack_url)
    topic = new_topic(session)
    subscribed, confirmed = calls_of(session, "Subscribe"), calls_of(session, "ConfirmSubscription")
    endpoint.signer = signer
    endpoint.receiver = SnsReceiver(topic, lambda _: None, session=session, fetch=lambda _: signer.certificate)
    subscribe(session, topic, endpoint.url)
    assert endpoint.wait() is None
    assert subscribed[0]["ReturnSubscriptionArn"] == "true"
    assert confirmed[0]["AuthenticateOnUnsubscribe"] == "true"
    assert confirmed[0]["Token"] == endpoint.posted[0]["Token"]


def test_what_moto_signed_is_believed_and_nothing_else(moto_url: str, connect: Open, endpoint: Endpoint) -> None:
    """An implementation of SNS's signatures that is not ours."""
    session = connect(moto_url)
    topic = new_topic(session)
    reported: list[ZoneStatus] = []
    endpoint.receiver = SnsReceiver(topic, reported.append, fetch=fetch_from(moto_url))
    arn = subscribe(session, topic, endpoint.url)
    assert subscribe(session, topic, endpoint.url) == arn
    attributes = session.client("sns").get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    assert (attributes["Endpoint"], attributes["Protocol"]) == (endpoint.url, "http")

    known = status(workload="shop")
    SnsPublisher(session, topic).publish(known)
    assert endpoint.wait() is None
    assert reported == [known]

    forged = {**endpoint.posted[0], "Message": msgspec.json.encode(status(2)).decode()}
    with pytest.raises(NotAllowed, match="signature"):
        endpoint.receiver.receive(body(forged))
    unsubscribe(session, arn)
    unsubscribe(session, arn)
    assert subscriptions(session, topic) == []
    assert reported == [known]


def test_subscribers_can_filter_by_zone_workload_and_direction(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    topic = new_topic(session)
    sqs = session.client("sqs")
    policies: dict[str, dict[str, Any]] = {
        "out": {"state": ["out"]},
        "zone": {"zone": ["use1-az2"]},
        "shop": {"workload": ["shop"]},
        "all": {"workload": [{"exists": False}]},
    }
    queues = {}
    for name, policy in policies.items():
        queues[name] = sqs.create_queue(QueueName=f"holdfast-{uuid4()}")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queues[name], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        session.client("sns").subscribe(
            TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"FilterPolicy": json.dumps(policy)}
        )
    publisher = SnsPublisher(session, topic)
    published = {
        "a": status(zone="use1-az1", workload="shop"),
        "b": status(zone="use1-az2", workload="other"),
        "c": status(zone="use1-az1", out=False),
    }
    for known in published.values():
        publisher.publish(known)

    def seen_by(name: str) -> list[ZoneStatus]:
        found = sqs.receive_message(QueueUrl=queues[name], MaxNumberOfMessages=10).get("Messages", [])
        statuses = [msgspec.json.decode(json.loads(item["Body"])["Message"], type=ZoneStatus) for item in found]
        return sorted(statuses, key=lambda known: known.since)

    assert seen_by("out") == [published["a"], published["b"]]
    assert seen_by("zone") == [published["b"]]
    assert seen_by("shop") == [published["a"]]
    assert seen_by("all") == [published["c"]]


def test_a_topic_that_does_not_exist_is_an_error_of_the_settings(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    topic = f"arn:aws:sns:{REGION}:123456789012:holdfast-{uuid4()}"
    with pytest.raises(SettingsError, match=f"{topic} does not exist"):
        SnsPublisher(session, topic).publish(status())
    with pytest.raises(SettingsError, match=f"{topic} does not exist"):
        subscribe(session, topic, "http://127.0.0.1:1/")


def test_a_topic_of_another_region_is_an_error_of_the_settings(connect: Open) -> None:
    session = connect("http://127.0.0.1:1", region="eu-west-1")
    topic = f"arn:aws:sns:{REGION}:123456789012:zones"
    with pytest.raises(SettingsError, match="is in us-east-1, but AWS is called in eu-west-1"):
        SnsPublisher(session, topic)
    with pytest.raises(SettingsError, match="set the region"):
        SnsReceiver(topic, lambda _: None, session=session)
    with pytest.raises(SettingsError, match="set the region"):
        subscribe(session, topic, "http://127.0.0.1:1/")


def test_what_sns_does_not_take_is_an_error_of_the_engine(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    topic = new_topic(session)
    known = ZoneStatus(
        zone=Zone("use1-az1"), state=ZoneState.OUT, since=1.0, by="test", reason="x" * 300_000, version=1
    )
    with pytest.raises(EngineError, match=f"AWS sns, topic {topic}"):
        SnsPublisher(session, topic).publish(known)


def test_an_sns_that_cannot_be_reached_is_unavailable(connect: Open) -> None:
    publisher = SnsPublisher(connect(f"http://127.0.0.1:{free_port()}"), f"arn:aws:sns:{REGION}:123456789012:zones")
    with pytest.raises(EngineUnavailable, match="AWS sns Publish"):
        publisher.publish(status())


def test_what_is_fetched_is_what_was_there(answering: Callable[[bytes], str]) -> None:
    assert fetch_https(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat")) == b"what"


def test_a_subscription_that_is_gone_is_no_error(connect: Open, answering: Callable[[bytes], str]) -> None:
    """As SNS says it; the emulators say nothing."""
    error = (
        b"<ErrorResponse><Error><Type>Sender</Type><Code>NotFound</Code><Message>gone</Message></Error></ErrorResponse>"
    )
    head = f"HTTP/1.1 404 Not Found\r\nContent-Type: text/xml\r\nContent-Length: {len(error)}\r\n\r\n".encode()
    session = connect(answering(head + error))
    unsubscribe(session, f"arn:aws:sns:{REGION}:123456789012:zones:{uuid4()}")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, "longer than 65536"),
        (b"nonsense\r\n\r\n", "BadStatusLine"),
        (b"", "closed connection"),
    ],
)
def test_fetching_follows_no_redirect_and_takes_no_half_answer(
    answering: Callable[[bytes], str], answer: bytes, error: str
) -> None:
    with pytest.raises(OSError, match=error):
        fetch_https(answering(answer) + "/a.pem")


def test_a_host_that_nobody_vouches_for_is_not_believed(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = tmp_path / "chain.pem"
    chain.write_bytes(pem + certificate(key, time.time() - 3600, time.time() + 3600))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch_https(f"https://127.0.0.1:{listener.getsockname()[1]}/a.pem")
    thread.join()

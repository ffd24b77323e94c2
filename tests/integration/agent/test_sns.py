"""An agent that SNS pushes to, on two emulators.

MiniStack has it confirm, and posts to it through a server that signs as SNS does. Moto signs by itself, and tells the
ARN of a subscription as SNS does.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest

from holdfast import SettingsError, Zone, ZoneState, ZoneStatus
from holdfast.agent import Agent
from holdfast.config import Settings
from holdfast.config.settings import AgentSettings, AwsSettings
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.status.sns import SnsPublisher
from tests.integration.agent.process import ask, running, until
from tests.integration.server.process import STUCK
from tests.services.start import free_port
from tests.unit.status.sns.signer import Signer, body

REGION = "us-east-1"
HOST = f"https://sns.{REGION}.amazonaws.com"
CERTIFICATE_URL = f"{HOST}/SimpleNotificationService-0123456789abcdef.pem"


@pytest.fixture(autouse=True)
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer(begin=time.time() - 3600, end=time.time() + 3600)


@pytest.fixture
def session(ministack_url: str) -> Iterator[AwsSession]:
    with AwsSession(AwsOptions(region=REGION, endpoint_url=ministack_url)) as session:
        yield session


@pytest.fixture
def topic(session: AwsSession) -> str:
    answer = session.client("sns").create_topic(Name=f"holdfast-{uuid4()}", Attributes={"SignatureVersion": "2"})
    arn: str = answer["TopicArn"]
    return arn


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class Relay:
    """Where SNS posts to: signs what came, and hands it to the agent."""

    def __init__(self, signer: Signer) -> None:
        self.agent: str | None = None
        self.answers: queue.Queue[int] = queue.Queue()
        relay = self

        class Signing(Handler):
            def do_POST(self) -> None:
                envelope = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = relay.pass_on(signer, {**envelope, "SigningCertURL": CERTIFICATE_URL})
                self.send_response(code)
                self.end_headers()
                relay.answers.put(code)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Signing)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/sns"

    def pass_on(self, signer: Signer, envelope: dict[str, Any]) -> int:
        if "SubscribeURL" in envelope:
            envelope["SubscribeURL"] = f"{HOST}/?{envelope['SubscribeURL'].partition('?')[2]}"
        until(lambda: self.agent is not None)
        return post(f"{self.agent}/sns", body(signer.sign(envelope))).status_code

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def relay(signer: Signer) -> Iterator[Relay]:
    with closing(Relay(signer)) as relay:
        yield relay


def post(address: str, content: bytes) -> httpx.Response:
    return httpx.post(address, content=content, timeout=STUCK, trust_env=False)


def status(version: int = 1, *, out: bool = True) -> ZoneStatus:
    return ZoneStatus(
        zone=Zone("use1-az1"),
        state=ZoneState.OUT if out else ZoneState.IN,
        since=time.time(),
        by="test",
        reason="gray",
        version=version,
    )


@pytest.fixture
def agent(ministack_url: str, topic: str, relay: Relay, signer: Signer) -> Callable[..., Agent]:
    def agent(*endpoints: str, named: str = topic) -> Agent:
        settings = Settings(
            aws=AwsSettings(region=REGION, endpoint_url=ministack_url),
            agent=AgentSettings(
                zone="use1-az1",
                endpoints=endpoints,
                poll_interval=3600.0,
                stale_after=7200.0,
                port=0,
                sns_topic=named,
                sns_endpoint=relay.address,
            ),
        )
        return Agent(settings, fetch=lambda _: signer.certificate)

    return agent


def subscriptions(session: AwsSession, topic: str) -> list[dict[str, str]]:
    return list(session.paginate("sns", "list_subscriptions_by_topic", TopicArn=topic))


def test_an_agent_with_nobody_to_ask_subscribes_confirms_and_believes(
    session: AwsSession, topic: str, relay: Relay, agent: Callable[..., Agent]
) -> None:
    with running(agent()) as address:
        assert ask(address, "/health").status_code == 200
        relay.agent = address
        assert relay.answers.get(timeout=STUCK) == 200, "the confirmation"
        publisher = SnsPublisher(session, topic)
        publisher.publish(status(1))
        assert relay.answers.get(timeout=STUCK) == 200
        until(lambda: ask(address, "/health").status_code == 503)
        publisher.publish(status(2, out=False))
        until(lambda: ask(address, "/health").status_code == 200)
        assert ask(address, "/").json()["sources"][0]["name"] == "sns"
        assert len(subscriptions(session, topic)) == 1


def test_what_moto_signed_is_believed_and_the_subscription_ends_with_the_agent(moto_url: str) -> None:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/sns"

    def fetch(url: str) -> bytes:
        assert url.startswith(f"{HOST}/")
        # Moto tells services apart by who signed for what; a real one by its host.
        scope = f"AWS4-HMAC-SHA256 Credential=testing/20260101/{REGION}/sns/aws4_request, SignedHeaders=, Signature="
        answer = httpx.get(url.replace(HOST, moto_url), headers={"Authorization": scope}, trust_env=False)
        return answer.content

    with AwsSession(AwsOptions(region=REGION, endpoint_url=moto_url)) as session:
        topic = session.client("sns").create_topic(Name=f"holdfast-{uuid4()}", Attributes={"SignatureVersion": "2"})[
            "TopicArn"
        ]
        settings = Settings(
            aws=AwsSettings(region=REGION, endpoint_url=moto_url),
            agent=AgentSettings(zone="use1-az1", endpoints=(), port=port, sns_topic=topic, sns_endpoint=endpoint),
        )
        with running(Agent(settings, fetch=fetch)) as address:
            until(lambda: len(subscriptions(session, topic)) == 1)
            SnsPublisher(session, topic).publish(status())
            until(lambda: ask(address, "/health").status_code == 503)
            begun = time.monotonic()
        assert time.monotonic() - begun < 10
        assert subscriptions(session, topic) == []


@pytest.fixture
def answering() -> Iterator[tuple[str, list[int]]]:
    """A status endpoint; the list holds what it answers."""
    answers = [200]

    class Answering(Handler):
        def do_GET(self) -> None:
            self.send_response(answers[-1])
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/status/{{zone}}", answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_where_there_is_somebody_to_ask_a_message_only_says_when_to(
    topic: str, signer: Signer, agent: Callable[..., Agent], answering: tuple[str, list[int]]
) -> None:
    """The endpoint is asked once an hour, or when a message comes; and it is the endpoint that is believed."""
    endpoint, answers = answering

    def notify(address: str, known: ZoneStatus) -> None:
        message = msgspec.json.encode(known).decode()
        envelope = signer.notification(message, time.time(), TopicArn=topic, SigningCertURL=CERTIFICATE_URL)
        assert post(f"{address}/sns", body(envelope)).status_code == 200

    with running(agent(endpoint)) as address:
        assert ask(address, "/health").status_code == 200
        until(lambda: ask(address, "/").json()["age"] > 1.0)  # so old that the next answer is seen to be another
        notify(address, status(1))
        until(lambda: ask(address, "/").json()["age"] < 1.0)
        assert ask(address, "/health").status_code == 200, "nobody but the message says so"
        answers.append(500)
        notify(address, status(2))
        until(lambda: ask(address, "/health").status_code == 503)


def test_what_is_not_of_sns_is_refused(topic: str, signer: Signer, agent: Callable[..., Agent]) -> None:
    message = msgspec.json.encode(status()).decode()
    envelope = signer.notification(message, time.time(), TopicArn=topic, SigningCertURL=CERTIFICATE_URL)
    with running(agent()) as address:
        place = f"{address}/sns"
        assert post(place, b"nonsense").status_code == 400
        assert post(place, body({**envelope, "Message": message.replace("use1-az1", "use1-az2")})).status_code == 403
        assert post(place, b"x" * 300_000).status_code == 413
        assert ask(address, "/sns").status_code == 404
        assert ask(address, "/").json()["zones_out"] == []
        assert post(place, body(envelope)).status_code == 200
        until(lambda: ask(address, "/").json()["zones_out"] == ["use1-az1"])


def test_a_topic_that_does_not_exist_ends_the_agent_with_what_to_mend(topic: str, agent: Callable[..., Agent]) -> None:
    missing = f"{topic}-missing"
    with pytest.raises(SettingsError, match=f"{missing} does not exist"), running(agent(named=missing)) as address:
        until(lambda: not _answers(address))


def test_an_sns_that_cannot_be_reached_keeps_the_agent_from_nothing(
    topic: str, relay: Relay, answering: tuple[str, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, answers = answering
    answers.append(500)
    settings = Settings(
        aws=AwsSettings(region=REGION, endpoint_url=f"http://127.0.0.1:{free_port()}"),
        agent=AgentSettings(
            zone="use1-az1", endpoints=(endpoint,), port=0, sns_topic=topic, sns_endpoint=relay.address
        ),
    )
    with running(Agent(settings)) as address:
        assert ask(address, "/health").status_code == 503
        until(lambda: f"cannot subscribe to {topic}" in caplog.text)
        begun = time.monotonic()
    assert time.monotonic() - begun < 10


def _answers(address: str) -> bool:
    try:
        ask(address, "/health")
    except httpx.TransportError:
        return False
    return True

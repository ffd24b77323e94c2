"""Alerts to a topic of SNS, on an emulator over HTTP, with a queue that is subscribed to it."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.alerts import CHANNELS, Channel, ChannelContext
from holdfast.alerts.channel import parse_channel_options
from holdfast.calls import FailureKind
from holdfast.engines.aws import AwsOptions, AwsSession
from tests.integration.alerts.conftest import failure_of, message
from tests.services.start import free_port

REGION = "us-east-1"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def session(moto_url: str) -> Iterator[AwsSession]:
    with AwsSession(AwsOptions(region=REGION, endpoint_url=moto_url)) as session:
        yield session


def channel(session: AwsSession, topic: str) -> Channel:
    context = ChannelContext(open_aws=lambda: session)
    return CHANNELS.get("sns")(parse_channel_options("sns", {"topic": topic}), context)


def test_subscribers_get_the_facts_and_people_the_sentences(session: AwsSession) -> None:
    sns, sqs = session.client("sns"), session.client("sqs")
    topic = sns.create_topic(Name=f"alerts-{uuid4()}")["TopicArn"]
    queue = sqs.create_queue(QueueName=f"alerts-{uuid4()}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    channel(session, topic).send(message(), 10.0)
    [received] = sqs.receive_message(QueueUrl=queue)["Messages"]
    body = json.loads(received["Body"])
    assert body["Subject"] == "Holdfast: shop: verdict isolated (use1-az1)"
    assert body["MessageAttributes"]["holdfast_dedup_key"]["Value"] == message().dedup_key
    assert body["MessageAttributes"]["holdfast_event"]["Value"] == "opened"
    assert json.loads(body["Message"])["id"] == message().id


def test_an_unknown_topic_is_refused_for_good(session: AwsSession) -> None:
    failure, text = failure_of(channel(session, f"arn:aws:sns:{REGION}:123456789012:no-such-topic"))
    assert failure.kind is FailureKind.PERMANENT
    assert "NotFound" in text


def test_sns_that_cannot_be_reached_cannot_have_the_message() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    with AwsSession(AwsOptions(region=REGION, endpoint_url=endpoint, max_attempts=1)) as session:
        failure, _ = failure_of(channel(session, f"arn:aws:sns:{REGION}:123456789012:alerts"))
    assert failure.kind is FailureKind.UNSENT

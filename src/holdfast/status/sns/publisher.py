"""Telling the subscribers of a topic about zone statuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast._errors import EngineError, SettingsError
from holdfast._types import ZoneStatus
from holdfast.engines.aws import AwsSession
from holdfast.status.sns.message import Topic


class SnsPublisher:
    """Publishes statuses to one topic. Thread-safe; the session stays the caller's.

    Set the topic's attribute SignatureVersion to 2: with SNS's default, 1, receivers refuse its messages unless they
    are told to allow SHA-1. A topic that lets others publish lets others evacuate: its policy should name publishers.
    """

    def __init__(self, session: AwsSession, topic_arn: str) -> None:
        self._topic = Topic.parse(topic_arn)
        self._client = client_for(session, self._topic)

    def publish(self, status: ZoneStatus) -> None:
        """Tell everybody; returns when SNS has taken the message.

        The body is the status as JSON. The attributes `zone`, `state` (`in`, `draining`, `out` or `returning`) and, if
        there is one, `workload` are for filter policies. May be repeated, also after OutcomeUnknown: receivers drop
        what is not newer. Raises SettingsError for a topic that does not exist.
        """
        words = {"zone": status.zone, "state": str(status.state), "workload": status.workload}
        with translated(self._client, self._topic):
            self._client.publish(
                TopicArn=self._topic.arn,
                Message=msgspec.json.encode(status).decode(),
                MessageAttributes={
                    # SNS takes no attribute without a value.
                    name: {"DataType": "String", "StringValue": word}
                    for name, word in words.items()
                    if word
                },
            )


def client_for(session: AwsSession, topic: Topic) -> Any:
    """The client for a topic. Raises SettingsError if it calls another region: SNS knows only its own topics."""
    client = session.client("sns")
    if client.meta.region_name != topic.region:
        raise SettingsError(
            f"topic {topic.arn} is in {topic.region}, and AWS is called in {client.meta.region_name}: "
            "set the region to that of the topic"
        )
    return client


@contextmanager
def translated(client: Any, topic: Topic) -> Iterator[None]:
    """What the AWS engine leaves to its caller, said in Holdfast's errors."""
    try:
        yield
    except client.exceptions.NotFoundException as error:
        raise SettingsError(
            f"topic {topic.arn} does not exist: create it, or mend its name, account or region"
        ) from error
    except client.exceptions.ClientError as error:
        raise EngineError(f"AWS sns, topic {topic.arn}: {error}") from error

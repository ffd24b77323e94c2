"""Alerts to a topic of Amazon SNS, which passes them on by e-mail, text message, or to programs."""

import re
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

from holdfast._errors import HoldfastError, OutcomeUnknown
from holdfast.alerts.channel import CHANNELS, ChannelContext, DeliveryFailed
from holdfast.alerts.message import AlertMessage
from holdfast.calls.classify import FailureKind

MAX_SUBJECT = 100
"""Characters of a subject: the limit of SNS, which also allows only ASCII."""
_NOT_IN_SUBJECT = re.compile(r"[^ -~]")


class SnsOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of SNS."""

    topic: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$")]


@CHANNELS.register("sns")
class SnsChannel:
    """Publishes alerts: text for people, and fields for programs as message attributes."""

    options_type: ClassVar = SnsOptions

    def __init__(self, options: SnsOptions, context: ChannelContext) -> None:
        self._topic = options.topic
        self._session = context.open_aws()

    def send(self, message: AlertMessage, timeout: float) -> None:
        del timeout  # the session has its own, which is shorter than a claim
        fields = message.to_fields()
        names = ("id", "dedup_key", "event", "workload", "kind", "zone", "verdict")
        attributes = {
            f"holdfast_{name}": {"DataType": "String", "StringValue": str(fields[name])}
            for name in names
            if fields[name] is not None
        }
        texts = {"default": message.text, "email-json": msgspec.json.encode(fields).decode()}
        texts |= dict.fromkeys(("http", "https", "lambda", "sqs"), texts["email-json"])
        try:
            self._session.client("sns").publish(
                TopicArn=self._topic,
                Subject=_NOT_IN_SUBJECT.sub("?", f"Holdfast: {message.title}")[:MAX_SUBJECT],
                Message=msgspec.json.encode(texts).decode(),
                MessageStructure="json",
                MessageAttributes=attributes,
            )
        except OutcomeUnknown as error:
            raise DeliveryFailed(str(error)) from error
        except HoldfastError:
            raise
        except Exception as error:  # of botocore: no such topic, or an invalid request
            raise DeliveryFailed(f"SNS did not accept the message: {error}", FailureKind.PERMANENT) from error

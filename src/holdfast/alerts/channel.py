"""The interface between alerts and their channels: one protocol, and a registry of channels by name.

A channel is one module in `channels/`, or an entry point of another distribution in the group `holdfast.alerts`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._errors import HoldfastError
from holdfast._plugins import Plugins
from holdfast._secret import parse_options
from holdfast.alerts.message import AlertMessage
from holdfast.calls.classify import Failure, FailureKind, of_status

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession


class DeliveryFailed(HoldfastError):
    """A receiver did not confirm a message."""

    slug = "delivery-failed"

    def __init__(self, message: str, kind: FailureKind = FailureKind.TRANSIENT) -> None:
        super().__init__(message)
        self.holdfast_failure = Failure(kind)

    @classmethod
    def from_status(cls, receiver: str, status: int, headers: Mapping[str, str]) -> "DeliveryFailed":
        """Return the error for an HTTP status that is no success. Names in `headers` are in lower case."""
        error = cls(f"{receiver} answered {status}", FailureKind.PERMANENT)
        error.holdfast_failure = of_status(status, headers, time.time) or Failure(FailureKind.PERMANENT, status)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """The objects that channels get besides their own options."""

    open_aws: "Callable[[], AwsSession]"
    writes_json: bool = True
    """Whether lines for standard output are JSON."""


class Channel(Protocol):
    """A way to tell people. One thread uses it at a time."""

    def send(self, message: AlertMessage, timeout: float) -> None:
        """Send a message within about `timeout` seconds. Raise an error unless the receiver has confirmed it.

        A DeliveryFailed says whether it may have arrived. Other errors are judged as those of calls.
        """


class ChannelType(Protocol):
    """The class that a channel registers. Its constructor raises SettingsError if a secret is missing."""

    @property
    def options_type(self) -> type[msgspec.Struct]:
        """The options of an alert in the settings. It may have fields of type Secret."""

    def __call__(self, options: Any, context: ChannelContext) -> Channel:
        """Return a channel."""


CHANNELS: Plugins[ChannelType] = Plugins("alert channel", package="holdfast.alerts.channels", group="holdfast.alerts")
"""The registered channels, by name."""


def parse_channel_options(channel: str, options: Mapping[str, Any]) -> msgspec.Struct:
    """Return the options of a channel. Raise SettingsError if there is no such channel, InvalidValue for an option."""
    found: msgspec.Struct = parse_options(CHANNELS.get(channel).options_type, options, f"channel {channel}")
    return found

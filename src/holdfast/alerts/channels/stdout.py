"""Alerts as lines on standard output: text for people, or JSON for a collector of logs."""

import sys
from typing import ClassVar

import msgspec

from holdfast.alerts.channel import CHANNELS, ChannelContext
from holdfast.alerts.message import AlertMessage


class StandardOutputOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """There are no options: `log.format` decides whether lines are text or JSON."""


@CHANNELS.register("stdout")
class StandardOutputChannel:
    """Writes one line for each alert."""

    options_type: ClassVar = StandardOutputOptions

    def __init__(self, options: StandardOutputOptions, context: ChannelContext) -> None:
        del options
        self._writes_json = context.writes_json

    def send(self, message: AlertMessage, timeout: float) -> None:
        del timeout
        line = f"{message.title}: {' | '.join(message.lines)}"
        if self._writes_json:
            line = msgspec.json.encode(message.to_fields()).decode()
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

"""Telling people: verdicts become messages in an outbox, which channels deliver at least once and in order.

May import the base, the engines, calls and telemetry; boto3 only through `engines.aws`. Start reading at `rules.py`,
then `alerter.py`; `channel.py` is the interface of channels, `heartbeat.py` says that detection itself is alive.
"""

from holdfast._secret import Secret
from holdfast.alerts.alerter import Alert, Alerter, AlertTestResult, VerdictSource, send_test
from holdfast.alerts.channel import CHANNELS, Channel, ChannelContext, ChannelType, DeliveryFailed
from holdfast.alerts.heartbeat import Heartbeat
from holdfast.alerts.message import AlertedVerdict, AlertEvent, AlertMessage
from holdfast.alerts.rules import Delivery, DeliveryState
from holdfast.alerts.store import AlertReport, AlertStore, Snooze

__all__ = [
    "CHANNELS",
    "Alert",
    "AlertEvent",
    "AlertMessage",
    "AlertReport",
    "AlertStore",
    "AlertTestResult",
    "AlertedVerdict",
    "Alerter",
    "Channel",
    "ChannelContext",
    "ChannelType",
    "Delivery",
    "DeliveryFailed",
    "DeliveryState",
    "Heartbeat",
    "Secret",
    "Snooze",
    "VerdictSource",
    "send_test",
]

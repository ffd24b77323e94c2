"""Certificates, messages, and how a failed attempt is judged."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trustme

from holdfast.alerts import CHANNELS, AlertEvent, AlertMessage, Channel, ChannelContext
from holdfast.alerts.channel import parse_channel_options
from holdfast.calls import Failure, classify
from tests.unit.alerts.world import verdict

OpenChannel: TypeAlias = Callable[..., Channel]


def message(event: AlertEvent = AlertEvent.OPENED, number: int = 1) -> AlertMessage:
    return AlertMessage(
        alert="on-call", event=event, number=number, verdict=verdict(), link="https://holdfast.example/"
    )


def failure_of(channel: Channel, timeout: float = 30.0) -> tuple[Failure, str]:
    """Send a message that must fail; return what that means, and what it says."""
    try:
        channel.send(message(), timeout)
    except Exception as error:
        return classify(error, time.time), str(error)
    raise AssertionError("it was sent")


def open_channel(channel: str, **options: Any) -> Channel:
    def no_aws() -> Any:
        raise AssertionError("this channel needs no AWS")

    return CHANNELS.get(channel)(parse_channel_options(channel, options), ChannelContext(open_aws=no_aws))


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the authority of the tests, as a system does that has its certificate."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

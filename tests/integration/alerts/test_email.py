"""Alerts by e-mail, to a real mail server: encryption, headers, and every way in which it can fail."""

import base64
import socket
import ssl

import pytest

from holdfast.alerts import AlertEvent
from holdfast.calls import FailureKind
from tests.integration.alerts.conftest import failure_of, message, open_channel
from tests.services.start import free_port
from tests.support.alert_receivers import mail_server
from tests.table import every_row

TO = {"host": "127.0.0.1", "sender": "holdfast@shop.example", "recipients": ["a@shop.example", "b@shop.example"]}


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_is_sent_encrypted_and_with_the_password(
    security: str, server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "s3cret")
    login = {"username": "holdfast", "password": "env:MAIL_PASSWORD"}
    with mail_server(server_context, is_tls=security == "tls") as server:
        channel = open_channel("email", **TO, port=server.port, security=security, **login)
        channel.send(message(), 30.0)
        channel.send(message(AlertEvent.RESOLVED, 2), 30.0)
        channel.send(message(), 30.0)
    opened, resolved, again = server.mails
    assert base64.b64decode(server.logins[0]) == b"\0holdfast\0s3cret"
    assert opened["To"] == "a@shop.example, b@shop.example"
    assert opened["Subject"] == "[Holdfast] shop: verdict isolated (use1-az1)"
    assert resolved["Subject"] == "[Holdfast] resolved: shop: verdict isolated (use1-az1)"
    assert "Look further: holdfast alerts show shop/use1-az1/1750000000" in str(opened.get_payload())
    assert opened["Message-ID"] == again["Message-ID"] != resolved["Message-ID"], "a repeated mail is recognized"
    assert opened["References"] == resolved["References"], "both are in one thread"
    assert opened["Auto-Submitted"] == "auto-generated"


def test_a_failed_attempt_tells_whether_the_mail_may_have_arrived() -> None:
    rows = [
        ({"DATA": "451 try later"}, FailureKind.UNSENT, "answered 451 try later"),
        ({"DATA": "554 no"}, FailureKind.PERMANENT, "answered 554 no"),
        ({"RCPT": "550 who?"}, FailureKind.PERMANENT, "all recipients were refused"),
        ({"END": ""}, FailureKind.TRANSIENT, "Connection unexpectedly closed"),
        ({"END": "452 full"}, FailureKind.UNSENT, "answered 452 full"),
    ]

    def check(row: tuple[dict[str, str], FailureKind, str]) -> None:
        replies, kind, words = row
        with mail_server() as server:
            server.replies = replies
            failure, text = failure_of(open_channel("email", **TO, port=server.port, security="none"))
        assert failure.kind is kind
        assert words in text

    every_row(rows, check)


def test_a_mail_server_without_encryption_gets_nothing_unless_that_is_wanted() -> None:
    with mail_server() as server:
        failure, text = failure_of(open_channel("email", **TO, port=server.port))
        assert failure.kind is FailureKind.PERMANENT
        assert "STARTTLS extension not supported by server" in text
        assert server.mails == []


def test_a_certificate_must_be_valid(server_context: ssl.SSLContext) -> None:
    with mail_server(server_context) as server:
        failure, text = failure_of(open_channel("email", **TO, port=server.port))
        assert failure.kind is FailureKind.PERMANENT
        assert "has no valid certificate" in text
        assert server.mails == []


def test_a_mail_server_that_is_down_cannot_have_the_mail() -> None:
    port = free_port()
    failure, text = failure_of(open_channel("email", **TO, port=port))
    assert failure.kind is FailureKind.UNSENT
    assert text == f"mail server 127.0.0.1:{port} cannot be reached: Connection refused"


def test_a_mail_server_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        failure, text = failure_of(open_channel("email", **TO, port=silent.getsockname()[1]), timeout=0.2)
    assert failure.kind is FailureKind.TRANSIENT
    assert "timed out" in text


def test_a_mail_that_some_recipients_refuse_counts_as_sent(caplog: pytest.LogCaptureFixture) -> None:
    with mail_server() as server:
        channel = open_channel("email", **TO, port=server.port, security="none")
        replies = iter(["250 OK", "550 who?"])

        class Once(dict[str, str]):
            def get(self, word: str, default: str = "") -> str:  # type: ignore[override]
                return next(replies) if word == "RCPT" else default

        server.replies = Once()
        channel.send(message(), 30.0)
        assert len(server.mails) == 1
    assert "refused b@shop.example" in caplog.text

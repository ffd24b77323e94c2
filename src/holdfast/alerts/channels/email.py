"""Alerts by e-mail, over SMTP with TLS."""

import hashlib
import logging
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from holdfast._errors import InvalidValue
from holdfast._secret import Secret, require_reference
from holdfast.alerts.channel import CHANNELS, ChannelContext, DeliveryFailed
from holdfast.alerts.message import AlertMessage
from holdfast.calls.classify import FailureKind

logger = logging.getLogger("holdfast.alerts")

Address = Annotated[str, Meta(pattern=r"^[^@\s<>,]+@[^@\s<>,]+$", max_length=320)]


class EmailOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of e-mail."""

    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+$")]
    sender: Address
    recipients: Annotated[tuple[Address, ...], Meta(min_length=1, max_length=50)]
    port: Annotated[int, Meta(ge=1, le=65_535)] = 587
    """The port for submission, of RFC 6409."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """Begin unencrypted and require TLS, which port 587 expects; TLS from the beginning; or none, for a local relay."""
    username: str | None = None
    password: Secret | None = None

    def __post_init__(self) -> None:
        require_reference("password", self.password)
        if (self.username is None) != (self.password is None):
            raise InvalidValue("password: expected both username and password, or neither")
        if self.security == "none" and self.password is not None:
            raise InvalidValue('security: expected starttls or tls with a password, which "none" would not encrypt')


@CHANNELS.register("email")
class EmailChannel:
    """Sends alerts to the recipients, over a new connection each."""

    options_type: ClassVar = EmailOptions

    def __init__(self, options: EmailOptions, context: ChannelContext) -> None:
        del context
        self._options = options
        self._password = None if options.password is None else options.password.reveal()

    def send(self, message: AlertMessage, timeout: float) -> None:
        options = self._options
        receiver = f"mail server {options.host}:{options.port}"
        try:
            with self._connect(timeout) as server:
                refused = server.send_message(self._build(message))
        except ssl.SSLCertVerificationError as error:
            problem = f"{receiver} has no valid certificate: {error.verify_message}"
            raise DeliveryFailed(problem, FailureKind.PERMANENT) from error
        except smtplib.SMTPException as error:
            raise DeliveryFailed(f"{receiver}: {_describe(error)}", _classify(error)) from error
        except TimeoutError as error:
            raise DeliveryFailed(f"{receiver} did not answer within {timeout:g} s", FailureKind.TIMEOUT) from error
        except OSError as error:
            kind = FailureKind.UNSENT if isinstance(error, ConnectionRefusedError) else FailureKind.TRANSIENT
            raise DeliveryFailed(f"{receiver} cannot be reached: {error.strerror or error}", kind) from error
        if refused:  # the others have it
            logger.warning("alert %s: %s refused %s", message.alert, receiver, ", ".join(refused))

    def _connect(self, timeout: float) -> smtplib.SMTP:
        options, context = self._options, ssl.create_default_context()
        if options.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(options.host, options.port, timeout=timeout, context=context)
        else:
            server = smtplib.SMTP(options.host, options.port, timeout=timeout)
        try:
            if options.security == "starttls":
                server.starttls(context=context)  # raises if the server has no TLS
            if options.username is not None and self._password is not None:
                server.login(options.username, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _build(self, message: AlertMessage) -> EmailMessage:
        mail, domain = EmailMessage(), self._options.sender.rpartition("@")[2]
        mail["From"], mail["To"] = self._options.sender, ", ".join(self._options.recipients)
        mail["Subject"] = f"[Holdfast] {message.title}"
        mail["Date"] = formatdate()
        mail["Message-ID"] = f"<{_digest(message.id)}@{domain}>"  # the same when it is sent again
        mail["References"] = f"<{_digest(message.dedup_key)}@{domain}>"  # one thread for each verdict
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text)
        return mail


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _classify(error: smtplib.SMTPException) -> FailureKind:
    """Return the kind of a failure: a server that answers with an error has not accepted the message."""
    if isinstance(error, smtplib.SMTPRecipientsRefused | smtplib.SMTPNotSupportedError):
        return FailureKind.PERMANENT
    if isinstance(error, smtplib.SMTPResponseException):
        return FailureKind.UNSENT if 400 <= error.smtp_code < 500 else FailureKind.PERMANENT
    return FailureKind.TRANSIENT


def _describe(error: smtplib.SMTPException) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"all recipients were refused: {', '.join(error.recipients)}"
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return f"answered {error.smtp_code} {text[:200]}"
    return str(error)

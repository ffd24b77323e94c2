"""Receivers of alerts that answer as they are told: an HTTP server and a mail server, both on loopback."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

PATIENCE = 60.0


@dataclass(frozen=True)
class Answer:
    """An answer to one request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False
    """Close the connection after the request was read, without an answer."""
    hangs: bool = False
    """Answer nothing until the receiver is closed, or the client gives up."""
    drips: bool = False
    """Answer one byte at a time, without end."""


@dataclass(frozen=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> dict[str, object]:
        return dict(msgspec.json.decode(self.body))


class WebhookReceiver(ThreadingHTTPServer):
    """Keeps all requests. Gives the answers in `answers`, then 200."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._scheme = "http" if context is None else "https"
        self.answers: list[Answer] = []
        self.requests: list[Received] = []
        self.arrived = threading.Condition()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}/hook/secret-path"

    def wait_for(self, count: int) -> None:
        """Wait until `count` requests have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, PATIENCE), self.requests

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that refuse the certificate, or give up."""


class _Handler(BaseHTTPRequestHandler):
    server: WebhookReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.arrived:
            answer = self.server.answers.pop(0) if self.server.answers else Answer()
            self.server.requests.append(Received(self.command, self.path, headers, body))
            self.server.arrived.notify_all()
        if answer.hangs:
            self.server.closing.wait(PATIENCE)
        if answer.drips:
            while not self.server.closing.wait(0.01):
                self.wfile.write(b"H")
        if answer.closes or answer.hangs or answer.drips:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in {"Content-Length": "0", **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the name that http.server calls

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[WebhookReceiver]:
    """Start a receiver, and stop it at the end."""
    receiver = WebhookReceiver(context)
    thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        receiver.shutdown()
        thread.join()
        receiver.server_close()


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server that keeps all messages. `replies` replaces its answer to a command, such as `{"DATA": "451 no"}`.

    A reply of "" closes the connection.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, context: ssl.SSLContext | None, *, is_tls: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.context, self.is_tls = context, is_tls
        self.replies: dict[str, str] = {}
        self.mails: list[Message] = []
        self.logins: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that refuse the certificate."""


class _Mail(socketserver.BaseRequestHandler):
    server: MailServer

    def handle(self) -> None:
        channel: socket.socket = self.request
        if self.server.is_tls and self.server.context is not None:
            channel = self.server.context.wrap_socket(channel, server_side=True)
        is_encrypted, file = self.server.is_tls, channel.makefile("rb")
        channel.sendall(b"220 test\r\n")
        while line := file.readline():
            word = line.split()[0].decode().upper()
            offers = "STARTTLS" if self.server.context is not None and not is_encrypted else "AUTH PLAIN"
            reply = {
                "EHLO": f"250-test\r\n250 {offers}",
                "DATA": "354 go on",
                "STARTTLS": "220 ready",
                "QUIT": "221 bye",
                "AUTH": "235 welcome",
            }.get(word, "250 OK")
            reply = self.server.replies.get(word, reply)
            if not reply:
                break
            channel.sendall(f"{reply}\r\n".encode())
            if word == "AUTH":
                self.server.logins.append(line.decode().split()[-1])
            if word == "STARTTLS" and reply.startswith("220") and self.server.context is not None:
                channel = self.server.context.wrap_socket(channel, server_side=True)
                is_encrypted, file = True, channel.makefile("rb")
            if word == "DATA" and reply.startswith("354"):
                content = b""
                while (part := file.readline()) not in (b".\r\n", b""):
                    content += part
                self.server.mails.append(message_from_bytes(content))
                after = self.server.replies.get("END", "250 stored")
                if not after:
                    break
                channel.sendall(f"{after}\r\n".encode())
            if word == "QUIT":
                break
        file.close()
        channel.close()


@contextmanager
def mail_server(context: ssl.SSLContext | None = None, *, is_tls: bool = False) -> Iterator[MailServer]:
    """Start a mail server, and stop it at the end."""
    server = MailServer(context, is_tls=is_tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

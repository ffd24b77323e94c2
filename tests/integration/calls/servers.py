"""HTTP servers on loopback that misbehave as they are told, and remember what reached them."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

Act = Callable[["Link", "Seen"], bool]
"""What a server does about one request; False: the connection is closed after it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it reached a server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """The number of the connection that it came on, from 1."""


@dataclass(slots=True)
class Link:
    """One connection, seen from the server."""

    socket: socket.socket
    number: int
    stopping: threading.Event
    buffer: bytes = b""

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the client may have had enough
            self.socket.sendall(data)

    def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self._fill()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self._fill()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def until_gone(self) -> None:
        """Wait until the client closes the connection, or the server stops."""
        while not self.stopping.is_set():
            try:
                if not self.socket.recv(65_536):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def _fill(self) -> None:
        while True:
            try:
                chunk = self.socket.recv(65_536)
            except TimeoutError:
                if self.stopping.is_set():
                    raise EOFError from None
                continue
            if not chunk:
                raise EOFError
            self.buffer += chunk
            return


@dataclass(slots=True)
class Server:
    """Does one act after the other, the last one again and again. `with` starts and stops it.

    `before_tls` is called with every connection before its handshake, and `port` may be one that nobody listens on yet.
    """

    acts: Iterable[Act]
    tls: ssl.SSLContext | None = None
    before_tls: Callable[[Link], None] | None = None
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for each request."""
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for each connection that the server has closed."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _listener: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _todo: Iterator[Act] | None = None
    _last: Act | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    def start(self) -> None:
        self._todo = iter(self.acts)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(0.02)
        self.port = self._listener.getsockname()[1]
        self._run(self._accept)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self._listener is not None:
            self._listener.close()

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._stopping.is_set():
            try:
                accepted, _ = self._listener.accept()
            except TimeoutError:
                continue
            accepted.settimeout(0.02)
            with self._lock:
                self.connections += 1
                link = Link(accepted, self.connections, self._stopping)
            self._run(lambda link=link: self._serve(link))  # type: ignore[misc]

    def _serve(self, link: Link) -> None:
        try:
            if self.before_tls is not None:
                self.before_tls(link)
            if self.tls is not None:
                link.socket.settimeout(5)
                link.socket = self.tls.wrap_socket(link.socket, server_side=True)
                link.socket.settimeout(0.02)
            while not self._stopping.is_set():
                request = _read(link)
                with self._lock:
                    self.seen.append(request)
                    assert self._todo is not None
                    act = next(self._todo, self._last)
                    self._last = act
                self.arrived.release()
                assert act is not None
                if not act(link, request):
                    return
        except (EOFError, OSError):
            pass  # the client is gone, or did not like the certificate
        finally:
            link.socket.close()
            self.closed.release()


def _read(link: Link) -> Seen:
    method, path, _ = link.line().decode().split(" ", 2)
    headers = {}
    while line := link.line().decode("latin-1"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(link.line(), 16):
            body += link.exactly(size)
            link.line()
        link.line()
    else:
        body = link.exactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body, link.number)


# Acts


def answer(status: int = 200, body: bytes = b"fine", **headers: str) -> Act:
    """Answer, and keep the connection. Header names have underscores."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()

    def act(link: Link, request: Seen) -> bool:
        link.send(head + (b"" if request.method == "HEAD" else body))
        return headers.get("Connection") != "close"

    return act


def then_close(first: Act) -> Act:
    """Do something, then close a connection that was said to be kept."""

    def act(link: Link, request: Seen) -> bool:
        first(link, request)
        return False

    return act


def drop(link: Link, _: Seen) -> bool:
    """Close the connection without an answer."""
    return False


def drop_in_headers(link: Link, _: Seen) -> bool:
    """Close the connection in the middle of the headers."""
    link.send(b"HTTP/1.1 200 Said\r\nContent-Le")
    return False


def drop_in_body(link: Link, _: Seen) -> bool:
    """Close the connection after the headers and a part of the body."""
    link.send(b"HTTP/1.1 200 Said\r\nContent-Length: 100\r\n\r\nonly this")
    return False


def drop_in_chunks(link: Link, _: Seen) -> bool:
    """Close the connection in the middle of a body that does not say how long it is."""
    link.send(b"HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n")
    return False


def hang(link: Link, _: Seen) -> bool:
    """Say nothing, and keep the connection open until the client closes it."""
    link.until_gone()
    return False


def hang_in_body(link: Link, _: Seen) -> bool:
    """Send the headers and a part of the body, then nothing."""
    link.send(b"HTTP/1.1 200 Said\r\nContent-Length: 100\r\n\r\nonly this")
    link.until_gone()
    return False


def trickle(head: bytes, *, every: float = 0.01) -> Act:
    """Send the head, then a byte of the body every so many seconds until the client closes the connection."""

    def act(link: Link, _: Seen) -> bool:
        link.send(head)
        with contextlib.suppress(OSError):
            while not link.stopping.wait(every):
                link.socket.sendall(b"." if b"chunked" not in head else b"1\r\n.\r\n")
        return False

    return act


def chunks(*parts: bytes, status: int = 200) -> Act:
    """Answer with a body that does not say how long it is."""

    def act(link: Link, _: Seen) -> bool:
        link.send(f"HTTP/1.1 {status} Said\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for part in parts:
            link.send(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        link.send(b"0\r\n\r\n")
        return True

    return act

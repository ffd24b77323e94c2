"""A TCP proxy that loses what it should carry, for testing what a client does about it."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Literal, Self, TypeAlias

from holdfast._errors import InvalidValue

__all__ = ["Loss", "LossyProxy"]

Loss: TypeAlias = Literal["request", "reply", "end"]

_STUCK = 10.0
"""Seconds that an `end` waits for a server to answer, and then for a client to hang up."""
_CHUNK = 65_536
_GO_ON = b"HTTP/1.1 100 "
"""Begins what a server says before it has the body of a request. It may come late, and is no reply yet."""


class LossyProxy:
    """Carries TCP connections from loopback to a server, and breaks them when the test says so. Thread-safe.

        with LossyProxy("127.0.0.1", 5432) as proxy:
            database = open_database(proxy.host, proxy.port)
            proxy.lose("reply", b"COMMIT")
            database.write(work)  # is committed, and the client never hears of it

    What is carried must be plain text, since the proxy looks for words in it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._armed: tuple[Loss, bytes] | None = None
        self._ending: tuple[bytes, Callable[[], object]] = (b"", lambda: None)
        self._links: set[_Link] = set()
        self._marker = b""
        self._losses = 0
        self._refusing = False
        self._open = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host: str = self._listener.getsockname()[0]
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="lossy-proxy", daemon=True)
        self._thread.start()

    @property
    def losses(self) -> int:
        """How many connections `lose` has broken so far."""
        with self._lock:
            return self._losses

    def lose(self, what: Loss, marker: bytes) -> None:
        """Break, once, the next connection on which the client sends `marker`.

        `"request"`: before the server gets it. `"reply"`: when the server answers, instead of passing the answer on;
        so the server has done what it was asked to do.
        """
        if not marker:
            raise InvalidValue("the marker is empty: expected the bytes at which the connection should break")
        with self._lock:
            self._armed = (what, marker)

    def end(self, marker: bytes, instead: bytes, action: Callable[[], object]) -> None:
        """Send the server, once, `instead` of the next `marker` of a client and what follows it, and call `action`.

        `instead` makes the server answer, and `action`, which follows, makes it end the connection. The client gets
        the answer and the server's last words at once, and the end only if it does not hang up.
        """
        with self._lock:
            self._armed = ("end", marker)
            self._ending = (instead, action)

    def cut(self) -> None:
        """Break all connections that are open now; new ones are carried."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """Break all connections, and every new one at once, until `admit`."""
        self._refusing = True
        self.cut()

    def admit(self) -> None:
        """Carry new connections again after `refuse`."""
        self._refusing = False

    def close(self) -> None:
        """Break everything and stop listening. May be repeated."""
        with self._lock:
            was_open, self._open = self._open, False
        if not was_open:
            return
        # A thread that waits for a connection is woken by one everywhere, by closing its socket only on some systems.
        with contextlib.suppress(OSError):
            socket.create_connection((self.host, self.port)).close()
        self._thread.join()
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
            link.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if not self._open:
                client.close()
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            link = _Link(client, server, self._look_for_loss, self._end, self._forget)
            with self._lock:
                self._links.add(link)
            link.start()

    def _look_for_loss(self, before: bytes, chunk: bytes) -> tuple[Loss | None, bytes]:
        """What to lose at this chunk, and how much of it to remember, in case the marker goes on in the next one."""
        with self._lock:
            if self._armed is None:
                return None, b""
            what, marker = self._armed
            seen = before + chunk
            if marker in seen:
                self._armed = None
                self._marker = marker
                self._losses += 1
                return what, b""
            return None, seen[-(len(marker) - 1) :] if len(marker) > 1 else b""

    def _end(self, chunk: bytes) -> tuple[bytes, Callable[[], object]]:
        """Return what the server gets instead of this chunk, and the action that follows its answer."""
        instead, action = self._ending
        return chunk.partition(self._marker)[0] + instead, action

    def _forget(self, link: "_Link") -> None:
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection, carried by two threads until either end or the proxy breaks it."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        look: Callable[[bytes, bytes], tuple[Loss | None, bytes]],
        end: Callable[[bytes], tuple[bytes, Callable[[], object]]],
        forget: "Callable[[_Link], None]",
    ) -> None:
        self._client = client
        self._server = server
        self._look = look
        self._end = end
        self._forget = forget
        self._losing_reply = False
        self._is_ending = False
        self._has_answered = threading.Event()
        self._has_hung_up = threading.Event()
        self._replies = threading.Thread(target=self._carry_replies, name="lossy-proxy-replies", daemon=True)
        self._requests = threading.Thread(target=self._carry_requests, name="lossy-proxy-requests", daemon=True)

    def start(self) -> None:
        self._replies.start()
        self._requests.start()

    def join(self) -> None:
        self._requests.join()

    def cut(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):  # it is gone already
                end.shutdown(socket.SHUT_RDWR)

    def _carry_requests(self) -> None:
        before = b""
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(_CHUNK):
                loss, before = self._look(before, chunk)
                if loss == "request":
                    break
                if loss == "reply":
                    self._losing_reply = True
                if loss == "end":
                    self._is_ending = True
                    instead, action = self._end(chunk)
                    self._server.sendall(instead)
                    self._has_answered.wait(_STUCK)  # otherwise the server might leave before it has read everything
                    action()
                if self._is_ending:
                    continue  # until the client hangs up
                self._server.sendall(chunk)
        self._has_hung_up.set()
        self.cut()
        self._replies.join()
        self._client.close()
        self._server.close()
        self._forget(self)

    def _carry_replies(self) -> None:
        last_words = b""
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(_CHUNK):
                if self._losing_reply and not (chunk.startswith(_GO_ON) and chunk.find(b"\r\n\r\n") == len(chunk) - 4):
                    break
                if self._is_ending:
                    last_words += chunk
                    self._has_answered.set()
                else:
                    self._client.sendall(chunk)
            self._client.sendall(last_words)
        if self._is_ending:
            self._has_hung_up.wait(_STUCK)
        self.cut()

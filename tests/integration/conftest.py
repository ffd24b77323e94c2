"""Fixtures for tests that need somebody at the other end of a socket."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Starts servers that give one answer to whoever asks, and says where they are."""
    started: list[tuple[socket.socket, threading.Thread]] = []

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        started.append((listener, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener, thread in started:
        thread.join()
        listener.close()

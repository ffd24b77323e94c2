"""What the attacks of `make attack` take for the end of a connection."""

import socket

import pytest

from tests.attack.attacks import CLOSED, OPEN, read_end


@pytest.mark.parametrize(
    ("answer", "is_closed", "expected"),
    [(b"HTTP/1.1 431 Too Large\r\n", False, 431), (b"", True, CLOSED), (b"", False, OPEN)],
)
def test_a_connection_is_answered_closed_or_still_open(answer: bytes, is_closed: bool, expected: int) -> None:
    client, server = socket.socketpair()
    with client, server:
        server.sendall(answer)
        if is_closed:
            server.close()
        assert read_end(client, timeout=0.001) == expected

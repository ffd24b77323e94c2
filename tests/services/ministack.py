"""MiniStack: the emulator of AWS to trust for global tables, alarms, Aurora failover and Lambda."""

import sys
from pathlib import Path

from tests.services.http import get
from tests.services.start import Order


def ministack(directory: Path, port: int) -> Order:
    environment = {
        "PYTHONUNBUFFERED": "1",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "S3_DATA_DIR": str(directory / "s3"),
        "STATE_DIR": str(directory / "state"),
        # These would listen on every interface, on ports that two runs would fight over.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        # With a Docker at hand it would fetch images from the internet for RDS and others.
        "DOCKER_HOST": f"unix://{directory / 'no-docker'}",
    }
    return Order(
        url=f"http://127.0.0.1:{port}",
        command=[sys.executable, "-m", "ministack"],
        environment=environment,
        listening="Running on http://127.0.0.1",
        answers=lambda: get(port, "/_ministack/ready"),
    )

"""The exporters that `holdfast worker` is given by name."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

JOBS = """
from holdfast.queue import Queue
mail = Queue("mail", "memory:")
@mail.handle()
def handle(message): ...
"""


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "here"])
def test_a_port_has_to_be_one(run: Run, here: Path, port: str) -> None:
    (here / "exported.py").write_text(JOBS)
    ran = run("worker", "exported:mail", "--export", f"prometheus:{port}", "--json")
    assert ran.code == 2
    assert f"prometheus:{port}: expected prometheus:PORT or prometheus:HOST:PORT" in ran.err


def test_an_exporter_has_to_exist(run: Run) -> None:
    ran = run("worker", "nix:nix", "--export", "carrier-pigeon", "--json")
    assert (ran.code, ran.error["detail"]) == (
        2,
        "no metrics exporter is called 'carrier-pigeon': expected one of emf, logs, opentelemetry, prometheus",
    )

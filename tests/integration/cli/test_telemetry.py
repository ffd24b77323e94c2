"""`holdfast telemetry send` as a process: pipes, rotated files, and signals."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server.process import COMMAND, STUCK, environment
from tests.support.preloaded import Preloaded
from tests.support.telemetry_receiver import TelemetryReceiver, receiving


@pytest.fixture
def receiver() -> Iterator[TelemetryReceiver]:
    with receiving() as receiver:
        yield receiver


def start(*words: str, receiver: TelemetryReceiver, directory: Path) -> "subprocess.Popen[str]":
    return Preloaded(
        [*COMMAND, "telemetry", "send", *words, "--server", receiver.address, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env=environment(),
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_reading_of_a_pipe_after_all_lines_were_sent(
    tmp_path: Path, receiver: TelemetryReceiver, number: signal.Signals
) -> None:
    process = start(receiver=receiver, directory=tmp_path)
    assert process.stdin is not None
    process.stdin.write("one\ntwo\nhalf")
    process.stdin.flush()
    receiver.wait_for(2)
    process.send_signal(number)
    out, err = process.communicate(timeout=STUCK)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out) == {"sent": 3, "refused": 0, "dropped": 0, "late": 0, "too_late": 0}
    assert receiver.lines == [b"one", b"two", b"half"]


def test_files_are_followed_through_rotation_until_a_signal(tmp_path: Path, receiver: TelemetryReceiver) -> None:
    log = tmp_path / "emf.log"
    process = start("--follow", "emf.log", receiver=receiver, directory=tmp_path)
    assert process.stderr is not None
    assert "emf.log cannot be read, trying again" in process.stderr.readline(), "now it waits for the file"
    lines = 0
    for generation in range(3):
        with log.open("w") as file:
            for number in range(50):
                file.write(f"{generation}-{number}\n")
                lines += 1
        receiver.wait_for(lines)
        log.rename(tmp_path / f"old-{generation}")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=STUCK)
    assert process.returncode == 0
    assert json.loads(out) == {"sent": 150, "refused": 0, "dropped": 0, "late": 0, "too_late": 0}
    assert receiver.lines == [b"%d-%d" % (generation, number) for generation in range(3) for number in range(50)]

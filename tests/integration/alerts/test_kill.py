"""kill -9 while a message is being sent: it is sent again, and its receiver can recognize it."""

import subprocess
import sys
from pathlib import Path

from holdfast.alerts import AlertStore
from holdfast.alerts.alerter import CLAIM_SECONDS
from holdfast.engines.sqlite import SqliteDatabase
from tests.support.alert_receivers import PATIENCE, Answer, receiving
from tests.unit.alerts.world import START, verdict

ROOT = Path(__file__).parents[3]


def start(path: Path, url: str, at: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.integration.alerts.killed", str(path), url, str(at)]
    return subprocess.Popen(command, cwd=ROOT)


def test_a_message_whose_sender_was_killed_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    """Two interpreters, so it takes more than a second."""
    path = tmp_path / "alerts.sqlite"
    with receiving() as receiver:
        receiver.answers.append(Answer(hangs=True))
        victim = start(path, receiver.url, START + 100)
        receiver.wait_for(1)  # it was written to the outbox, and is being sent
        victim.kill()
        victim.wait(PATIENCE)
        assert start(path, receiver.url, START + 100 + CLAIM_SECONDS).wait(PATIENCE) == 0
        first, second = receiver.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    with SqliteDatabase(path) as database:
        [delivery] = AlertStore(database).get(verdict().id).deliveries
    assert (delivery.state, delivery.attempts) == ("delivered", 2)

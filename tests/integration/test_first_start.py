"""The example that `make demo` runs shows a real server and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
STUCK = 30.0


def start(**environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "first_start.py")],
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def require_gone(line: str) -> None:
    """Nobody listens any more where the example's first line says that the server does."""
    match = re.search(r"http://[\d.:]+", line)
    assert match, line
    address = urlsplit(match[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((str(address.hostname), int(address.port or 0))).close()


def test_it_shows_what_the_server_does_and_ends_by_itself() -> None:
    with start() as example:
        output, errors = example.communicate(timeout=STUCK)
    assert (example.returncode, errors) == (0, "")
    said = [line[43:] for line in output.splitlines()]
    assert said[1:4] == ["ok", "ready", "operator"]
    assert said[4].endswith(", role viewer")
    assert said[5] == "first look"
    assert "has been revoked" in said[6]
    assert said[7] == "event: hello"
    assert re.fullmatch(r"in \d+\.\d\d s, exit code 0", said[8])
    assert len(said) == 9
    require_gone(said[0])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_no_server_behind_when_it_is_stopped(how: signal.Signals) -> None:
    with start() as example:
        assert example.stdout is not None
        first = example.stdout.readline()
        example.send_signal(how)
        example.communicate(timeout=STUCK)
    # It may have come to its end before the signal reached it.
    assert example.returncode in {0, 1, 130}
    require_gone(first)


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    with start(HOLDFAST_SETTINGS=str(tmp_path / "missing.toml")) as example:
        output, errors = example.communicate(timeout=STUCK)
    assert (example.returncode, output) == (1, "")
    assert re.search(r"the server did not start: .*missing\.toml does not exist", errors)

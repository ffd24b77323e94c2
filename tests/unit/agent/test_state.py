"""The state in a file is always whole."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast import SettingsError, Zone
from holdfast.agent.state import AgentState, StateFile

OUT = AgentState(
    zone=Zone("use1-az1"),
    workload="shop",
    zones_out=frozenset({Zone("use1-az2"), Zone("use1-az1")}),
    changed_at=1_000.5,
)
WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from holdfast.agent.state import StateFile
from holdfast.agent.state import AgentState

file = StateFile(Path(sys.argv[1]))
out = [frozenset(f"{kind}-{number}" for number in range(20_000)) for kind in "ab"]
states = [AgentState(zone="z", workload=None, zones_out=each, changed_at=at) for at, each in enumerate(out)]
while True:
    for state in states:
        file.write(state)
"""


def test_the_file_says_what_is_known_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "zones.json"
    StateFile(path).write(OUT)
    assert json.loads(path.read_text()) == {
        "zone": "use1-az1",
        "workload": "shop",
        "zones_out": ["use1-az1", "use1-az2"],
        "out": True,
        "changed_at": 1_000.5,
    }
    assert path.stat().st_mode & 0o444 == 0o444, "others are meant to read it"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_of_it_also_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "zones.json"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as process:
        try:
            deadline = time.monotonic() + 20
            seen: set[float] = set()
            reads = 0
            while reads < 50 or len(seen) < 2:
                assert time.monotonic() < deadline
                assert process.poll() is None
                if path.exists():
                    found = json.loads(path.read_text())
                    assert len(found["zones_out"]) == 20_000
                    seen.add(found["changed_at"])
                    reads += 1
        finally:
            process.kill()
    assert len(json.loads(path.read_text())["zones_out"]) == 20_000


def test_what_a_killed_agent_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("zones.json", ".zones.json", ".other.json.12.tmp", "zones.json.tmp")]
    for path in (*kept, tmp_path / ".zones.json.0a1b2c3d.tmp"):
        path.write_text("{")
    StateFile(tmp_path / "zones.json").remove_temporary_files()
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    StateFile(tmp_path / "no" / "folder.json").remove_temporary_files()


def test_what_cannot_be_written_is_told_to_be_tried_again_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "zones.json"
    path.mkdir()
    assert StateFile(path).receive(OUT, threading.Event()) is False
    assert f"cannot write agent.file {path}, trying again: " in caplog.text
    assert list(tmp_path.iterdir()) == [path]
    path.rmdir()
    assert StateFile(path).receive(OUT, threading.Event()) is True
    assert path.exists()


def test_a_path_without_a_name_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"agent.file / is a folder"):
        StateFile(Path("/"))

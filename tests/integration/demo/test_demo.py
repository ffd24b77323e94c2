"""The whole loop, for real, in a short run."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import VerdictKind
from holdfast.demo.records import InjectedFault, SentRequest, read_records
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore
from holdfast.watch import WatchStore
from tests.table import sampled

QUICK = ["--bin-seconds", "2"]


def processes_of(directory: Path) -> list[int]:
    """The processes that mention the directory of a run on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command and b"holdfast.demo" in command:
                found.append(int(entry.name))
    return found


def wait_until_none_is_left(directory: Path) -> None:
    for _ in range(100):
        if not processes_of(directory):
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail(f"processes {processes_of(directory)} were left behind")


def start(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "demo", "--directory", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = start(directory, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(directory: Path, *arguments: str, seconds: float) -> dict[str, Any]:
    with running(directory, "--json", *arguments) as process:
        output, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    answer: dict[str, Any] = json.loads(output)
    return answer


@pytest.mark.proof  # docs/tutorial/demo.md, whose commands are tested, shows the same summary
def test_the_zone_is_found_and_the_processes_own_records_bear_the_summary_out(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "it's here"
    answer = run(folder, *QUICK, "--zone", "use1-az3", "--fault", "both", seconds=90)
    summary = answer["summary"]
    assert answer["found"]
    assert (summary["zone"], summary["wrong_zones"]) == ("use1-az3", [])

    faults = [fault for file in folder.glob("i-*.jsonl") for fault in read_records(file, InjectedFault)]
    assert {fault.zone for fault in faults} == {"use1-az3"}
    assert len(faults) == 2
    assert summary["fault_at"] == min(fault.at for fault in faults)

    with SqliteDatabase(folder / "data" / "watch.sqlite") as database:
        verdicts = WatchStore(database).verdicts()
    assert {each.zone for each in verdicts} <= {None, "use1-az3"}, "no verdict is about a healthy zone"
    [verdict] = [each for each in verdicts if each.kind is VerdictKind.ISOLATED]
    assert (verdict.zone, verdict.opened_at) == ("use1-az3", summary["verdict_at"])
    with SqliteDatabase(folder / "data" / "status.sqlite") as database:
        [status] = SqlStatusStore(database).read()
    assert (status.zone, status.since) == ("use1-az3", summary["out_at"])
    assert summary["seconds_to_verdict"] == pytest.approx(verdict.opened_at - summary["fault_at"], abs=0.001)
    assert 0 < summary["seconds_to_verdict"] < 30

    sent = list(read_records(folder / "client.jsonl", SentRequest))
    last = max(request.at for request in sent if request.zone == "use1-az3")
    assert summary["last_request_at"] == last
    assert summary["out_at"] - 0.5 < last < summary["out_at"] + 5, "the client obeyed, and soon"
    after = [request for request in sent if request.at > last]
    assert summary["after"] == {"requests": len(after), "failed": sum(request.failed for request in after)}
    assert summary["after"]["requests"] > 0
    assert summary["after"]["failed"] == 0
    until = [request for request in sent if summary["fault_at"] <= request.ended_at and request.at <= last]
    assert summary["until_last_request"] == {
        "requests": len(until),
        "failed": sum(request.failed for request in until),
    }
    assert summary["until_last_request"]["failed"] > 0
    assert summary["before_fault"]["failed"] == 0

    assert json.loads((folder / "summary.json").read_text()) == summary
    assert ElementTree.parse(folder / "timeline.svg").getroot().tag.endswith("svg")
    wait_until_none_is_left(folder)


@pytest.mark.proof
def test_with_bins_of_ten_seconds_the_zone_is_found_within_thirty_seconds(tmp_path: Path) -> None:
    answer = run(tmp_path, seconds=110)
    assert answer["found"]
    assert 0 < answer["summary"]["seconds_to_verdict"] < 30


@pytest.mark.proof
def test_a_zone_that_is_only_slow_is_found(tmp_path: Path) -> None:
    answer = run(tmp_path, *QUICK, "--fault", "latency", seconds=90)
    assert answer["found"]
    assert 0 < answer["summary"]["seconds_to_verdict"] < 30
    assert answer["summary"]["until_last_request"]["failed"] == 0


@pytest.mark.parametrize("sent", sampled([signal.SIGKILL, signal.SIGTERM]))
def test_however_it_is_ended_no_process_is_left(tmp_path: Path, sent: signal.Signals) -> None:
    with running(tmp_path, "--keep-running") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "client sends" in line:
                break
        assert len(processes_of(tmp_path)) >= 8
        process.send_signal(sent)
        process.wait(20)
    wait_until_none_is_left(tmp_path)


def test_an_interrupt_while_processes_start_is_told_and_no_process_is_left(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert process.stdout is not None
        assert "server on" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "holdfast: interrupted\n")
    wait_until_none_is_left(tmp_path)


@pytest.mark.proof
def test_a_process_that_dies_ends_the_run_with_its_name(tmp_path: Path) -> None:
    with running(tmp_path, "--keep-running") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "client sends" in line:
                break
        [victim] = [
            pid for pid in processes_of(tmp_path) if b"i-use1-az1-1" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(victim, signal.SIGKILL)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "i-use1-az1-1 ended before the run did" in errors
    wait_until_none_is_left(tmp_path)


@pytest.mark.proof
def test_a_zone_that_only_fails_is_found_and_told_in_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    with running(tmp_path, *QUICK, "--fault", "errors") as process:
        output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    for text in (
        "server on http://127.0.0.1:",
        "FAULT in use1-az2: 40%",
        "still answers 200",
        "history of 35 minutes, generated and sent",
        "VERDICT isolated: use1-az2 fails ",
        "OUT use1-az2",
        "RECOVERED: ",
    ):
        assert text in output
    assert "Zone use1-az2 was detected and evacuated." in output


def test_a_zone_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "--zone", "use1-az9") as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "use1-az9" in errors

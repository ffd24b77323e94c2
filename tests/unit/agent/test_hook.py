"""A hook is a real process: it may fail, hang, flood and leave children, and nothing of it hurts the agent."""

import logging
import os
import shlex
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SettingsError, Zone
from holdfast.agent.hook import TAIL_BYTES, Hook
from holdfast.agent.state import AgentState

SOON = 10.0
NEVER = threading.Event()
IN = AgentState(zone=Zone("use1-az1"), workload=None, changed_at=1.0)
OUT = AgentState(
    zone=Zone("use1-az1"), workload="shop", zones_out=frozenset({Zone("use1-az3"), Zone("use1-az1")}), changed_at=1.0
)


def shell(script: str) -> str:
    return f"sh -c {shlex.quote(script)}"


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    """Whether it runs; what has ended and was not reaped yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("state", "lines"),
    [
        (OUT, ["use1-az1", "shop", "out", "use1-az1 use1-az3"]),
        (IN, ["use1-az1", "", "in", ""]),
    ],
)
def test_a_hook_is_told_by_its_environment(tmp_path: Path, state: AgentState, lines: list[str]) -> None:
    script = (
        'printf "%s\\n" "$HOLDFAST_ZONE" "$HOLDFAST_WORKLOAD" "$HOLDFAST_STATE" "$HOLDFAST_ZONES_OUT" "$HOME" > "$0"'
    )
    assert Hook(f"{shell(script)} {shlex.quote(str(tmp_path / 'told'))}", SOON).receive(state, NEVER)
    assert (tmp_path / "told").read_text().splitlines() == [*lines, os.environ["HOME"]]


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    assert Hook(f"touch '{tmp_path}/a b' {tmp_path}/'$HOME;x'", SOON).receive(IN, NEVER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$HOME;x", "a b"]


def test_a_hook_has_no_input_to_wait_for() -> None:
    assert Hook("cat", SOON).receive(IN, NEVER)


def test_a_failure_is_logged_with_its_exit_code_and_the_end_of_its_output(caplog: pytest.LogCaptureFixture) -> None:
    assert not Hook(shell("echo to be seen; echo as well >&2; exit 7"), SOON).receive(OUT, NEVER)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        "agent.hook failed (exit code 7), trying again",
    )
    assert vars(record)["exit_code"] == 7
    assert vars(record)["output"] == "to be seen\nas well"


def test_a_flood_of_output_neither_stops_the_hook_nor_fills_memory(caplog: pytest.LogCaptureFixture) -> None:
    flood = "import sys\nfor _ in range(200): sys.stdout.write('x' * 100_000)\nprint('the end')\nsys.exit(1)"
    assert not Hook(f"python3 -c {shlex.quote(flood)}", SOON).receive(OUT, NEVER)
    (record,) = caplog.records
    output = vars(record)["output"]
    assert output.endswith("xxx" + "the end")
    assert len(output) <= TAIL_BYTES


def test_output_that_is_no_text_is_logged_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    assert not Hook(shell(r"printf '\377'; exit 1"), SOON).receive(OUT, NEVER)
    assert vars(caplog.records[0])["output"] == "\ufffd"


def test_a_hook_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the hook nor its child heeds SIGTERM."""
    script = f"trap '' TERM; sleep 600 & echo $$ $! > {tmp_path}/pids; wait; sleep 600"
    begun = time.monotonic()
    assert not Hook(shell(script), 0.5, grace=0.2).receive(OUT, NEVER)
    assert 0.7 <= time.monotonic() - begun < SOON
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    until(lambda: not any(map(is_alive, pids)))
    assert "agent.hook failed (timed out after 0.5 s)" in caplog.text


def test_a_hook_that_floods_for_ever_is_ended_too() -> None:
    begun = time.monotonic()
    assert not Hook("yes", 0.2, grace=0.2).receive(OUT, NEVER)
    assert time.monotonic() - begun < SOON


def test_a_hook_that_heeds_the_first_signal_may_clean_up(tmp_path: Path) -> None:
    script = f"trap 'echo clean > {tmp_path}/done; exit 0' TERM; echo > {tmp_path}/ready; while :; do sleep 0.01; done"
    begun = time.monotonic()
    assert not Hook(shell(script), 1.0, grace=SOON).receive(OUT, NEVER)
    assert (tmp_path / "done").read_text() == "clean\n"
    assert time.monotonic() - begun < SOON, "nobody waits for the rest of the grace"


def test_a_hook_is_ended_when_the_agent_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopping = threading.Event()
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600"
    hook = Hook(shell(script), 600.0)
    thread = threading.Thread(target=hook.receive, args=(OUT, stopping))
    thread.start()
    until((tmp_path / "pid").exists)
    begun = time.monotonic()
    stopping.set()
    thread.join(SOON)
    assert time.monotonic() - begun < 1.5
    until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    assert caplog.text == ""


def test_a_child_that_outlives_a_hook_keeps_it_from_nothing(tmp_path: Path) -> None:
    """A hook may start a daemon, which has inherited its output."""
    begun = time.monotonic()
    assert Hook(shell(f"sleep 600 & echo $! > {tmp_path}/pid"), SOON).receive(OUT, NEVER)
    assert time.monotonic() - begun < SOON / 2
    child = int((tmp_path / "pid").read_text())
    assert is_alive(child)
    os.kill(child, 9)


def test_a_hook_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    assert Hook(shell(f"exec >&- 2>&-; sleep 0.1; echo > {tmp_path}/done"), SOON).receive(OUT, NEVER)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("no-such-program --now", "this user cannot run a program 'no-such-program'"),
        ("/no/such/program", "this user cannot run a program '/no/such/program'"),
        ("/etc/passwd", "this user cannot run a program '/etc/passwd'"),
        ("echo 'half", "is not a valid command: No closing quotation"),
        ("", "agent.hook is empty"),
        ("  ", "agent.hook is empty"),
    ],
)
def test_a_hook_that_cannot_be_started_is_an_error_of_the_settings(command: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        Hook(command, SOON)


def test_a_hook_that_has_gone_meanwhile_is_a_failure_to_be_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "hook"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    hook = Hook(str(program), SOON)
    assert hook.receive(OUT, NEVER)
    program.unlink()
    assert not hook.receive(OUT, NEVER)
    assert "could not start agent.hook, trying again" in caplog.text

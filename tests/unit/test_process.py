"""The identity of a process, and how others see that it has ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast._process import ProcessIdentity, decode_identity, encode_identity

PROGRAM = (
    "import sys; from holdfast._process import ProcessIdentity, encode_identity; "
    "print(encode_identity(ProcessIdentity.of_this_process()), flush=True); sys.stdin.read()"
)


def start_process() -> "subprocess.Popen[str]":
    """Start a process that prints its identity, and waits."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, text=True)


def read_identity(process: "subprocess.Popen[str]") -> ProcessIdentity:
    assert process.stdout is not None
    return decode_identity(process.stdout.readline())


def test_a_process_has_ended_only_if_that_is_certain() -> None:
    with start_process() as process:
        identity = read_identity(process)
        assert not identity.has_ended()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert identity.has_ended(), "a zombie"
    assert identity.has_ended()
    assert not replace(identity, boot="another host").has_ended()
    own = ProcessIdentity.of_this_process()
    assert decode_identity(encode_identity(own)) == own
    assert replace(own, started="1").has_ended(), "its number was given to another process"
    assert not decode_identity("of another release").has_ended()


def test_a_process_of_another_user_that_is_hidden_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the option hidepid of /proc, which hides processes, but not from signals."""
    own = ProcessIdentity.of_this_process()
    monkeypatch.setattr("holdfast._process._read_stat", lambda _: ("", ""))
    assert not own.has_ended()


def test_without_proc_a_process_is_looked_for_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._process.sys.platform", "darwin")
    own = ProcessIdentity.of_this_process()
    answers: dict[int, type[OSError] | None] = {1: PermissionError, 2: ProcessLookupError, 3: None}

    def kill(pid: int, number: int) -> None:
        assert number == 0
        error = answers[pid]
        if error is not None:
            raise error

    monkeypatch.setattr(os, "kill", kill)
    assert [replace(own, pid=pid).has_ended() for pid in answers] == [False, True, False]


def test_a_host_without_an_id_of_its_boot_is_named_by_its_network_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fail)
    identity = ProcessIdentity.of_this_process()
    assert identity.boot.startswith(f"{identity.host}/")
    assert identity.started == ""

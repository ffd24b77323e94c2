"""A preloaded process is like one that was executed: streams, folder, environment, signals and its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.preloaded import Preloaded, install_shims, run_preloaded
from tests.table import rows

STUCK = 30.0
PROGRAM = (
    "import os, sys; print(sys.stdin.read(), os.getcwd(), os.environ['WORD'], sys.argv[1:], file=sys.{}); sys.exit(3)"
)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("stream", "other"), [("stdout", "stderr"), ("stderr", "stdout")])
def test_it_has_its_own_streams_folder_environment_and_arguments(stream: str, other: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(stream), "a", "b"]
    finished = run_preloaded(command, cwd=tmp_path, env={"WORD": "grün"}, piped="input ü", text=True, timeout=STUCK)
    assert finished.returncode == 3
    assert getattr(finished, stream) == f"input ü {tmp_path} grün ['a', 'b']\n"
    assert getattr(finished, other) == ""
    assert os.environ.get("WORD") is None


THREAD = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"


@rows(
    "program",
    [
        "import warnings; warnings.warn('old')",
        "raise ValueError('no')",
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('refused')",
        "import atexit; atexit.register(print, 'the end')",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        THREAD,
    ],
)
def test_it_ends_as_a_program_that_was_executed(program: str) -> None:
    command = [sys.executable, "-W", "error", "-c", program]
    executed = subprocess.run(command, capture_output=True, text=True, check=False)
    preloaded = run_preloaded(command, text=True, timeout=STUCK)
    assert (preloaded.returncode, preloaded.stdout) == (executed.returncode, executed.stdout)
    assert preloaded.stderr.splitlines()[-1:] == executed.stderr.splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_and_nothing_is_left(number: signal.Signals) -> None:
    with Preloaded([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(STUCK) == process.poll() == -number
    assert not alive(process.pid)


def test_commands_of_a_shell_start_in_the_same_way_and_end_with_their_shim(tmp_path: Path) -> None:
    install_shims(tmp_path)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    script = "holdfast --version | cat; holdfast nothing; echo $?; python -c 'import os; print(os.getpid())'"
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    version, code, _ = ran.stdout.splitlines()
    assert version[0].isdigit()
    assert code == "2"
    assert "Unknown command" in ran.stderr
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen([tmp_path / "python", "-c", program], stdout=subprocess.PIPE) as shim:
            assert shim.stdout is not None
            pid = int(shim.stdout.readline())
            shim.send_signal(number)
            assert shim.wait(STUCK) == -number
        end = time.monotonic() + STUCK
        while alive(pid):
            assert time.monotonic() < end, "the process outlives the shim that started it"
            time.sleep(0.01)

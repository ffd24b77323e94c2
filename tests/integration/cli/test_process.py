"""The command as a process of its own: signals, pipes, imports, and a server beside it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import holdfast
from holdfast.compose import Databases, open_status_store
from holdfast.config import Settings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.watch import WatchStore
from tests.integration.server.process import COMMAND, STUCK, HoldfastServer, environment
from tests.integration.server.process import holdfast as run
from tests.support.preloaded import Preloaded
from tests.table import sampled

HEAVY = {"apsw", "boto3", "botocore", "litestar", "psycopg", "uvicorn"}


def python(script: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new interpreter; without the coverage that it would be measured with."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=directory,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=STUCK,
        check=False,
    )


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """Standard output of a command whose reader has seen enough before it began."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_the_installed_command_is_the_module(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("holdfast")
    installed = subprocess.check_output([command, "--version"], text=True, timeout=STUCK)
    assert installed == run("--version", directory=tmp_path).stdout == f"{holdfast.__version__}\n"


def imported_by(commands: Sequence[Sequence[str]], directory: Path) -> Iterator[tuple[str, set[str]]]:
    """Run commands one after the other in a new interpreter; yields each with all modules that it has then."""
    script = (
        "import sys\nfrom holdfast.cli import main\n"
        f"for words in {commands!r}:\n    assert main(words) == 0, words\n    print('\\nmodules', *sys.modules)"
    )
    finished = python(script, directory)
    assert finished.returncode == 0, finished.stderr
    lines = [line for line in finished.stdout.splitlines() if line.startswith("modules ")]
    for words, line in zip(commands, lines, strict=True):
        yield " ".join(words), set(line.split())


def test_a_command_imports_no_engine_and_no_server_that_it_does_not_need(tmp_path: Path) -> None:
    for words, modules in imported_by([["--version"], ["--help"], ["completion", "bash"], ["check"]], tmp_path):
        assert "holdfast.cli" in modules, words
        assert modules & HEAVY == set(), words


def test_looking_at_what_was_changed_and_managing_credentials_need_no_server_to_be_installed(tmp_path: Path) -> None:
    values = Settings(data_directory=tmp_path / "holdfast-data")
    with Databases(values) as databases:
        open_status_store(values, databases)
    script = "import sys; sys.modules['litestar'] = sys.modules['uvicorn'] = None\nfrom holdfast.cli import main\n"
    script += "sys.exit(main(['zone', 'history']) or main(['credential', 'create', '--role', 'operator']))"
    finished = python(script, tmp_path)
    assert finished.returncode == 0, finished.stderr
    changes, credential = finished.stdout.splitlines()[:2]
    assert changes == "no server has recorded a change yet"
    assert credential.startswith("hf_")


def test_evacuating_a_zone_needs_no_server_to_be_installed(tmp_path: Path) -> None:
    values = Settings(data_directory=tmp_path / "holdfast-data")
    with Databases(values) as databases:
        open_status_store(values, databases)
        WatchStore(databases.database("watch"))
    zones = '"use1-az1", "use1-az2"'
    (tmp_path / "holdfast.toml").write_text(f'[[workload]]\nname = "shop"\nregion = "us-east-1"\nzones = [{zones}]\n')
    script = "import sys; sys.modules.update(dict.fromkeys(['litestar', 'uvicorn', 'numpy', 'boto3']))\n"
    script += "from holdfast.cli import main\n"
    words = ["zone", "evacuate", "use1-az1", "--reason", "it fails", "--yes", "--override", "verdict"]
    script += f"sys.exit(main({words}) or main(['zone', 'restore', '--all']))"
    finished = python(script, tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "use1-az1 is restored" in finished.stdout


@pytest.mark.parametrize("missing", sampled(["litestar", "uvicorn"]))
def test_a_server_that_is_not_installed_is_told_with_what_to_install(tmp_path: Path, missing: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None\nfrom holdfast.cli import main\nsys.exit(main(['up', '--json']))"
    )
    finished = python(script, tmp_path)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert json.loads(finished.stderr) == {
        "error": "missing-extra",
        "detail": "holdfast up needs the extra 'server': pip install 'holdfast-resilience[server]'",
    }


def test_a_database_driver_that_is_not_installed_is_told_with_what_to_install(tmp_path: Path) -> None:
    script = "import sys; sys.modules['psycopg'] = None\nfrom holdfast.cli import main\n"
    script += "sys.exit(main(['credential', 'list']))"
    finished = python(script, tmp_path, HOLDFAST_DATABASE__URL="postgresql://127.0.0.1/name")
    assert finished.returncode == 1
    assert "needs the extra 'postgres'" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("popen", [Preloaded, pytest.param(subprocess.Popen, marks=pytest.mark.proof)])
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["check"],
        ["check", "--json"],
        ["completion", "bash"],
        ["credential", "create", "--role", "operator"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_seen_enough_is_no_reason_for_a_traceback(
    tmp_path: Path, words: list[str], popen: "type[subprocess.Popen[str]]", closed_pipe: int
) -> None:
    assert told_to_closed_pipe(popen, words, tmp_path, closed_pipe) == (1, "")


def test_neither_is_it_when_the_interpreter_was_started_for_the_command(tmp_path: Path, closed_pipe: int) -> None:
    """What is left in the buffers is written when the interpreter ends."""
    assert told_to_closed_pipe(subprocess.Popen, ["check", "--json"], tmp_path, closed_pipe) == (1, "")


def told_to_closed_pipe(
    popen: "type[subprocess.Popen[str]]", words: Sequence[str], directory: Path, closed_pipe: int
) -> tuple[int, str]:
    """Run a command whose reader is gone; returns its exit code and what it printed to standard error."""
    with popen(
        [*COMMAND, *words],
        cwd=directory,
        env=environment(),
        stdout=closed_pipe,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, complaints = process.communicate(timeout=STUCK)
    return process.returncode, complaints


def test_an_interrupt_ends_a_command_that_waits_with_130_and_no_traceback(tmp_path: Path) -> None:
    """It waits for a PostgreSQL that takes the connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/name"
        process = Preloaded(
            [*COMMAND, "credential", "list"],
            cwd=tmp_path,
            env=environment(HOLDFAST_DATABASE__URL=url, HOLDFAST_DATABASE__TIMEOUT="60"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(STUCK)
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(STUCK)
            assert connection.recv(1)
            process.send_signal(signal.SIGINT)
            printed = process.communicate(timeout=STUCK)
    assert process.returncode == 130
    assert printed == ("", "holdfast: interrupted\n")


INTERRUPTED_AT_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


def test_an_interrupt_while_the_commands_are_imported_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT_IMPORT)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    finished = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo"],
        env=environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=STUCK,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "holdfast: interrupted\n")


@pytest.mark.parametrize(
    "words", sampled([["completion", "bash"], ["--version", "--json"], ["demo"]], 2), ids=["much", "json", "lines"]
)
def test_a_full_standard_output_is_told_and_exits_with_1(tmp_path: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            env=environment(TMPDIR=str(tmp_path)),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=STUCK,
            check=False,
        )
    text = "standard output cannot be written: No space left on device"
    told = (
        json.dumps({"error": "output", "detail": text}, separators=(",", ":"))
        if "--json" in words
        else f"holdfast: {text}"
    )
    assert (finished.returncode, finished.stderr) == (1, f"{told}\n")


def test_a_backup_is_made_beside_a_running_server(tmp_path: Path) -> None:
    with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
        created = operator.post("/v1/credentials", json={"role": "viewer"}).json()
        finished = run("backup", "copies", "--json", directory=tmp_path)
        assert finished.returncode == 0, finished.stderr
        copies = [(copy["source"], copy["copy"]) for copy in json.loads(finished.stdout)]
        assert copies == [
            (f"data/{name}.sqlite", f"copies/{name}.sqlite") for name in ("evacuation", "server", "status", "watch")
        ]
        assert operator.get("/ready").status_code == 200
    # The copy alone is a Holdfast that knows the same credentials.
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    (tmp_path / "copies" / "server.sqlite").rename(other / "data" / "server.sqlite")
    with SqliteDatabase(other / "data" / "server.sqlite") as database:
        database.check()
    with HoldfastServer.start(other) as restored, restored.client(created["token"]) as viewer:
        assert restored.token is None
        assert viewer.get("/v1/whoami").json()["role"] == "viewer"


def test_people_are_told_the_address_and_the_credential_on_lines_of_their_own(tmp_path: Path) -> None:
    command = [*COMMAND, "up", "--port", "0"]
    with Preloaded(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline(), process.stdout.readline()]
            process.terminate()
            rest, _ = process.communicate(timeout=STUCK)
        finally:
            process.kill()
    assert lines[0].startswith(f"Holdfast {holdfast.__version__} on http://127.0.0.1:")
    assert lines[1].startswith("Operator's credential, shown only once: hf_")
    assert (process.returncode, rest) == (0, "")

"""Coverage of pure modules: what is traced, and what is said about branches that nobody has run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tracing

BRANCH = "def sign(number):\n    if number < 0:\n        return '-'\n    return '+'\n"


@pytest.fixture(scope="module")
def pure_modules() -> list[Path]:
    return tracing.pure_modules(tracing.find_pure_modules())


def test_pure_modules_are_those_that_the_script_prints(pure_modules: list[Path]) -> None:
    assert tracing.ROOT / "src" / "holdfast" / "_backoff.py" in pure_modules
    assert all(path.exists() for path in pure_modules)


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("queue/rules/bucket", ["queue/rules/test_bucket"]),
        ("_types", ["test_types"]),
        ("queue/metrics", [f"queue/test_metrics{more}" for more in ("_emf", "_logs", "_opentelemetry")]),
        ("calls/retry", ["calls/test_retry", "calls/test_limits"]),
    ],
)
def test_tests_of_a_module_have_its_name_or_are_listed(module: str, tests: list[str]) -> None:
    source = tracing.ROOT / "src" / "holdfast" / f"{module}.py"
    unit = tracing.ROOT / "tests" / "unit"
    assert {unit / f"{path}.py" for path in tests} <= {*tracing.tests_of(source)}
    assert unit / "queue" / "test_message.py" not in tracing.tests_of(source)


def test_every_file_that_is_listed_exists(pure_modules: list[Path]) -> None:
    for name in tracing.TESTED_ELSEWHERE:
        module = tracing.ROOT / "src" / "holdfast" / f"{name}.py"
        assert module in pure_modules
        assert [path for path in tracing.tests_of(module) if not path.exists()] == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("from module import sign\nsign(1)", ["module.py: 3, 2->3"]),
        ("from module import sign\nsign(1), sign(-1)", []),
        ("import module", ["module.py: 2, 3, 4, 2->3, 2->4"]),
    ],
)
def test_a_branch_that_nobody_has_run_is_named(tmp_path: Path, test: str, expected: list[str]) -> None:
    """In a process of its own: a test that is traced itself cannot trace another."""
    (tmp_path / "module.py").write_text(BRANCH)
    program = f"""
        import sys
        from pathlib import Path
        from tests import tracing
        here = Path({str(tmp_path)!r})
        sys.path.insert(0, str(here))
        tracing.ROOT, tracing.DATA = here, here / "data"
        running = tracing.coverage_of([here / "module.py"], data_suffix=True)
        running.start()
        exec({test!r})
        running.stop()
        running.save()
        print(tracing.gaps([here / "module.py"]))
    """
    command = [sys.executable, "-c", "\n".join(line.strip() for line in program.splitlines())]
    variables = {**os.environ, "PYTHONPATH": str(tracing.ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=variables)
    assert run.stdout.strip() == repr(expected)


def test_the_process_that_traces_imports_ends_with_a_run_that_fails(tmp_path: Path) -> None:
    """That process is a script here, which takes longer than any run and writes its id."""
    programs = {"scripts/pure": "", "python": 'echo $$ > "$(dirname "$0")/id"\nexec sleep 100\n'}
    for name, lines in programs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(f"""
import sys
from pathlib import Path
from tests import tracing

tracing.ROOT = Path({str(tmp_path)!r})
tracing.DATA = tracing.ROOT / "coverage" / "data"
sys.executable = str(tracing.ROOT / "python")
""")
    (tmp_path / "test_it.py").write_text("""
import time
from pathlib import Path

def test_fails():
    path = Path(__file__).with_name("id")
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    assert False
""")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.tracing",
        "--branches",
        "-p",
        "no:cacheprovider",
        "test_it.py",
    ]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tracing.ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with (tmp_path / "printed").open("w") as output:
        ended = subprocess.run(
            command, cwd=tmp_path, env=variables, stdout=output, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, (tmp_path / "printed").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "id").read_text()), signal.SIGKILL)

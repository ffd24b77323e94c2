"""The gate: what is traced, and what it says about branches that nobody has run."""

import os
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

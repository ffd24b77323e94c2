"""How the tests themselves are run: what starts first, how far properties look, and tables in one test."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import EXAMPLES, TIMES, examples
from tests.docs.pages import ROOT
from tests.parts import group_of, part_of, rank
from tests.table import every_row, rows, sampled


@rows(
    ("nodeid", "part"),
    [
        ("tests/unit/queue/rules/test_turns.py::test_it", "queue"),
        ("tests/unit/test_clock.py::test_it", "base"),
        ("tests/integration/cli/test_zone.py::TestIt::test_it[a/b]", "cli"),
        ("tests/integration/test_services.py::test_it", "services"),
        ("tests/conformance/test_queue_sql.py::test_it", "queue"),
        ("tests/conformance/test_postgres_database.py::test_it", "engines"),
        ("tests/conformance/test_status_store.py::test_it", "status"),
        ("tests/docs/test_snippets.py::test_it", "docs"),
        ("tests/browser/test_page.py::test_it", "browser"),
    ],
)
def test_every_test_has_a_part(nodeid: str, part: str) -> None:
    assert part_of(nodeid) == part


def test_what_waits_starts_before_what_computes() -> None:
    demo, server, unit = "tests/integration/demo/test_demo.py", "tests/integration/server/x.py", "tests/unit/x.py"
    assert rank(demo) < rank(server) < rank(unit)


def test_tests_of_a_file_stay_together_and_those_that_take_longest_do_not() -> None:
    assert (
        group_of("tests/unit/x.py::test_a[1]") == group_of("tests/unit/x.py::test_b") != group_of("tests/unit/y.py::")
    )
    assert group_of("tests/docs/test_snippets.py::test_a[1]") != group_of("tests/docs/test_snippets.py::test_a[2]")
    assert group_of("tests/browser/test_a.py::test_a") == group_of("tests/browser/test_b.py::test_b"), "one Chromium"


def test_a_property_has_few_examples_in_every_run_and_more_than_it_asks_for_in_a_proof() -> None:
    assert examples(100, is_proof=False) == EXAMPLES
    assert examples(10, is_proof=False) == 10
    assert examples(100, is_proof=True) == 100 * TIMES


def test_a_table_names_every_row_that_fails() -> None:
    def check(row: int) -> None:
        assert row % 2, "even"

    every_row([1, 3], check)
    with pytest.raises(
        AssertionError, match=r"(?s)2 of 3 rows failed:.*2: AssertionError: even.*4: AssertionError: even"
    ):
        every_row([1, 2, 4], check)
    with pytest.raises(AssertionError, match="empty"):
        every_row([], check)


def test_a_test_is_called_with_every_row_and_keeps_its_fixtures() -> None:
    called = list[tuple[int, int, str]]()

    @rows("number", [1, 2])
    @rows(("half", "word"), [(0, "a"), (1, "b")])
    def test(fixture: list[tuple[int, int, str]], number: int, *, half: int, word: str) -> None:
        fixture.append((number, half, word))
        with pytest.raises(ZeroDivisionError):
            assert 1 / (half * (number - 1)) > 0

    assert list(inspect.signature(test).parameters) == ["fixture"]
    with pytest.raises(AssertionError, match=r"(?s)1 of 2 rows failed:.*\(2,\).*1 of 2 rows failed:.*DID NOT RAISE"):
        test(fixture=called)
    assert called == [(1, 0, "a"), (1, 1, "b"), (2, 0, "a"), (2, 1, "b")]


def test_all_but_the_first_cases_are_left_to_a_proof() -> None:
    first, second, third = sampled([1, 2, 3], 1)
    assert first == 1
    assert [case.values for case in (second, third)] == [(2,), (3,)]
    assert [mark.name for mark in second.marks] == ["proof"]


def test_an_installation_says_each_step_before_it_begins(tmp_path: Path) -> None:
    """The tools are replaced by ones that only say that they run: the real ones need minutes and a registry."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("pip", "uv"):
        (tools / name).write_text(f'#!/bin/sh\n[ "$1" = config ] || echo "{name} runs"\n')
        (tools / name).chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    run = subprocess.run([tmp_path / "scripts" / "install"], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert re.sub(r"\d+ packages.*", "N packages", run.stdout).splitlines() == [
        "make install: installing uv, which installs the rest faster",
        "pip runs",
        "make install: installing N packages",
        "uv runs",
        "make install: installing Holdfast itself",
        "uv runs",
    ]

"""Workers: which tests they get, what they share, and what happens when one dies. Each run is a real one of pytest."""

import os
import re
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT
from tests.workers import in_groups, take


def test_a_worker_gets_a_whole_group_until_few_tests_are_left() -> None:
    groups = deque([[1, 2, 3], [4], list(range(5, 13))])
    assert take(groups, 2) == [1, 2, 3]
    assert take(groups, 2) == [4]
    assert take(groups, 2) == [5, 6]
    assert list(groups) == [list(range(7, 13))]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_test_is_taken_once_and_in_order(workers: int) -> None:
    tests = list(range(500))
    groups = in_groups(tests, lambda number: number // 7 if number < 400 else 400)
    taken = list[int]()
    while share := take(groups, workers):
        taken += share
    assert taken == tests


def run(folder: Path, tests: str, *options: str) -> tuple[int, str]:
    """Run `tests` in two workers, and return the exit code and what was printed."""
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "--workers", "2", "-rA", "-p", "no:cacheprovider"]
    with (folder / "printed").open("w+") as output:  # no pipe: processes that the tests leave would keep it open
        ended = subprocess.run(
            [*command, *options, "test_it.py"],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        output.seek(0)
        return ended.returncode, output.read()


def test_outcomes_output_and_warnings_arrive_and_fixtures_end(tmp_path: Path) -> None:
    code, printed = run(
        tmp_path,
        """
import os, pytest, warnings
from pathlib import Path

@pytest.fixture(scope="session")
def shared():
    yield os.getpid()
    Path(f"ended-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(20))
def test_many(shared, number, tmp_path, worker_id):
    Path(f"began-{shared}").touch()
    assert shared == os.getpid() and worker_id in str(tmp_path)

def test_wrong():
    print("a printed line")
    assert 1 == 2

def test_warning():
    warnings.warn("beware")

@pytest.mark.skip(reason="not now")
def test_skipped(): pass

@pytest.fixture
def broken():
    yield
    raise ValueError("at its end")

def test_with_broken_fixture(broken): pass
""",
    )
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert "assert 1 == 2" in printed
    assert "a printed line" in printed
    assert "UserWarning: beware" in printed
    assert re.search("1 failed, 22 passed, 1 skipped, 1 warning, 1 error in", printed)
    began = {path.name.removeprefix("began-") for path in tmp_path.glob("began-*")}
    assert began == {path.name.removeprefix("ended-") for path in tmp_path.glob("ended-*")} != set()


def test_a_test_that_kills_its_worker_has_failed_and_all_others_run(tmp_path: Path) -> None:
    code, printed = run(
        tmp_path,
        """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_many(number):
    if number in (3, 11):
        os._exit(7)
""",
    )
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert re.search(r"the worker gw\d ended while it ran this test, with exit code 7", printed)
    assert "2 failed, 18 passed in" in printed


def test_a_run_that_is_to_stop_at_the_first_failure_stops_and_ends_fixtures(tmp_path: Path) -> None:
    """The other worker waits in its test for ever: only an interrupt ends it."""
    code, printed = run(
        tmp_path,
        """
import pytest, time
from pathlib import Path

@pytest.fixture
def closing():
    yield
    Path("closed").touch()

def test_waits(closing):
    Path("waiting").touch()
    time.sleep(50)

def test_fails():
    while not Path("waiting").exists():
        time.sleep(0.01)
    assert False
""",
        "-x",
    )
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert "1 failed in" in printed
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("error", ["BrokenPipeError", "EOFError", "ValueError"])
def test_a_session_fixture_that_fails_at_its_end_fails_the_last_test_of_its_worker(tmp_path: Path, error: str) -> None:
    """The other worker goes on: it runs a test that began before that failure and ends after it."""
    code, printed = run(
        tmp_path,
        f"""
import pytest, time
from pathlib import Path

@pytest.fixture(scope="session")
def broken():
    yield
    Path("broken").touch()
    raise {error}("at its end")

def test_goes_on():
    while not Path("broken").exists():
        time.sleep(0.01)
    assert 1 == 2

def test_passes(broken): pass
""",
    )
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert re.search(r"ERROR at teardown of test_passes _+\n\[gw\d\]\nthe worker gw\d ended after this test", printed)
    assert f"{error}: at its end" in printed
    assert "assert 1 == 2" in printed
    assert "1 failed, 1 passed, 1 error in" in printed


def test_a_worker_that_dies_is_noticed_although_a_process_that_its_test_forked_lives(tmp_path: Path) -> None:
    try:
        code, printed = run(
            tmp_path,
            """
import os, time
from pathlib import Path

def test_leaves_a_process():
    if child := os.fork():
        Path("child").write_text(str(child))
        os._exit(7)
    time.sleep(100)  # longer than this run may take

def test_passes(): pass
""",
        )
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert "1 failed, 1 passed in" in printed


def test_one_file_for_junit_has_all_tests(tmp_path: Path) -> None:
    code, printed = run(
        tmp_path,
        """
import os, pytest

@pytest.fixture(scope="session")
def broken():
    yield
    raise ValueError("at its end")

@pytest.mark.parametrize("number", range(20))
def test_many(number, broken):
    if number == 3:
        os._exit(7)
""",
        "--junitxml=junit.xml",
    )
    assert code == pytest.ExitCode.TESTS_FAILED, printed
    assert "INTERNALERROR" not in printed
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert {case.get("name") for case in suite} == {f"test_many[{number}]" for number in range(20)}
    assert suite.get("failures") == "1"
    assert printed.count("generated xml file") == 1


def test_warnings_of_any_class_arrive(tmp_path: Path) -> None:
    code, printed = run(
        tmp_path,
        """
import warnings

class ManyArguments(UserWarning):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def test_many_arguments():
    warnings.warn(ManyArguments("this", "that"))

def test_class_of_a_function():
    class Local(UserWarning): pass
    warnings.warn("from a function", Local)
""",
    )
    assert code == pytest.ExitCode.OK, printed
    assert "ManyArguments: this and that" in printed
    assert "Local: from a function" in printed
    assert "2 passed, 2 warnings in" in printed


def test_a_test_can_end_the_whole_run(tmp_path: Path) -> None:
    """The other worker waits in its test for ever: only an interrupt ends it."""
    code, printed = run(
        tmp_path,
        """
import pytest, time
from pathlib import Path

@pytest.fixture(scope="session")
def closing(worker_id):
    yield
    Path(f"closed-{worker_id}").touch()

def test_waits(closing):
    Path("waiting").touch()
    time.sleep(100)

def test_exits(closing):
    while not Path("waiting").exists():
        time.sleep(0.01)
    pytest.exit("enough", returncode=9)

def test_never_runs(): pass
""",
    )
    assert code == 9, printed
    assert "Exit: enough" in printed
    assert "no tests ran in" in printed
    assert len(list(tmp_path.glob("closed-*"))) == 2


def test_nothing_is_forked_if_a_test_cannot_be_collected(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "import nothing_of_that_name\ndef test_a(): pass\ndef test_b(): pass\n")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "nothing_of_that_name" in printed

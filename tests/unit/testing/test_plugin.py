"""The fixtures for pytest, in a pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path

SERVICE = """
from holdfast.calls import Dependency

pricing = Dependency("pricing")

@pricing.call(idempotent=True)
def price():
    return 7

@pricing.call(idempotent=True)
async def price_async():
    return 7
"""

TESTS = """
import asyncio
import pytest
import service
from holdfast._clock import SystemClock
from holdfast.calls.events import AttemptEnded, GaveUp
from holdfast.calls.runtime import PROCESS

def test_retries_do_not_wait(holdfast_calls):
    holdfast_calls.faults.on("pricing").fail(ConnectionResetError, times=2)
    before = holdfast_calls.clock.monotonic()
    assert service.price() == 7
    assert len(holdfast_calls.sleeps) == 2
    assert holdfast_calls.clock.monotonic() == pytest.approx(before + sum(holdfast_calls.sleeps))
    assert [event.number for event in holdfast_calls.events.of(AttemptEnded)] == [1, 2, 3]

def test_nothing_is_left_of_the_test_before(holdfast_calls):
    assert service.pricing.tokens == 500
    assert service.price() == 7
    assert holdfast_calls.sleeps == []
    assert len(holdfast_calls.events) == 1

def test_coroutines_too(holdfast_calls):
    holdfast_calls.faults.on().hang()
    with pytest.raises(TimeoutError):
        asyncio.run(service.price_async())
    assert len(holdfast_calls.events.of(GaveUp)) == 1

@pytest.mark.xfail(strict=True)
def test_that_fails(holdfast_calls):
    holdfast_calls.faults.on().fail(ConnectionResetError)
    service.price()

def test_without_it_calls_are_real():
    assert isinstance(PROCESS.clock, SystemClock)
    assert service.pricing._state.has_fast_path
    assert service.price() == 7
"""


def run(folder: Path, *, opted_in: bool) -> tuple[int, str]:
    (folder / "service.py").write_text(SERVICE)
    (folder / "test_service.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\npythonpath = .\n")
    (folder / "conftest.py").write_text('pytest_plugins = ["holdfast.testing.plugin"]\n' if opted_in else "")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_has_the_calls_of_its_process_in_its_hands_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code, output = run(tmp_path, opted_in=True)
    assert code == 0, output
    assert "4 passed, 1 xfailed" in output


def test_the_fixture_is_there_only_for_those_who_ask_for_it(tmp_path: Path) -> None:
    code, output = run(tmp_path, opted_in=False)
    assert code == 1
    assert "fixture 'holdfast_calls' not found" in output


def test_without_pytest_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['pytest'] = None\n"
        "try: import holdfast.testing.plugin\n"
        "except ImportError as error: print(error)"
    )
    assert "needs pytest" in subprocess.check_output([sys.executable, "-c", script], text=True)

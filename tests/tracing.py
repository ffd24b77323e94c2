"""Coverage of the pure modules: only they are traced, and only while their unit tests run.

A pytest plugin, active with `--gate`, as `make test` has it for a run of all tests. Tracing takes a test two to five
times as long, so it covers only what the gate asks for: every branch of every module that `scripts/pure` prints. The
tests of a pure module are in the folder below `tests/unit` that mirrors its own, or in one file for its package. A test
marked `no_cover` is not traced: it runs the same lines a million times, and other tests run them, too.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coverage import Coverage

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".cache" / "coverage" / "data"
NOT_COUNTED = ("if TYPE_CHECKING:", r"class .*\bProtocol(\[.*\])?\):", "@overload")
"""Lines that never run, or that have nothing to run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="fail unless every branch of the pure modules is tested")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before a conftest imports a module: its first lines run only once."""
    if early_config.known_args_namespace.gate and early_config.pluginmanager.get_plugin("tracing") is None:
        early_config.pluginmanager.register(Tracing(pure_modules()), "tracing")


def pure_modules() -> list[Path]:
    """Return what `scripts/pure` prints."""
    found = subprocess.run([ROOT / "scripts" / "pure"], stdout=subprocess.PIPE, text=True, check=True)
    return [ROOT / line for line in found.stdout.splitlines()]


@dataclass
class Tracing:
    """The plugin of one process: traces in a worker, and judges in the controller or the only process."""

    modules: Sequence[Path]

    def __post_init__(self) -> None:
        DATA.parent.mkdir(parents=True, exist_ok=True)
        self._is_on = False
        self._gaps: list[str] = []
        self._switch(True)

    @cached_property
    def _coverage(self) -> "Coverage":
        return coverage_of(self.modules, data_suffix=True)

    @cached_property
    def _traced(self) -> set[Path]:
        return {path for module in self.modules for path in tests_of(module)}

    def _switch(self, on: bool) -> None:
        if on != self._is_on:
            (self._coverage.start if on else self._coverage.stop)()
            self._is_on = on

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            for old in DATA.parent.glob(f"{DATA.name}*"):
                old.unlink()

    def pytest_collection_finish(self) -> None:
        self._switch(False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        is_traced = item.path.parent in self._traced or item.path in self._traced
        self._switch(is_traced and item.get_closest_marker("no_cover") is None)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._switch(False)
        self._coverage.save()
        if not hasattr(session.config, "workerinput") and exitstatus == pytest.ExitCode.OK:
            self._gaps = gaps(self.modules)
            if self._gaps:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._gaps:
            terminalreporter.section("pure modules with untested branches", red=True)
            for gap in self._gaps:
                terminalreporter.write_line(gap)


def coverage_of(modules: Sequence[Path], **more: Any) -> "Coverage":
    """Return a Coverage for the branches of `modules` and of nothing else."""
    from coverage import Coverage

    found = Coverage(
        config_file=False, branch=True, include=[str(module) for module in modules], data_file=str(DATA), **more
    )
    found.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
    for line in NOT_COUNTED:
        found.exclude(line)
    return found


def tests_of(module: Path) -> tuple[Path, Path]:
    """Return the folder of the tests of `module`, and the file that takes its place for a package with one test."""
    folder = ROOT / "tests" / "unit" / module.parent.relative_to(ROOT / "src" / "holdfast")
    return folder, folder.with_name(f"test_{folder.name}.py")


def gaps(modules: Sequence[Path]) -> list[str]:
    """Combine what all processes of the run saved, and name the lines and branches of `modules` that none has run."""
    combined = coverage_of(modules)
    combined.combine([str(DATA.parent)])
    report = DATA.with_name("report.json")
    combined.json_report([str(module) for module in modules], outfile=str(report))
    files = json.loads(report.read_text())["files"]
    found = []
    for name, file in sorted(files.items()):
        lines = [str(line) for line in file["missing_lines"]]
        branches = [f"{start}->{end}" for start, end in file["missing_branches"]]
        if lines or branches:
            found.append(f"{name}: {', '.join([*lines, *branches])}")
    missed = {str(module.relative_to(ROOT)) for module in modules} - files.keys()
    return found + [f"{name}: not measured" for name in sorted(missed)]

"""Coverage of the pure modules: only they are traced, and only while fixtures and functions of their unit tests run.

A pytest plugin, active with `--branches`, as `make proof PART=branches` has it. Tracing takes a test two to five times
as long, so it covers only every branch of every module that `scripts/pure` prints. `python -m tests.tracing` prints the
files with their tests. The tests of a pure module `queue/rules/bucket.py` are in
`tests/unit/queue/rules/test_bucket.py`, in files there whose name continues that one, and where `TESTED_ELSEWHERE` says
so. A test marked `no_cover` is not traced: it runs the same lines a million times, and other tests run them, too. The
lines of a module that run when it is imported are traced in a process of their own, beside the tests.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coverage import Coverage

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".cache" / "coverage" / "data"
NOT_COUNTED = ("if TYPE_CHECKING:", r"class .*\bProtocol(\[.*\])?\):", "@overload")
"""Lines that never run, or that have nothing to run."""

TESTED_ELSEWHERE = {
    "_errors": ["server/test_problems"],
    "_names": ["evacuate/test_evacuator", "queue/test_queue"],
    "alarms/contributors": ["alarms/test_recent_metrics"],
    "alarms/step_notes": ["alarms/test_recent_metrics"],
    "alarms/throughput": ["alarms/test_recent_metrics"],
    "aurora/names": ["aurora/test_template"],
    "aurora/network": ["aurora/test_template"],
    "aurora/roles": ["aurora/test_template"],
    "calls/classify": ["calls/test_dependency"],
    "calls/resolvers/resolver": ["calls/resolvers/test_resolvers"],
    "calls/retry": ["calls/test_limits"],
    "calls/scope": ["calls/test_context"],
    "cli/queue/rates": ["cli/test_queue_top"],
    "config/paths": ["config/test_load"],
    "evacuate/actions/capacity/scale_out": ["evacuate/test_capacity"],
    "evacuate/actions/ecs_services/deployments": ["evacuate/actions/test_ecs_deployments"],
    "evacuate/actions/eks_nodes/node_pools": ["evacuate/actions/test_kubernetes_rules"],
    "evacuate/actions/eks_nodes/pods": ["evacuate/actions/test_kubernetes_rules"],
    "evacuate/actions/eks_nodes/taints": ["evacuate/actions/test_kubernetes_rules"],
    "evacuate/groups": ["evacuate/test_auto_scaling_groups"],
    "metrics/instruments": ["metrics/test_exporter", "metrics/exporters/test_emf", "queue/test_metrics_worker"],
    "metrics/cardinality": ["queue/test_metrics_worker"],
    "queue/alarms": ["queue/test_metrics_worker"],
    "queue/backends/memory/ordered": ["queue/backends/test_memory", "queue/test_metrics_worker"],
    "queue/backends/sql/extra": ["queue/backends/sql/test_counters", "queue/backends/sql/test_plans"],
    "queue/backends/sql/message": ["queue/backends/sql/test_plans"],
    "queue/rules/admission": ["queue/backends/sql/test_counters"],
    "shards/designs/design": ["shards/designs/test_designs"],
    "shards/designs/parity": ["shards/designs/test_designs"],
    "shards/designs/polynomials": ["shards/designs/test_designs"],
    "shards/designs/quadruples": ["shards/designs/test_designs"],
    "shards/registry": ["shards/test_assignments"],
    "shards/report/table": ["cli/shards/test_failure"],
    "simulate/zones/disturbances": ["simulate/zones/test_scenarios"],
    "simulate/zones/other_failures": ["simulate/zones/test_scenarios"],
    "simulate/zones/zone_failures": ["simulate/zones/test_scenarios"],
    "status/sns/message": ["status/sns/test_receiver"],
    "status/stores/rules": ["status/stores/test_memory"],
    "telemetry/sinks/lines": ["telemetry/test_lines"],
    "telemetry/sources/emf_plan": ["telemetry/sources/test_emf"],
    "telemetry/sources/emf_record": ["telemetry/sources/test_emf"],
    "telemetry/sources/emf_values": ["telemetry/sources/test_emf"],
}
"""Files below `tests/unit` with tests of pure modules that have none of their own, or not for every branch."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--branches", action="store_true", help="fail unless every branch of the pure modules is tested")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--branches"):
        config.pluginmanager.register(Tracing(), "tracing")


def find_pure_modules() -> "subprocess.Popen[str]":
    """Start `scripts/pure`, which takes a second."""
    return subprocess.Popen([ROOT / "scripts" / "pure"], stdout=subprocess.PIPE, text=True)


def pure_modules(finding: "subprocess.Popen[str]") -> list[Path]:
    """Return what `scripts/pure` prints."""
    printed, _ = finding.communicate()
    if finding.returncode:
        raise RuntimeError(f"scripts/pure has failed, with exit code {finding.returncode}")
    return [ROOT / line for line in printed.splitlines()]


class Tracing:
    """Traces the tests of pure modules in every worker, and judges in the controller or the only process."""

    def __init__(self) -> None:
        DATA.parent.mkdir(parents=True, exist_ok=True)
        for old in DATA.parent.glob(f"{DATA.name}*"):
            old.unlink()
        self._finding = find_pure_modules()
        self._importing: subprocess.Popen[bytes] | None = None
        self._is_on = False
        self._is_wanted = False
        self._gaps: list[str] = []

    @cached_property
    def modules(self) -> list[Path]:
        return pure_modules(self._finding)

    @cached_property
    def _coverage(self) -> "Coverage":
        return coverage_of(self.modules, data_suffix=True)

    @cached_property
    def _traced(self) -> set[Path]:
        return all_tests_of(self.modules)

    def _switch(self, on: bool) -> None:
        if on != self._is_on:
            (self._coverage.start if on else self._coverage.stop)()
            self._is_on = on

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly:
            self._importing = subprocess.Popen([sys.executable, "-m", "tests.tracing", *self.modules], cwd=ROOT)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._is_wanted = item.path in self._traced and item.get_closest_marker("no_cover") is None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_fixture_setup(self) -> Iterator[None]:
        with self._tracing():
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        handle = getattr(getattr(item, "obj", None), "hypothesis", None)
        with self._tracing() if handle is None else self._tracing_each_example(handle):
            return (yield)

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        """Trace what runs here, if the current test is traced: not what pytest does before and after."""
        was_on = self._is_on
        self._switch(self._is_wanted)
        try:
            yield
        finally:
            self._switch(was_on)

    @contextmanager
    def _tracing_each_example(self, handle: Any) -> Iterator[None]:
        """Trace a property with each of its examples, but not Hypothesis, which chooses them and takes longer."""
        test = handle.inner_test

        @wraps(test)
        def traced(*arguments: Any, **more: Any) -> Any:
            with self._tracing():
                return test(*arguments, **more)

        handle.inner_test = traced
        try:
            yield
        finally:
            handle.inner_test = test

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._coverage.save()
        is_worker = hasattr(session.config, "workerinput")
        if self._importing is not None and not is_worker and exitstatus == pytest.ExitCode.OK:
            if self._importing.wait():
                raise RuntimeError("the pure modules could not be imported: the lines above say why")
            self._gaps = gaps(self.modules)
            if self._gaps:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        """End the processes that still run because the tests have failed, or were interrupted."""
        for process in (self._finding, self._importing):
            if process is not None:
                with process:
                    process.kill()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._gaps:
            terminalreporter.section("pure modules with untested branches", red=True)
            for gap in self._gaps:
                terminalreporter.write_line(gap)


def trace_imports(modules: Sequence[Path]) -> None:
    """Save which lines of `modules` run when they are imported. Needs a process that has imported none of them."""
    coverage = coverage_of(modules, data_suffix=True)
    coverage.start()
    for module in modules:
        import_module(".".join(module.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"))
    coverage.stop()
    coverage.save()


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


def tests_of(module: Path) -> list[Path]:
    """Return the files whose tests are traced for `module`."""
    unit, inside = ROOT / "tests" / "unit", module.relative_to(ROOT / "src" / "holdfast")
    name = f"test_{module.stem.lstrip('_')}"
    own = [path for path in (unit / inside.parent).glob(f"{name}*.py") if f"{path.stem}_".startswith(f"{name}_")]
    return own + [unit / f"{path}.py" for path in TESTED_ELSEWHERE.get(str(inside.with_suffix("")), ())]


def all_tests_of(modules: Sequence[Path]) -> set[Path]:
    """Return the files whose tests are traced for any of `modules`."""
    return {path for module in modules for path in tests_of(module)}


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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trace_imports([Path(argument) for argument in sys.argv[1:]])
    else:
        print(*sorted(all_tests_of(pure_modules(find_pure_modules()))), sep="\n")

"""The parts of the tests, such as `queue` or `docs`: which start first, and how much time each has used.

A pytest plugin. `part_of` says to which part a file belongs; the table at the end of a run shows what `make test`
spends its five minutes on.
"""

from collections import Counter, defaultdict
from pathlib import PurePath
from typing import Any

import pytest

BROWSER = "tests/browser"
LONGEST_FIRST = (
    "tests/integration/demo",
    "tests/docs/test_snippets.py",
    BROWSER,
    "tests/integration",
    "tests/docs",
    "tests/typing",
    "tests/conformance",
)
"""What waits for processes and services starts first: at the end of the run, one worker would wait for it alone."""
CONFORMANCE = {
    "credential": "server",
    "deploy": "watch",
    "lease": "watch",
    "postgres": "engines",
    "sqlite": "engines",
    "shard": "shards",
}


def part_of(nodeid: str) -> str:
    """Return the part of a test: the folder of `src/holdfast` that it is about, or the kind of the test itself."""
    _, kind, *below = PurePath(nodeid.partition("::")[0]).parts
    if kind in ("unit", "integration") and len(below) > 1:
        return below[0]
    if kind == "conformance":
        subject = below[0].split("_")[1]
        return CONFORMANCE.get(subject, subject)
    return {"unit": "base", "integration": "services"}.get(kind, kind)


def rank(nodeid: str) -> int:
    """Return how early a test starts: 0 is first."""
    return next(
        (number for number, prefix in enumerate(LONGEST_FIRST) if nodeid.startswith(prefix)), len(LONGEST_FIRST)
    )


def group_of(nodeid: str) -> str:
    """Return which tests one worker runs one after another: those of a file, or one test if it takes long.

    All tests in the browser are one group, because every worker has a Chromium of its own.
    """
    if nodeid.startswith(BROWSER):
        return BROWSER
    return nodeid if rank(nodeid) < 2 else nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))


class Times:
    """What each part has used, counted where all reports arrive."""

    def __init__(self) -> None:
        self._tests: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        part = part_of(report.nodeid)
        self._tests[part] += report.when == "call"
        self._seconds[part] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self._seconds) < 2:
            return
        terminalreporter.section("seconds by part, all workers together")
        for part, seconds in sorted(self._seconds.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{part:<12} {self._tests[part]:6} tests {seconds:8.1f} s")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(), "times")

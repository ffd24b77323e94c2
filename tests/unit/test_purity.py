"""Modules that are marked as pure import nothing that is not, and are found where they are."""

import subprocess
from pathlib import Path

import pytest
from grimp import build_graph

from scripts.purity import PureContract, is_pure

ROOT = Path(__file__).parents[2]
PURE = '"""Decides. Pure."""\n'


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("import socket\n")
    (package / "clock.py").write_text("import time\n")
    (package / "values.py").write_text("from math import inf\n")
    monkeypatch.syspath_prepend(tmp_path)
    return package


def chains(toy: Path, rule: str) -> list[tuple[str, ...]]:
    """What the contract says against a module `toy.rule` of this text."""
    (toy / "rule.py").write_text(rule)
    options = {"root_packages": ["toy"], "include_external_packages": True}
    contract = PureContract("pure", options, {"allowed": ["math", "typing", "urllib.parse"]})
    found = contract.check(build_graph("toy", cache_dir=None, include_external_packages=True), verbose=False)
    said: list[tuple[str, ...]] = found.metadata["chains"]
    assert found.kept == (not said)
    return said


@pytest.mark.parametrize(
    ("imports", "chain"),
    [
        ("import time", ("time",)),
        ("from time import monotonic", ("time.monotonic",)),
        ("def now():\n    import time\n    return time.time()", ("time",)),
        ("import toy.clock", ("toy.clock", "time")),
        ("from toy import clock", ("toy.clock", "time")),
        ("from toy import anything", ("toy", "socket")),
        ("import urllib.request", ("urllib.request",)),
        ("from urllib import request", ("urllib.request",)),
    ],
)
def test_a_pure_module_that_imports_something_impure_is_named_with_the_way_to_it(
    toy: Path, imports: str, chain: tuple[str, ...]
) -> None:
    assert chains(toy, PURE + imports) == [("toy.rule", *chain)]
    assert chains(toy, imports) == [], "a module without the mark may import anything"


@pytest.mark.parametrize(
    "imports",
    [
        "import math",
        "from urllib.parse import quote",
        "from toy.values import inf",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import time",
    ],
)
def test_a_pure_module_may_import_what_is_allowed_and_types(toy: Path, imports: str) -> None:
    assert chains(toy, PURE + imports) == []


@pytest.mark.parametrize(
    ("text", "pure"),
    [
        (PURE, True),
        ('"""Decides.\n\nPure.\n"""\n', True),
        ('"""Decides. Purely."""\n', False),
        ('"""Decides; not Pure, really."""\n', False),
        ('"""Decides."""\nPURE = "Pure."\n', False),
        ("# Pure.\n", False),
    ],
)
def test_the_mark_is_a_sentence_of_the_docstring(tmp_path: Path, text: str, pure: bool) -> None:
    source = tmp_path / "module.py"
    source.write_text(text)
    assert is_pure(source) is pure


def test_the_marked_modules_are_listed_by_their_files() -> None:
    listed = subprocess.check_output([ROOT / "scripts" / "pure"], text=True).splitlines()
    assert listed == sorted(listed)
    assert "src/holdfast/_errors.py" in listed
    assert "src/holdfast/_clock.py" not in listed
    assert all((ROOT / path).is_file() for path in listed)

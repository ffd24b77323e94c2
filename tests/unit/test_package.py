import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
import holdfast.engines
import holdfast.testing

ROOT = Path(__file__).parents[2]

SLOW = {"apsw", "asyncio", "boto3", "cyclopts", "litestar", "msgspec", "numpy", "psycopg", "rich"}
packages = pytest.mark.parametrize(
    "package", [holdfast, holdfast.engines, holdfast.testing], ids=lambda package: package.__name__
)


def modules_after(statement: str) -> set[str]:
    """What a new interpreter has imported after a statement; without the coverage that it would be measured with."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    script = f"{statement}; import sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", script], env=environment, text=True).split())


@packages
def test_every_public_name_is_listed(package: ModuleType) -> None:
    defined = {
        name for name, value in vars(package).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert defined <= set(package.__all__)


@packages
def test_every_listed_name_exists(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


@packages
def test_public_names_are_listed_once_and_in_order(package: ModuleType) -> None:
    assert package.__all__ == sorted(set(package.__all__))


def test_the_installed_version_is_the_one_that_the_package_states() -> None:
    assert importlib.metadata.version("holdfast-resilience") == holdfast.__version__


def test_the_version_is_stated_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    stating = [
        path.relative_to(ROOT)
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf"\b{re.escape(holdfast.__version__)}\b", path.read_text(encoding="utf-8"))
    ]
    assert stating == [Path(project["tool"]["hatch"]["version"]["path"])]


@pytest.mark.parametrize("name", ["holdfast", "holdfast.testing"])
def test_importing_the_package_imports_nothing_slow(name: str) -> None:
    modules = modules_after(f"import {name}")
    assert {name, "holdfast._types"} <= modules
    assert modules & SLOW == set()


def test_a_slow_import_would_be_seen() -> None:
    assert "asyncio" in modules_after("import asyncio")


def test_the_package_tells_type_checkers_that_it_is_typed() -> None:
    assert (Path(holdfast.__file__).parent / "py.typed").exists()

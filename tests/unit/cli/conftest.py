"""Commands called in process, in an empty folder and without the user's settings."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from holdfast.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The one JSON document that a good command prints."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The one JSON object that a failed command prints."""
        assert self.code != 0
        assert self.out == ""
        assert self.err.count("\n") == 1
        error: dict[str, str] = json.loads(self.err)
        assert error.keys() == {"error", "detail"}
        return error


Run: TypeAlias = Callable[..., Ran]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are run."""
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run

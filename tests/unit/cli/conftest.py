"""Commands called in process, in an empty folder and without the user's settings."""

import json
import logging
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


NOBODY = 65_534


@contextmanager
def closed(path: Path) -> Iterator[str]:
    """Only its owner may use the path, and that is not us; hands out who it is.

    Nothing is closed to root: so root does it as nobody, and everybody else shuts himself out.
    """
    mode = path.stat().st_mode
    is_root = os.geteuid() == 0
    path.chmod(0o700 if is_root else 0)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield pwd.getpwuid(0 if is_root else os.geteuid()).pw_name
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.fixture(autouse=True)
def _logging_left_as_it_was() -> Iterator[None]:
    """Commands that log have it all sent to their standard error, which is gone after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run

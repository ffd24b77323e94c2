"""Find the queues that `module:queue` names on the command line."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import holdfast
from holdfast._errors import InvalidValue
from holdfast.queue import Queue

_HOLDFAST = str(Path(holdfast.__file__).parent) + os.sep
_STANDARD = str(Path(os.__file__).parent) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages; they may be inside the folder of the standard library."""


def find_queues(targets: Sequence[str]) -> list[Queue]:
    """Return the queues that `targets` name, in order. Raise InvalidValue for a target that is wrong."""
    here = str(Path.cwd())
    if here not in sys.path:  # Python adds the folder of the command, not the working directory
        sys.path.insert(0, here)
    found: list[Queue] = []
    for target in targets:
        queue = _find(target)
        if any(other.name == queue.name for other in found):
            raise InvalidValue(f"{target}: queue {queue.name} is given twice; expected every queue once")
        found.append(queue)
    return found


def _find(target: str) -> Queue:
    name, _, path = target.partition(":")
    if name.endswith(".py") or "/" in name:
        raise InvalidValue(f"{target}: expected the name of a module, not a file, such as jobs:mail for jobs.py")
    if not name:
        raise InvalidValue(f"{target!r}: expected MODULE:QUEUE, such as jobs:mail")
    if not all(map(str.isidentifier, name.split("."))):
        raise InvalidValue(f"{target}: {name} is not the name of a module; expected one such as jobs, or shop.jobs")
    module = _import(name, target)
    if not path:
        raise InvalidValue(f"{target}: expected MODULE:QUEUE; {_describe_queues(module)}")
    value: object = module
    for step in path.split("."):
        try:
            value = getattr(value, step)
        except AttributeError as error:
            raise InvalidValue(f"{target}: there is no {path} in {name}; {_describe_queues(module)}") from error
    if not isinstance(value, Queue):
        raise InvalidValue(
            f"{target} is of type {type(value).__name__}: expected a holdfast.queue.Queue; {_describe_queues(module)}"
        )
    if not value.jobs and value.handler is None:
        raise InvalidValue(
            f"{target}: queue {value.name} has no jobs and no handler; expected functions with @{path}.job, or one "
            f"with @{path}.handle, in {name} or in a module that it imports"
        )
    return value


def _import(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidValue(
                f"{target}: there is no module {error.name}; expected one in {Path.cwd()} or on Python's path"
            ) from error
        raise _build_import_error(target, name, error) from error
    except (Exception, SystemExit) as error:
        raise _build_import_error(target, name, error) from error


def _build_import_error(target: str, name: str, error: BaseException) -> InvalidValue:
    text, location = str(error), _find_location(error)
    if isinstance(error, SyntaxError) and _is_file(error.filename):
        text = error.msg  # str(error) has the location as well
        line = f", line {error.lineno}" if error.lineno else ""
        location = f"{error.filename}{line}"
    where = "" if location is None else f" ({location})"
    return InvalidValue(f"{target}: {name} cannot be imported: {type(error).__name__}: {text}{where}")


def _find_location(error: BaseException) -> str | None:
    """Return the last line of user or installed code in a traceback, or None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{frame.filename}, line {frame.lineno}" for frame in reversed(frames) if _is_user_code(frame)), None)


def _is_user_code(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame belongs neither to Holdfast nor to the standard library, where the mistake is not."""
    file = frame.filename
    if not _is_file(file) or file.startswith(_HOLDFAST):
        return False
    return not file.startswith(_STANDARD) or any(part in _INSTALLED for part in Path(file).parts)


def _is_file(name: str | None) -> bool:
    return name is not None and not name.startswith("<")  # such as <string> or <frozen importlib._bootstrap>


def _describe_queues(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Queue)]
    if not names:
        return f"there is no queue in {module.__name__}"
    known = "the queue in {} is {}" if len(names) == 1 else "queues in {} are {}"
    return known.format(module.__name__, ", ".join(f"{module.__name__}:{name}" for name in names))

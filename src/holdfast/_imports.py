"""Import the objects that users name as `module:name`, with errors that say what is wrong, and where."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from holdfast._errors import InvalidValue

_HOLDFAST = str(Path(__file__).parent) + os.sep
_STANDARD = str(Path(os.__file__).parent) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages; they may be inside the folder of the standard library."""


def import_target(target: str, *, noun: str, example: str) -> tuple[ModuleType, str]:
    """Import the module of `module:name`. Return the module and the name, which may be empty.

    `noun` and `example`, such as QUEUE and `jobs:mail`, are for the messages of InvalidValue. Modules in the working
    directory are found, too.
    """
    here = str(Path.cwd())
    if here not in sys.path:  # Python adds the folder of the command, not the working directory
        sys.path.insert(0, here)
    name, _, path = target.partition(":")
    module = example.partition(":")[0]
    if name.endswith(".py") or "/" in name:
        raise InvalidValue(f"{target}: expected the name of a module, not a file, such as {example} for {module}.py")
    if not name:
        raise InvalidValue(f"{target!r}: expected MODULE:{noun}, such as {example}")
    if not all(map(str.isidentifier, name.split("."))):
        raise InvalidValue(
            f"{target}: {name} is not the name of a module; expected one such as {module}, or shop.{module}"
        )
    return _import(name, target), path


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

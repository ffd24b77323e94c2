"""Read `Settings` from a file and the environment, with errors that say what is wrong, and where."""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeGuard, get_args

import msgspec

from holdfast._errors import SettingsError
from holdfast._secret import Secret
from holdfast.config.canaries import HeaderValue
from holdfast.config.paths import (
    ANY_INDEX,
    SettingPath,
    expand_pattern,
    find_line,
    format_path,
    look_up_value,
    parse_path,
    to_pattern,
)
from holdfast.config.settings import DatabaseUrl, QueueUrl, Settings

DEFAULT_SETTINGS_FILE = Path("holdfast.toml")
"""The settings file, in the current folder, if neither the caller nor the environment names one."""
SETTINGS_FILE_VARIABLE = "HOLDFAST_SETTINGS"
"""The environment variable that names the settings file if the caller does not."""
_PREFIX = "HOLDFAST_"
# Two underscores between levels, because Kubernetes sets HOLDFAST_SERVER_PORT for a service named holdfast-server.
_SEPARATOR = "__"
_CONTAINER_LINK = re.compile("(tcp|udp|sctp)://")
"""Begins the value that Docker and Kubernetes give to such a variable."""
# Commas and white space occur in no address or name.
_LIST_SEPARATOR = re.compile(r"[,\s]+")
_CREDENTIALS = re.compile("//.*@", re.DOTALL)
_NONE = "none"
_MISSING = "is missing"
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": f'"{_NONE}"',
}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, with the origin of each value."""

    settings: Settings
    file: Path | None
    origins: Mapping[SettingPath, str]

    def list_effective(self) -> Iterator[tuple[SettingPath, Any, str]]:
        """Yield every setting's path, value (secrets masked) and origin: `default`, the file, or what overrode it."""
        shown = msgspec.to_builtins(self.settings, enc_hook=str)
        for pattern in list_setting_types():
            for path in expand_pattern(shown, pattern):
                for row in _expand_table(shown, path):
                    yield row, look_up_value(shown, row), self.origins.get(row, "default")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    options: Mapping[SettingPath, Any] = MappingProxyType({}),
) -> LoadedSettings:
    """Read the settings. Raise SettingsError, which names the setting, the value found and the value expected.

    If `file` is None, read the file that HOLDFAST_SETTINGS names, or else `holdfast.toml` in the current directory if
    it exists. Environment variables override the file, and `options` that are not None override both.
    """
    if file is None and environment.get(SETTINGS_FILE_VARIABLE):
        file = Path(environment[SETTINGS_FILE_VARIABLE])
    if file is None and DEFAULT_SETTINGS_FILE.exists():
        file = DEFAULT_SETTINGS_FILE
    text = "" if file is None else _read(file)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    paths = (
        row
        for pattern in list_setting_types()
        for path in expand_pattern(data, pattern)
        for row in _expand_table(data, path)
    )
    origins = {path: str(file) for path in paths if look_up_value(data, path) is not None}
    _convert_none(data, origins)
    overrides = _from_environment(environment)
    overrides |= {path: (value, "command line") for path, value in options.items() if value is not None}
    for path, (value, origin) in overrides.items():
        if _set_value(data, path, value):
            origins[path] = origin
    try:
        settings = msgspec.convert(data, Settings, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise SettingsError(_explain(str(error), data, file, text, origins)) from error
    return LoadedSettings(settings, file, origins)


def _expand_table(data: object, path: SettingPath) -> Iterator[SettingPath]:
    """Yield `path`, or the path of each of its values if `path` is a table of free form."""
    value = look_up_value(data, path)
    if isinstance(value, dict):
        yield from ((*path, name) for name in value)
    else:
        yield path


def format_variable_name(path: SettingPath) -> str:
    """Return the environment variable that overrides a setting. Settings inside a list have no variable."""
    return _PREFIX + _SEPARATOR.join(str(step) for step in path).upper()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError(f"{file} does not exist: name an existing settings file, or leave it out") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file}: {error}") from error


@cache
def list_setting_types(struct: type[msgspec.Struct] = Settings, parent: SettingPath = ()) -> Mapping[SettingPath, Any]:
    """Return the type of every setting by its path. `ANY_INDEX` in a path stands for each element of a list."""
    found: dict[SettingPath, Any] = {}
    for field in msgspec.structs.fields(struct):
        path = (*parent, field.name)
        element = next(iter(get_args(field.type)), None)
        if _is_struct(field.type):
            found |= list_setting_types(field.type, path)
        elif _is_struct(element):
            found |= list_setting_types(element, (*path, ANY_INDEX))
        else:
            found[path] = field.type
    return found


def _is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _from_environment(environment: Mapping[str, str]) -> dict[SettingPath, tuple[Any, str]]:
    """Return the settings from environment variables, each with its value and the name of the variable."""
    variables = {
        format_variable_name(path): (path, kind) for path, kind in list_setting_types().items() if ANY_INDEX not in path
    }
    found: dict[SettingPath, tuple[Any, str]] = {}
    for name, value in environment.items():
        if name in variables:
            path, kind = variables[name]
            found[path] = _parse_literal(value, kind), f"environment variable {name}"
        elif name.startswith(_PREFIX) and (_SEPARATOR in name or _is_mistake(name, value, variables)):
            raise SettingsError(f"environment variable {name} names no setting{_suggest_name(name, list(variables))}")
    return found


def _is_mistake(name: str, value: str, variables: Collection[str]) -> bool:
    """Return whether a variable is probably a setting with `_` for `__`. Links of containers have such names, too."""
    return not _CONTAINER_LINK.match(value) and name in {known.replace(_SEPARATOR, "_") for known in variables}


def _set_value(data: dict[str, Any], path: SettingPath, value: Any) -> bool:
    """Set the value at `path`. Return False if the file has no table there, which decoding reports later."""
    *tables, last = path
    for step in tables:
        data = data.setdefault(str(step), {})
        if not isinstance(data, dict):
            return False
    data[str(last)] = value
    return True


def _convert_none(data: dict[str, Any], paths: Iterable[SettingPath]) -> None:
    """Replace `"none"` by None in settings of type number or None, because TOML has no null."""
    found = list_setting_types()
    for path in paths:
        kind = found.get(to_pattern(path))
        is_optional = isinstance(kind, UnionType) and {*get_args(kind)} <= {int, float, NoneType}
        if is_optional and look_up_value(data, path) == _NONE:
            *parent, last = path
            look_up_value(data, parent)[last] = None  # type: ignore[index]


def _parse_literal(value: str, kind: Any) -> Any:
    """Return a variable's text as its setting's type, or unchanged if that fails. Commas or spaces split lists."""
    plain = getattr(kind, "__origin__", kind)
    if plain is tuple:
        return [element for element in _LIST_SEPARATOR.split(value) if element]
    if plain in (bool, int, float):
        with suppress(ValueError, RecursionError):
            statement = tomllib.loads(f"value = {value}")
            if len(statement) == 1:  # a value with a line break must not define a second setting
                return statement["value"]
    return value


def _decode(kind: type, value: Any) -> Any:
    if kind in (DatabaseUrl, QueueUrl, HeaderValue, Secret) and isinstance(value, str):
        return kind(value)
    if kind is Path and isinstance(value, str | Path):
        if not str(value):
            raise ValueError("expected a path, found nothing")
        return Path(value).expanduser()
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def _explain(
    message: str, data: dict[str, Any], file: Path | None, text: str, origins: Mapping[SettingPath, str]
) -> str:
    """Return msgspec's error message, with the file, the line and the value that was found."""
    complaint, _, location = message.partition(" - at `")
    path = parse_path(location.rstrip("`"))
    path, complaint, problem = _find_problem(path, complaint, data)
    if path:
        problem = f"{format_path(path)}{'' if problem == _MISSING else ':'} {problem}"
    elif file is None:
        return problem
    origin = origins.get(path, str(file))
    if origin != str(file):
        return f"{origin}: {problem}"
    line = find_line(text, _find_named_setting(path, complaint))
    if line is None and path:
        # A table that is not in the file: name the variables and options that set its values.
        parts = {part for below, part in origins.items() if below[: len(path)] == path}
        origin = ", ".join(sorted(parts - {str(file)})) or origin
    return f"{origin}{f', line {line}' if line else ''}: {problem}"


def _find_problem(path: SettingPath, complaint: str, data: dict[str, Any]) -> tuple[SettingPath, str, str]:
    """Return the path of the wrong setting, msgspec's complaint without its name, and the problem in plain words."""
    if unknown := re.search(r"unknown field `(.+)`", complaint):
        path = (*path, unknown[1])
        parent = to_pattern(path[:-1])
        siblings = [str(known[len(parent)]) for known in list_setting_types() if known[: len(parent)] == parent]
        problem = f"there is no such setting{_suggest_name(unknown[1], siblings)}"
    elif missing := re.match(r"Object missing required field `(.+)`", complaint):
        path = (*path, missing[1])
        problem = _MISSING
    elif complaint.startswith("Expected `array`") and (about_list := _explain_list(complaint, path, data)):
        problem = about_list
    elif complaint.startswith("Invalid enum value"):
        kind = list_setting_types()[to_pattern(path)]
        known = get_args(kind) or tuple(kind)  # a Literal, or an enumeration
        problem = f"expected one of {', '.join(map(str, known))}, found {_format_value(look_up_value(data, path))}"
    elif complaint.startswith("Expected `"):
        expected = re.sub(r"`([\w |]+)`", lambda kinds: _describe_types(kinds[1]), complaint.partition(", got")[0])
        problem = f"{expected.replace('Expected', 'expected', 1)}, found {_format_value(look_up_value(data, path))}"
    else:  # raised by a check of the whole table, mostly with the setting's name first: `store: expected ...`
        named = re.match(r"(\w+)[.\w]*(?=: )", complaint)
        if named is not None and to_pattern((*path, named[1])) in list_setting_types():
            path = (*path, *named[0].split("."))
            complaint = complaint[named.end() + 2 :]
        problem = re.sub(
            r"Expected `([\w |]+)`, got `(\w+)`",
            lambda kinds: f"expected {_describe_types(kinds[1])}, found {_describe_types(kinds[2])}",
            complaint,
        )
    return path, complaint, problem


def _explain_list(complaint: str, path: SettingPath, data: dict[str, Any]) -> str | None:
    """Return the problem of a list: [name] in place of [[name]], or too few or too many elements. None for another."""
    value = look_up_value(data, path)
    if isinstance(value, dict) and _is_list_of_tables(path):
        name = ".".join(str(step) for step in path if not isinstance(step, int))
        return f"expected a list, found a table: write [[{name}]], not [{name}]"
    length = re.match(r"Expected `array` of length ([<>])= (\d+)", complaint)
    if length is None or not isinstance(value, list):
        return None
    return f"expected at {'least' if length[1] == '>' else 'most'} {length[2]} {path[-1]}, found {len(value)}"


def _is_list_of_tables(path: SettingPath) -> bool:
    pattern = (*to_pattern(path), ANY_INDEX)
    return any(known[: len(pattern)] == pattern for known in list_setting_types())


def _find_named_setting(path: SettingPath, complaint: str) -> SettingPath:
    """Return the setting whose name the message about the table at `path` begins with, or else `path`."""
    word = re.match(r"\w*", complaint)
    inner = (*path, "" if word is None else word[0])
    return inner if to_pattern(inner) in list_setting_types() else path


def _describe_types(names: str) -> str:
    """Return plain names for msgspec's names of types."""
    kinds = names.split(" | ")
    if "str" in kinds and "null" in kinds:
        kinds.remove("null")  # TOML has no null: the setting is omitted instead
    return " or ".join(_TYPE_NAMES.get(kind, f"`{kind}`") for kind in kinds)


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        value = _CREDENTIALS.sub("//****@", value)  # an address in the wrong setting may contain a password
    return msgspec.json.encode(value).decode() if isinstance(value, str | bool) else str(value)


def _suggest_name(name: str, known: list[str]) -> str:
    # Compare without the prefix, which makes all variables similar.
    bare = {each.removeprefix(_PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(_PREFIX), bare, n=1)
    return f"; did you mean {bare[close[0]]}?" if close else f"; known here: {', '.join(sorted(set(known)))}"

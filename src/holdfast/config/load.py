"""From a file and the environment to `Settings`, with errors that say where and what."""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeGuard, get_args

import msgspec

from holdfast._errors import SettingsError
from holdfast.config.places import EACH, Place, dotted, expand, line_of, look_up, parse, pattern_of
from holdfast.config.settings import DatabaseUrl, QueueUrl, Settings

DEFAULT_FILE = Path("holdfast.toml")
FILE_VARIABLE = "HOLDFAST_SETTINGS"
"""Names the settings file where no option does."""
_PREFIX = "HOLDFAST_"
# Two underscores between levels: Kubernetes sets HOLDFAST_SERVER_PORT by itself for a service named holdfast-server.
_SEPARATOR = "__"
# Neither of them is part of an address or a name.
_BETWEEN = re.compile(r"[,\s]+")
_CREDENTIALS = re.compile("//.*@", re.DOTALL)
_NOTHING = "none"
_PLAIN = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": f'"{_NOTHING}"',
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each of their values came from."""

    settings: Settings
    file: Path | None
    origins: Mapping[Place, str]

    def effective(self) -> Iterator[tuple[Place, Any, str]]:
        """Every setting with its value (secrets masked) and its origin: `default`, a file, or what overrode it."""
        shown = msgspec.to_builtins(self.settings, enc_hook=str)
        for pattern in kinds():
            for place in expand(shown, pattern):
                for row in _rows(shown, place):
                    yield row, look_up(shown, row), self.origins.get(row, "default")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    options: Mapping[Place, Any] = MappingProxyType({}),
) -> Loaded:
    """Read the settings. Raises SettingsError, which names the place, what was found and what is expected.

    Without `file`, the one that HOLDFAST_SETTINGS names, else `holdfast.toml` here if there is one, else defaults.
    Environment variables override the file, and `options` that are not None override both.
    """
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    text = "" if file is None else _read(file)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number, or a nesting, beyond what Python takes
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    places = (row for pattern in kinds() for place in expand(data, pattern) for row in _rows(data, place))
    origins = {place: str(file) for place in places if look_up(data, place) is not None}
    _put_nothing(data, origins)
    overrides = _from_environment(environment)
    overrides |= {place: (value, "command line") for place, value in options.items() if value is not None}
    for place, (value, origin) in overrides.items():
        if _put(data, place, value):
            origins[place] = origin
    try:
        settings = msgspec.convert(data, Settings, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise SettingsError(_explain(str(error), data, file, text, origins)) from error
    return Loaded(settings, file, origins)


def _rows(data: object, place: Place) -> Iterator[Place]:
    """Yield the place, or, where a table of free form stands there, the place of each of its values."""
    value = look_up(data, place)
    if isinstance(value, dict):
        yield from ((*place, name) for name in value)
    else:
        yield place


def variable_of(place: Place) -> str:
    """The environment variable that overrides a setting. What is in a list has none."""
    return _PREFIX + _SEPARATOR.join(str(step) for step in place).upper()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError(f"{file} does not exist: name an existing settings file, or leave it out") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file}: {error}") from error


def kinds(struct: type[msgspec.Struct] = Settings, above: Place = ()) -> dict[Place, Any]:
    """Every setting there is, with its type; `EACH` in its place where it is one of every element of a list."""
    found: dict[Place, Any] = {}
    for field in msgspec.structs.fields(struct):
        place = (*above, field.name)
        element = next(iter(get_args(field.type)), None)
        if _is_struct(field.type):
            found |= kinds(field.type, place)
        elif _is_struct(element):
            found |= kinds(element, (*place, EACH))
        else:
            found[place] = field.type
    return found


def _is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _from_environment(environment: Mapping[str, str]) -> dict[Place, tuple[Any, str]]:
    """What environment variables set, each with the variable's name."""
    variables = {variable_of(place): (place, kind) for place, kind in kinds().items() if EACH not in place}
    found: dict[Place, tuple[Any, str]] = {}
    for name, value in environment.items():
        if name in variables:
            place, kind = variables[name]
            found[place] = _literal(value, kind), f"environment variable {name}"
        elif name.startswith(_PREFIX) and (_SEPARATOR in name or _is_mistake(name, value, variables)):
            raise SettingsError(f"environment variable {name} names no setting{_nearest(name, list(variables))}")
    return found


def _is_mistake(name: str, value: str, variables: Collection[str]) -> bool:
    """Whether a variable was most likely meant to be a setting's: Kubernetes sets such names to addresses."""
    return "://" not in value and name in {known.replace(_SEPARATOR, "_") for known in variables}


def _put(data: dict[str, Any], place: Place, value: Any) -> bool:
    """Write one value; false where the file has something else than a table on the way, as decoding will say."""
    *tables, last = place
    for step in tables:
        data = data.setdefault(str(step), {})
        if not isinstance(data, dict):
            return False
    data[str(last)] = value
    return True


def _put_nothing(data: dict[str, Any], places: Iterable[Place]) -> None:
    """Let `"none"` be None where a number is expected, or none: TOML has no word for it."""
    found = kinds()
    for place in places:
        kind = found.get(pattern_of(place))
        is_optional = isinstance(kind, UnionType) and {*get_args(kind)} <= {int, float, NoneType}
        if is_optional and look_up(data, place) == _NOTHING:
            *above, last = place
            look_up(data, above)[last] = None  # type: ignore[index]


def _literal(value: str, kind: Any) -> Any:
    """A variable's text as the kind of value that its setting has, or as it is for decoding to complain about.

    A list is written with commas or spaces between its elements.
    """
    plain = getattr(kind, "__origin__", kind)
    if plain is tuple:
        return [element for element in _BETWEEN.split(value) if element]
    if plain in (bool, int, float):
        with suppress(ValueError, RecursionError):
            statement = tomllib.loads(f"value = {value}")
            if len(statement) == 1:  # not a second line with a setting of its own
                return statement["value"]
    return value


def _decode(kind: type, value: Any) -> Any:
    if kind in (DatabaseUrl, QueueUrl) and isinstance(value, str):
        return kind(value)
    if kind is Path and isinstance(value, str | Path):
        if not str(value):
            raise ValueError("expected a path, found nothing")
        return Path(value).expanduser()
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def _explain(message: str, data: dict[str, Any], file: Path | None, text: str, origins: Mapping[Place, str]) -> str:
    """The complaint of msgspec, with the file, the line and the value that was found."""
    complaint, _, path = message.partition(" - at `")
    place = parse(path.rstrip("`"))
    if unknown := re.search(r"unknown field `(.+)`", complaint):
        place = (*place, unknown[1])
        above = pattern_of(place[:-1])
        siblings = [str(known[len(above)]) for known in kinds() if known[: len(above)] == above]
        problem = f"there is no such setting{_nearest(unknown[1], siblings)}"
    elif complaint.startswith("Invalid enum value"):
        kind = kinds()[pattern_of(place)]
        known = get_args(kind) or tuple(kind)  # words that are listed, or an enumeration
        problem = f"expected one of {', '.join(known)}, found {_shown(look_up(data, place))}"
    elif complaint.startswith("Expected `"):
        expected = re.sub(r"`([\w |]+)`", lambda kinds: _plain(kinds[1]), complaint.partition(", got")[0])
        problem = f"{expected.replace('Expected', 'expected', 1)}, found {_shown(look_up(data, place))}"
    else:  # of a table as a whole, such as the options of a detector
        problem = re.sub(
            r"Expected `([\w |]+)`, got `(\w+)`",
            lambda kinds: f"expected {_plain(kinds[1])}, found {_plain(kinds[2])}",
            complaint,
        )
    if place:
        problem = f"{dotted(place)}: {problem}"
    origin = origins.get(place, str(file))
    if origin != str(file):
        return f"{origin}: {problem}"
    line = line_of(text, _named(place, complaint))
    if line is None and place:
        # A table as a whole, and none that the file has: what was set in it elsewhere is what is wrong.
        parts = {part for below, part in origins.items() if below[: len(place)] == place}
        origin = ", ".join(sorted(parts - {str(file)})) or origin
    return f"{origin}{f', line {line}' if line else ''}: {problem}"


def _named(place: Place, complaint: str) -> Place:
    """The setting that a complaint about a whole table begins with, else the table."""
    word = re.match(r"\w*", complaint)
    inner = (*place, "" if word is None else word[0])
    return inner if pattern_of(inner) in kinds() else place


def _plain(names: str) -> str:
    """What msgspec calls kinds of values, as people do."""
    kinds = names.split(" | ")
    if "str" in kinds and "null" in kinds:
        kinds.remove("null")  # one leaves it out
    return " or ".join(_PLAIN.get(kind, f"`{kind}`") for kind in kinds)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        value = _CREDENTIALS.sub("//****@", value)  # an address that was put in the wrong place
    return msgspec.json.encode(value).decode() if isinstance(value, str | bool) else str(value)


def _nearest(name: str, known: list[str]) -> str:
    # Without the prefix, which would make any two variables look alike.
    bare = {each.removeprefix(_PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(_PREFIX), bare, n=1)
    return f"; did you mean {bare[close[0]]}?" if close else f"; known here: {', '.join(sorted(set(known)))}"

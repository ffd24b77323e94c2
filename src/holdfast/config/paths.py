"""Where in a TOML file a setting stands, for messages that people can act on. Pure."""

import re
import tomllib
from collections.abc import Iterator, Sequence

SettingPath = tuple[str | int, ...]
"""The way to a value from the top: keys, and positions in lists."""

ANY_INDEX = "[]"
"""In a path, stands for every position of a list."""


def format_path(path: SettingPath) -> str:
    """The path as people write it: `workload[0].zones[1]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text and step != ANY_INDEX else step
    return text


def parse_path(text: str) -> SettingPath:
    """The path that msgspec writes as `$.workload[0].zones[1]`."""
    return tuple(int(index) if index else name for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", text))


def to_pattern(path: SettingPath) -> SettingPath:
    """The path with every position of a list replaced by `ANY_INDEX`."""
    return tuple(ANY_INDEX if isinstance(step, int) else step for step in path)


def expand_pattern(data: object, pattern: SettingPath, parent: SettingPath = ()) -> Iterator[SettingPath]:
    """The paths that a pattern with `ANY_INDEX` stands for in decoded TOML."""
    if ANY_INDEX not in pattern:
        yield (*parent, *pattern)
        return
    steps = pattern[: pattern.index(ANY_INDEX)]
    elements = look_up_value(data, steps)
    if isinstance(elements, list | tuple):
        for position, element in enumerate(elements):
            yield from expand_pattern(element, pattern[len(steps) + 1 :], (*parent, *steps, position))


def look_up_value(data: object, path: Sequence[str | int]) -> object:
    """The value that stands at a path of decoded TOML, or None where the way ends."""
    for step in path:
        try:
            data = data[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def find_line(text: str, path: SettingPath) -> int | None:
    """The line of valid TOML, counted from 1, on which the setting (or the closest thing around it) is written."""
    best: tuple[int, int] | None = None
    for line, written in _list_written_paths(text):
        depth = len(written)
        if path[:depth] == written and (best is None or depth > best[0]):
            best = (depth, line)
    return best[1] if best else None


def _list_written_paths(text: str) -> Iterator[tuple[int, SettingPath]]:
    """Every table and key, with the line on which its statement begins."""
    table: SettingPath = ()
    last_index: dict[SettingPath, int] = {}
    for line, statement, data in _statements(text):
        if statement.startswith("["):
            table = _open_table(data, last_index)
            yield from ((line, table[:depth]) for depth in range(1, len(table) + 1))
        else:
            yield from ((line, (*table, *path)) for path in _walk_paths(data))


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """Every header and every key with its value, as text and decoded. What decodes by itself is a whole statement."""
    statement, first = "", 1
    # Not splitlines: TOML ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            data = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a list or a text that goes on in the next line
        yield first, statement.lstrip(), data
        statement, first = "", number + 1


def _open_table(header: object, last_index: dict[SettingPath, int]) -> SettingPath:
    """The table that a header opens: in a list of tables, the one that was added last."""
    path: SettingPath = ()
    while header:
        if isinstance(header, list):
            last_index[path] = last_index.get(path, -1) + 1
            return (*path, last_index[path])
        if path in last_index:
            path = (*path, last_index[path])
        assert isinstance(header, dict)
        ((key, header),) = header.items()
        path = (*path, key)
    return path


def _walk_paths(data: object) -> Iterator[SettingPath]:
    """Every path in decoded TOML, those on the way before those at its end."""
    if isinstance(data, dict):
        steps: Iterator[tuple[str | int, object]] = iter(data.items())
    else:
        steps = enumerate(data) if isinstance(data, list) else iter(())
    for step, value in steps:
        yield (step,)
        yield from ((step, *rest) for rest in _walk_paths(value))

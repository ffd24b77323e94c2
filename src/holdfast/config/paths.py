"""Paths of settings, and their lines in a TOML file for error messages. Pure."""

import re
import tomllib
from collections.abc import Iterator, Sequence

SettingPath = tuple[str | int, ...]
"""The keys and list indexes that lead from the top of the file to a value."""

ANY_INDEX = "[]"
"""Stands for every index of a list in a path."""


def format_path(path: SettingPath) -> str:
    """Return the path as text, such as `workload[0].zones[1]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text and step != ANY_INDEX else step
    return text


def parse_path(text: str) -> SettingPath:
    """Return the path that msgspec writes as `$.workload[0].zones[1]`."""
    return tuple(int(index) if index else name for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", text))


def to_pattern(path: SettingPath) -> SettingPath:
    """Return the path with every list index replaced by `ANY_INDEX`."""
    return tuple(ANY_INDEX if isinstance(step, int) else step for step in path)


def expand_pattern(data: object, pattern: SettingPath, parent: SettingPath = ()) -> Iterator[SettingPath]:
    """Yield the paths in decoded TOML that a pattern with `ANY_INDEX` stands for."""
    if ANY_INDEX not in pattern:
        yield (*parent, *pattern)
        return
    steps = pattern[: pattern.index(ANY_INDEX)]
    elements = look_up_value(data, steps)
    if isinstance(elements, list | tuple):
        for index, element in enumerate(elements):
            yield from expand_pattern(element, pattern[len(steps) + 1 :], (*parent, *steps, index))


def look_up_value(data: object, path: Sequence[str | int]) -> object:
    """Return the value at a path of decoded TOML, or None if the path does not exist."""
    for step in path:
        try:
            data = data[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def find_line(text: str, path: SettingPath) -> int | None:
    """Return the line, counted from 1, of the setting in valid TOML, or of the closest table or list around it."""
    best_depth = 0
    best_line: int | None = None
    for line, written in _list_written_paths(text):
        depth = len(written)
        if depth > best_depth and path[:depth] == written:
            best_depth, best_line = depth, line
    return best_line


def _list_written_paths(text: str) -> Iterator[tuple[int, SettingPath]]:
    """Yield every table and key, with the line on which its statement begins."""
    table: SettingPath = ()
    last_index: dict[SettingPath, int] = {}
    for line, statement, data in _statements(text):
        if statement.startswith("["):
            table = _open_table(data, last_index)
            yield from ((line, table[:depth]) for depth in range(1, len(table) + 1))
        else:
            yield from ((line, (*table, *path)) for path in _walk_paths(data))


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """Yield the first line, the text and the decoded value of every header and key. Text that decodes is complete."""
    statement, first = "", 1
    # `splitlines` would also split at other characters; in TOML only a line feed ends a line.
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            data = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a list or a string that continues on the next line
        yield first, statement.lstrip(), data
        statement, first = "", number + 1


def _open_table(header: object, last_index: dict[SettingPath, int]) -> SettingPath:
    """Return the table that a header opens. In a list of tables this is the last one."""
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
    """Yield every path in decoded TOML, parents first."""
    if isinstance(data, dict):
        steps: Iterator[tuple[str | int, object]] = iter(data.items())
    else:
        steps = enumerate(data) if isinstance(data, list) else iter(())
    for step, value in steps:
        yield (step,)
        yield from ((step, *rest) for rest in _walk_paths(value))

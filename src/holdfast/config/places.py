"""Where in a TOML file a setting stands, for messages that people can act on. Pure."""

import re
import tomllib
from collections.abc import Iterator, Sequence

Place = tuple[str | int, ...]
"""The way to a value from the top: keys, and positions in lists."""

EACH = "[]"
"""In a place, stands for every position of a list."""


def dotted(place: Place) -> str:
    """The place as people write it: `workload[0].zones[1]`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text and step != EACH else step
    return text


def parse(path: str) -> Place:
    """The place that msgspec writes as `$.workload[0].zones[1]`."""
    return tuple(int(index) if index else name for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path))


def pattern_of(place: Place) -> Place:
    """The place with every position of a list replaced by `EACH`."""
    return tuple(EACH if isinstance(step, int) else step for step in place)


def expand(data: object, pattern: Place, above: Place = ()) -> Iterator[Place]:
    """The places that a pattern with `EACH` stands for in decoded TOML."""
    if EACH not in pattern:
        yield (*above, *pattern)
        return
    steps = pattern[: pattern.index(EACH)]
    elements = look_up(data, steps)
    if isinstance(elements, list | tuple):
        for position, element in enumerate(elements):
            yield from expand(element, pattern[len(steps) + 1 :], (*above, *steps, position))


def look_up(data: object, place: Sequence[str | int]) -> object:
    """The value that stands at a place of decoded TOML, or None where the way ends."""
    for step in place:
        try:
            data = data[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def line_of(text: str, place: Place) -> int | None:
    """The line of valid TOML, counted from 1, on which the setting (or the closest thing around it) is written."""
    best: tuple[int, int] | None = None
    for line, written in _written_places(text):
        depth = len(written)
        if place[:depth] == written and (best is None or depth > best[0]):
            best = (depth, line)
    return best[1] if best else None


def _written_places(text: str) -> Iterator[tuple[int, Place]]:
    """Every table and key, with the line on which its statement begins."""
    table: Place = ()
    last_of: dict[Place, int] = {}
    for line, statement, data in _statements(text):
        if statement.startswith("["):
            table = _opened(data, last_of)
            yield from ((line, table[:depth]) for depth in range(1, len(table) + 1))
        else:
            yield from ((line, (*table, *place)) for place in _places(data))


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


def _opened(header: object, last_of: dict[Place, int]) -> Place:
    """The table that a header opens: in a list of tables, the one that was added last."""
    place: Place = ()
    while header:
        if isinstance(header, list):
            last_of[place] = last_of.get(place, -1) + 1
            return (*place, last_of[place])
        if place in last_of:
            place = (*place, last_of[place])
        assert isinstance(header, dict)
        ((key, header),) = header.items()
        place = (*place, key)
    return place


def _places(data: object) -> Iterator[Place]:
    """Every place in decoded TOML, those on the way before those at its end."""
    if isinstance(data, dict):
        steps: Iterator[tuple[str | int, object]] = iter(data.items())
    else:
        steps = enumerate(data) if isinstance(data, list) else iter(())
    for step, value in steps:
        yield (step,)
        yield from ((step, *rest) for rest in _places(value))

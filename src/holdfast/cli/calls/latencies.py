"""Latencies from a file: CSV with a header, JSON lines, or a number on each line. The first line shows which."""

import csv
import math
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Literal

from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast.cli.output import decode_json, describe_input, open_input

Unit = Literal["s", "ms", "us"]
_SIZES: dict[Unit, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_MAX_SHOWN = 40
"""Characters of an invalid value in an error message."""


def read_latencies(path: str, *, unit: Unit = "s", column: str | None = None) -> "array[float]":
    """Read the latencies of a file, in seconds. The value `inf` in it means a request that timed out.

    `column` is the column of CSV or the field of JSON; not needed if there is only one. Raise InvalidValue with the
    file and line of an invalid value.
    """
    source, size = describe_input(path), _SIZES[unit]
    with open_input(path, errors="replace") as lines:
        values = array("d", (value * size for value in _values(source, lines, column)))
    if not values:
        raise InvalidValue(f"{source}: no latencies; expected a number on each line, CSV or JSON lines")
    return values


def _values(source: str, lines: Iterable[str], column: str | None) -> Iterator[float]:
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    filled = ((number, line) for number, line in numbered if line)
    first = next(filled, None)
    if first is None:
        return
    everything = chain([first], filled)
    _, first_line = first
    if first_line.startswith(("{", "[")):
        yield from _json(source, everything, column)
    elif column is None and _is_number(first_line):
        for number, line in everything:
            yield _parse_number(f"{source}, line {number}", line)
    else:
        yield from _csv(source, everything, column)


def _json(source: str, numbered: Iterable[tuple[int, str]], column: str | None) -> Iterator[float]:
    for number, line in numbered:
        location = f"{source}, line {number}"
        found = decode_json(location, line)
        if not isinstance(found, dict):
            raise InvalidValue(f"{location}: expected a JSON object on each line")
        name = column
        if name is None:
            if len(found) != 1:
                raise InvalidValue(f"{location}: fields {', '.join(found) or 'none'}; choose one with --column")
            (name,) = found
        if name not in found:
            raise InvalidValue(f"{location}: no field {name}; fields: {', '.join(found) or 'none'}")
        yield _parse_number(location, found[name])


def _csv(source: str, numbered: Iterable[tuple[int, str]], column: str | None) -> Iterator[float]:
    begin, header = 0, list[str]()
    column_index = -1
    for number, line in numbered:
        location = f"{source}, line {number}"
        try:
            (row,) = csv.reader([line], strict=True)
        except csv.Error as error:
            raise InvalidValue(f"{location}: this is not CSV: {error}") from error
        if not begin:
            begin, header = number, [field.strip() for field in row]
            column_index = _find_column(location, header, column)
            continue
        if len(row) <= column_index:
            fields = format_count(len(row), "field")
            raise InvalidValue(f"{location}: {fields}; expected {len(header)}, as in line {begin}")
        yield _parse_number(location, row[column_index])


def _find_column(location: str, header: list[str], column: str | None) -> int:
    if column is None:
        if len(header) != 1:
            raise InvalidValue(f"{location}: columns {', '.join(header)}; choose one with --column")
        return 0
    if header.count(column) != 1:
        raise InvalidValue(f"{location}: expected one column {column}; columns: {', '.join(header)}")
    return header.index(column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_number(location: str, value: object) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not number >= 0:
        raise InvalidValue(
            f"{location}: {str(value)[:_MAX_SHOWN]!r} is not a latency; expected a number, 0 or more, or inf for a "
            "request that timed out"
        )
    return number

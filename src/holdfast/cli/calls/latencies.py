"""Latencies from a file: CSV with a header, JSON lines, or a number on each line; told by the first line."""

import csv
import math
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Literal

from holdfast._errors import InvalidValue
from holdfast.cli.output import decode_json, open_input, source_of

Unit = Literal["s", "ms", "us"]
_SIZES: dict[Unit, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_LONGEST = 40
"""Letters of a bad value that are shown."""


def read_latencies(path: str, *, unit: Unit = "s", column: str | None = None) -> "array[float]":
    """The latencies of a file in seconds; infinity for requests that were cut off, which are written `inf`.

    `column` names the column of CSV, or the field of JSON; not needed where there is only one. Raises InvalidValue,
    which names the file and the line.
    """
    source, size = source_of(path), _SIZES[unit]
    with open_input(path, errors="replace") as lines:
        values = array("d", (value * size for value in _values(source, lines, column)))
    if not values:
        raise InvalidValue(f"{source}: no latencies in it; expected a number on each line, CSV or JSON lines")
    return values


def _values(source: str, lines: Iterable[str], column: str | None) -> Iterator[float]:
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    filled = (entry for entry in numbered if entry[1])
    first = next(filled, None)
    if first is None:
        return
    everything = chain([first], filled)
    if first[1][0] in "{[":
        yield from _json(source, everything, column)
    elif column is None and _is_number(first[1]):
        for number, line in everything:
            yield _number(f"{source}, line {number}", line)
    else:
        yield from _csv(source, everything, column)


def _json(source: str, numbered: Iterable[tuple[int, str]], column: str | None) -> Iterator[float]:
    for number, line in numbered:
        place = f"{source}, line {number}"
        found = decode_json(place, line)
        if not isinstance(found, dict):
            raise InvalidValue(f"{place}: expected a JSON object on each line")
        name = column
        if name is None:
            if len(found) != 1:
                raise InvalidValue(f"{place}: fields {', '.join(found) or 'none'}; say which one with --column")
            (name,) = found
        if name not in found:
            raise InvalidValue(f"{place}: no field {name}; there are: {', '.join(found) or 'none'}")
        yield _number(place, found[name])


def _csv(source: str, numbered: Iterable[tuple[int, str]], column: str | None) -> Iterator[float]:
    begin, header = 0, list[str]()
    place_of = -1
    for number, line in numbered:
        place = f"{source}, line {number}"
        try:
            (row,) = csv.reader([line], strict=True)
        except csv.Error as error:
            raise InvalidValue(f"{place}: this is not CSV: {error}") from error
        if not begin:
            begin, header = number, [field.strip() for field in row]
            place_of = _column_of(place, header, column)
            continue
        if len(row) <= place_of:
            raise InvalidValue(f"{place}: {len(row)} fields; expected {len(header)}, as in line {begin}")
        yield _number(place, row[place_of])


def _column_of(place: str, header: list[str], column: str | None) -> int:
    if column is None:
        if len(header) != 1:
            raise InvalidValue(f"{place}: columns {', '.join(header)}; say which one with --column")
        return 0
    if header.count(column) != 1:
        raise InvalidValue(f"{place}: expected one column {column}; there are: {', '.join(header)}")
    return header.index(column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(place: str, value: object) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not number >= 0:
        raise InvalidValue(
            f"{place}: {str(value)[:_LONGEST]!r} is no latency; expected a number, 0 or more, or inf for a request "
            "that was cut off"
        )
    return number

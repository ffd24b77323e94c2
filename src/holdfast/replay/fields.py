"""The fields of regular lines as arrays: numbers are converted without a Python object for each. Pure. Needs NumPy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from holdfast._errors import InvalidValue
from holdfast.telemetry.block import Floats, Integers

_MAX_DIGITS = 24
"""Longest number that is converted as an array. A float has 17 significant digits."""
_POWERS = 10.0 ** -np.arange(_MAX_DIGITS + 1)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of lines that have all the same number of fields."""

    data: bytes
    starts: Integers
    """The position of each field, by line and column."""
    ends: Integers
    separator: int
    """The byte between two fields."""

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, first: int, last: int) -> "Fields":
        """Return the lines from `first` up to `last`."""
        return Fields(self.data, self.starts[first:last], self.ends[first:last], self.separator)

    def texts(self, column: int) -> list[str]:
        """Return one column as text."""
        return [each.decode(errors="replace") for each in self._cut(column, column)]

    def labels(self, columns: Sequence[int]) -> "list[tuple[bytes, ...]]":
        """Return the bytes of some sorted columns of each line: those of columns side by side as one."""
        parts = [self._cut(first, last) for first, last in _group(columns)]
        return list(zip(*parts, strict=True))

    def numbers(self, column: int, name: str) -> Floats:
        """Return a column as numbers, NaN for a blank field. Raise InvalidValue if one is no number."""
        starts, lengths = self.starts[:, column], self.ends[:, column] - self.starts[:, column]
        characters = np.frombuffer(self.data, np.uint8)
        longest = int(lengths.max(initial=0))
        if longest > _MAX_DIGITS:
            return self._convert_each(column, name)
        values, decimals = np.zeros(len(self)), np.zeros(len(self), np.intp)
        is_decimal, is_number = np.zeros(len(self), np.bool_), np.zeros(len(self), np.bool_)
        for position in range(longest):
            inside = lengths > position
            found = characters[np.minimum(starts + position, len(characters) - 1)]
            digits = found - np.uint8(ord("0"))  # wraps around for characters below 0
            is_digit = inside & (digits < 10)
            is_point = inside & (found == ord("."))
            if not np.array_equal(is_digit | (is_point & ~is_decimal), inside):
                return self._convert_each(column, name)
            values = np.where(is_digit, values * 10 + digits, values)
            decimals += is_digit & is_decimal
            is_decimal |= is_point
            is_number |= is_digit
        if np.any(is_decimal & ~is_number):
            return self._convert_each(column, name)
        return np.where(is_number, values * _POWERS[decimals], np.nan)

    def _convert_each(self, column: int, name: str) -> Floats:
        try:
            return np.array([float(each) if each.strip() else np.nan for each in self._cut(column, column)])
        except ValueError as error:
            raise InvalidValue(f"{name}: {error}") from error

    def _cut(self, first: int, last: int) -> list[bytes]:
        data = self.data
        ends = zip(self.starts[:, first].tolist(), self.ends[:, last].tolist(), strict=True)
        return [data[start:end] for start, end in ends]


def find_fields(data: bytes, width: int, separator: int, line_end: int) -> Fields | None:
    """Return the fields of all lines. The last line has no line end. None if a line has not `width` fields."""
    characters = np.frombuffer(data, np.uint8)
    positions = np.flatnonzero((characters == separator) | (characters == line_end))
    ends = np.append(positions, len(characters))
    if len(ends) % width:
        return None
    is_line_end: NDArray[np.bool_] = np.append(characters[positions], np.uint8(line_end)) == line_end
    expected = np.zeros(width, np.bool_)
    expected[-1] = True
    if not np.all(is_line_end.reshape(-1, width) == expected):
        return None
    starts = np.concatenate([[0], positions + 1])
    return Fields(data, starts.reshape(-1, width), ends.reshape(-1, width), separator)


def _group(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of columns side by side."""
    groups = groupby(enumerate(columns), lambda each: each[1] - each[0])
    found = [[column for _, column in group] for _, group in groups]
    return [(group[0], group[-1]) for group in found]

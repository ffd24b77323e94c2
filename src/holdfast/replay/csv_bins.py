"""Parse CSV of bins into rows: in columns, and only if that fails row by row, to name the wrong line. Pure.

Columns may have any order: time, operation, zone, requests, faults, and optional arrived, workload, instance, side,
histogram with growth, p50_ms, p90_ms, p99_ms. Others are ignored.
"""

import codecs
import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice

import numpy as np

from holdfast._errors import InvalidValue
from holdfast.replay.fields import Fields, find_fields
from holdfast.replay.latencies import DEFAULT_GROWTH, build_empty, convert_percentiles, spread_histograms
from holdfast.replay.rows import LabelTable, Rows, check_counts, concatenate
from holdfast.telemetry.block import Floats, Histograms, Integers

REQUIRED = ("time", "operation", "zone", "requests", "faults")
PERCENTILES = ("p50_ms", "p90_ms", "p99_ms")
LABELS = ("workload", "operation", "zone", "instance", "side")
OPTIONAL = ("arrived", "workload", "instance", "side", "histogram", "growth", *PERCENTILES)
CHUNK_ROWS = 10_000
BLOCK_BYTES = 2**20
"""Rows, or bytes, that are converted together: less would waste the speed of arrays, more that of the CPU's caches."""
_LATEST = 1e11
"""Seconds since the epoch in the year 5138. A larger time is in milliseconds, by mistake."""
_GROWTH = re.compile(r"(\d+(?:\.\d+)?)")
_STATED_GROWTH = re.compile(r"growth\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_FIELD_END, _LINE_END = "\x1f", "\x1e"
"""Separate fields that may contain commas and line ends."""
_REPLACED = str.maketrans({_FIELD_END: "\ufffd", _LINE_END: "\ufffd"})
_SEPARATORS = str.maketrans(dict.fromkeys(";|,\t", " "))


class CsvReader:
    """Reads the rows of one CSV file. `read` returns up to a number of bytes of it, and nothing at its end."""

    def __init__(self, name: str, read: Callable[[int], bytes], labels: LabelTable, *, skips_bad: bool = False) -> None:
        """Read the header. Raise InvalidValue if a required column is missing. Labels are numbered by `labels`."""
        self._name = name
        self._labels = labels
        self._skips_bad = skips_bad
        self.seconds: float | None = None
        """The length of a bin is not stated in CSV."""
        self._growth = DEFAULT_GROWTH
        self._line = 0
        self.bad_rows = 0
        self.first_problem = ""
        """The problem of the first bad row that was skipped."""
        self._blocks = _split_blocks(read)
        self._header, self._rest = self._read_header()
        self._columns = self._find_columns()
        used = set(self._columns.values())
        chosen = sorted((self._columns[each], each) for each in LABELS if each in self._columns)
        self._label_columns, self._label_names = [index for index, _ in chosen], [name for _, name in chosen]
        self._series: dict[tuple[bytes, ...], int] = {}
        self.ignored = [each for index, each in enumerate(self._header) if index not in used and each]
        """Names of the columns that are not used."""

    def read(self) -> Iterator[Rows]:
        """Yield the rows in parts. Raise InvalidValue, with the line, for a bad row, unless bad rows are skipped."""
        for block in chain([self._rest], self._blocks):
            if b'"' in block:
                # A quoted field may have line ends, also that at the end of this block.
                yield from self._read_quoted(chain([block], self._blocks))
                return
            rows = self._read_block(block)
            self._line += block.count(b"\n")
            if len(rows):
                yield rows

    def _read_header(self) -> tuple[list[str], bytes]:
        """Return the header, and the rest of its block. A line that begins with # may state the growth."""
        for block in self._blocks:
            rest = block if self._line else block.removeprefix(codecs.BOM_UTF8)
            while rest:
                encoded, _, rest = rest.partition(b"\n")
                line = encoded.decode(errors="replace")
                self._line += 1
                if line.startswith("#"):
                    stated = _STATED_GROWTH.search(line)
                    self._growth = float(stated[1]) if stated else self._growth
                elif line.strip(" ,\t"):
                    try:
                        header = next(csv.reader([line]))
                    except csv.Error as error:
                        raise self._explain(self._line, str(error)) from error
                    return [each.strip().lower() for each in header], rest
        raise InvalidValue(f"{self._name}: it is empty: expected a header with {', '.join(REQUIRED)}")

    def _find_columns(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, name in enumerate(self._header):
            known = name
            if name.startswith("histogram") and name != "histogram":  # histogram_1.1 states the growth
                known = "histogram"
                stated = _GROWTH.search(name)
                self._growth = float(stated[1]) if stated else self._growth
            if known in REQUIRED or known in OPTIONAL:
                if known in found:
                    raise self._explain(self._line, f"the column {known} is there twice")
                found[known] = index
        missing = [name for name in REQUIRED if name not in found]
        if missing:
            shown = ", ".join(self._header)[:200]
            raise self._explain(self._line, f"the header has no column {', '.join(missing)}; it has {shown}")
        return found

    def _read_block(self, block: bytes) -> Rows:
        """Return the rows of whole lines without quotes. Nearly always they all have the same number of fields."""
        text = block.strip(b"\n")
        if b"#" not in text and text:
            fields = find_fields(text, len(self._header), ord(","), ord("\n"))
            if fields is not None:
                try:
                    return self._convert(fields)
                except ValueError:
                    pass  # find the row, which takes long
        lines = enumerate(block.split(b"\n"), self._line + 1)
        return self._convert_good([(number, line.decode(errors="replace").split(",")) for number, line in lines])

    def _read_quoted(self, blocks: Iterable[bytes]) -> Iterator[Rows]:
        first = self._line
        reader = csv.reader(
            line for block in blocks for line in block.decode(errors="replace").splitlines(keepends=True)
        )
        while True:
            found: list[tuple[int, list[str]]] = []
            try:
                for record in islice(reader, CHUNK_ROWS):
                    # A row of several lines is named by its last one.
                    found.append((first + reader.line_num, record))  # noqa: PERF401 - an error may come in between
            except csv.Error as error:
                raise self._explain(first + reader.line_num, str(error)) from error
            if not found:
                return
            rows = self._convert_good(found)
            if len(rows):
                yield rows

    def _convert_good(self, records: Sequence[tuple[int, list[str]]]) -> Rows:
        """Return the good rows. Raise InvalidValue for a bad one, unless bad rows are skipped."""
        width, lines, joined = len(self._header), [], []
        for line, record in records:
            if not any(each.strip() for each in record) or record[0].startswith("#"):
                continue
            if len(record) != width:
                self._refuse(line, f"expected {width} fields, found {len(record)}")
                continue
            lines.append(line)
            joined.append(_FIELD_END.join(each.translate(_REPLACED) for each in record))
        fields = find_fields(_LINE_END.join(joined).encode(), width, ord(_FIELD_END), ord(_LINE_END))
        if not lines or fields is None:
            return _build_empty()
        parts = list(self._convert_parts(fields, lines))
        return concatenate(parts) if parts else _build_empty()

    def _convert_parts(self, fields: Fields, lines: Sequence[int]) -> Iterator[Rows]:
        """Yield the rows that can be converted: all, or those of both halves."""
        try:
            yield self._convert(fields)
        except ValueError as error:
            if len(lines) == 1:
                self._refuse(lines[0], str(error))
                return
            middle = len(lines) // 2
            yield from self._convert_parts(fields.take(0, middle), lines[:middle])
            yield from self._convert_parts(fields.take(middle, len(lines)), lines[middle:])

    def _refuse(self, line: int, problem: str) -> None:
        if not self._skips_bad:
            raise self._explain(line, problem)
        self.bad_rows += 1
        self.first_problem = self.first_problem or f"{self._name}, line {line}: {problem}"

    def _convert(self, fields: Fields) -> Rows:
        """Return the lines as rows. Raise ValueError if any is bad."""
        columns, size = self._columns, len(fields)
        numbers = np.fromiter(map(self._find_series(fields), fields.labels(self._label_columns)), np.int32, size)
        starts = _convert_times(fields, columns["time"], "time")
        arrived = np.full(size, np.nan)
        if "arrived" in columns:
            arrived = _convert_times(fields, columns["arrived"], "arrived", may_be_blank=True)
        requests, faults = (np.rint(fields.numbers(columns[each], each)) for each in ("requests", "faults"))
        problem = check_counts(requests, faults)
        if problem:
            raise InvalidValue(problem)
        latencies = self._convert_latencies(fields, (requests - faults).astype(np.int64))
        return Rows(numbers, starts, arrived, requests.astype(np.int64), faults.astype(np.int64), latencies)

    def _find_series(self, fields: Fields) -> Callable[[tuple[bytes, ...]], int]:
        """Return a function from the bytes of labels to the number of the series."""
        known, separator = self._series, bytes([fields.separator])

        def find(labels: tuple[bytes, ...]) -> int:
            number = known.get(labels)
            if number is None:
                texts = [each.decode(errors="replace") for part in labels for each in part.split(separator)]
                named = dict(zip(self._label_names, texts, strict=True))
                number = known[labels] = self._labels.find(named)
            return number

        return find

    def _convert_latencies(self, fields: Fields, successes: Integers) -> Histograms:
        size, columns = len(fields), self._columns
        percentiles = [
            fields.numbers(columns[each], each) if each in columns else np.full(size, np.nan) for each in PERCENTILES
        ]
        texts = fields.texts(columns["histogram"]) if "histogram" in columns else []
        if not any(texts):
            return convert_percentiles(successes, *percentiles)
        growths = np.full(size, self._growth)
        if "growth" in columns:
            given = fields.numbers(columns["growth"], "growth")
            growths = np.where(np.isnan(given), growths, given)
        lengths = np.fromiter((text.count(":") for text in texts), np.int64, size)
        words = " ".join(texts).translate(_SEPARATORS).replace(":", " ").split()
        try:
            numbers = np.array(list(map(float, words)), np.float64)
        except ValueError as error:
            raise InvalidValue(f"histogram: {error}") from error
        if len(numbers) != 2 * lengths.sum():
            raise InvalidValue("histogram: expected bucket:count pairs separated by blanks, such as 30:5 31:12")
        owners = np.repeat(np.arange(size), lengths)
        spread = spread_histograms(size, owners, numbers[::2], numbers[1::2], growths[owners])
        if all(np.all(np.isnan(each)) for each in percentiles):
            return spread
        coarse = convert_percentiles(np.where(lengths > 0, 0, successes), *percentiles)
        return Histograms.merge([spread, coarse], np.tile(np.arange(size), 2), size)

    def _explain(self, line: int, problem: str) -> InvalidValue:
        return InvalidValue(f"{self._name}, line {line}: {problem}")


def parse_time(text: str) -> float:
    """Return a time in seconds since the epoch, from such a number or from ISO 8601. Raise InvalidValue."""
    text = text.strip()
    try:
        at = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text)
            at = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise InvalidValue(f"{text[:80]!r} is no time: expected UTC seconds or 2026-01-31T06:05:10Z") from error
    if not 0 <= at < _LATEST:
        hint = "; it seems to be in milliseconds" if _LATEST <= at < math.inf else ""
        raise InvalidValue(f"{text[:80]!r} is no time: expected UTC seconds since the epoch{hint}")
    return at


def _convert_times(fields: Fields, column: int, name: str, *, may_be_blank: bool = False) -> Floats:
    try:
        found = fields.numbers(column, name)
    except InvalidValue:
        texts = fields.texts(column)
        try:
            known = {text: parse_time(text) if text.strip() else math.nan for text in set(texts)}
        except InvalidValue as error:
            raise InvalidValue(f"{name}: {error}") from error
        found = np.array([known[text] for text in texts])
    is_valid = (found >= 0) & (found < _LATEST)
    if may_be_blank:
        is_valid |= np.isnan(found)
    if not np.all(is_valid):
        text = fields.texts(column)[int(np.argmin(is_valid))]
        try:
            parse_time(text)
        except InvalidValue as error:
            raise InvalidValue(f"{name}: {error}") from error
    return found


def _build_empty() -> Rows:
    none, times = np.zeros(0, np.int64), np.zeros(0)
    return Rows(none.astype(np.int32), times, times, none, none, build_empty(0))


def _split_blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the text in parts of whole lines, with line feeds as line ends."""
    rest = b""
    while data := read(BLOCK_BYTES):
        lines, found, end = data.rpartition(b"\n")
        if found:
            yield _unify_line_ends(rest + lines + found)
            rest = end
        else:
            rest += data
    if rest:
        yield _unify_line_ends(rest)


def _unify_line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data

"""Open recorded files of any accepted format, and read several of them side by side in the order of time."""

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

from holdfast._errors import InvalidValue
from holdfast.replay.csv_bins import CsvReader
from holdfast.replay.emf_rows import EmfReader
from holdfast.replay.prometheus import PrometheusReader
from holdfast.replay.rows import LabelTable, Rows
from holdfast.telemetry.bins import BIN_SECONDS
from holdfast.telemetry.source import SourceWorkload
from holdfast.telemetry.sources.emf_mapping import EmfMapping

_GZIP = b"\x1f\x8b"
_BEGINNING_BYTES = 4096
"""How much of a file decides which format it has."""


class RowReader(Protocol):
    """Reads the rows of one file."""

    bad_rows: int
    first_problem: str
    seconds: float | None
    """The length of a bin, if the format or an option states it."""

    @property
    def ignored(self) -> Sequence[str]:
        """Names of columns that are not used."""

    def read(self) -> Iterator[Rows]:
        """Yield the rows in parts. Raise InvalidValue for a bad row, unless bad rows are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How files are read."""

    paths: tuple[Path, ...]
    seconds: float | None = None
    """Length of a bin; None to find it in the data."""
    skips_bad: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names of Prometheus' labels by ours, in place of the usual ones."""
    workloads: tuple[SourceWorkload, ...] = ()
    """The workloads of the settings, to decode embedded metric format."""
    mappings: tuple[EmfMapping, ...] = ()


class Chunk(NamedTuple):
    """Rows of one file."""

    rows: Rows
    watermark: float
    """Time of the newest row of that file which is furthest behind."""
    seconds: float | None
    """Length of a bin, if it is stated."""


class _OpenFile:
    """A file that is being read."""

    def __init__(self, path: Path, options: ReadingOptions, labels: LabelTable, stack: ExitStack) -> None:
        self.newest = -math.inf
        try:
            self.size = path.stat().st_size
            self._raw = stack.enter_context(path.open("rb"))
            stream: BinaryIO = self._raw
            if self._raw.read(2) == _GZIP:
                self._raw.seek(0)
                stream = cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=self._raw)))
            stream.seek(0)
            beginning = stream.read(_BEGINNING_BYTES)
            stream.seek(0)
            self.reader = _choose_reader(str(path), stream, beginning, options, labels)
        except (OSError, EOFError, zlib.error) as error:
            raise _explain(path, error) from error
        self._path = path
        self._rows = self.reader.read()

    @property
    def position(self) -> int:
        """Number of bytes read."""
        return self._raw.tell()

    def read(self) -> Rows | None:
        """Return the next rows, or None at the end."""
        try:
            rows = next(self._rows, None)
        except (OSError, EOFError, zlib.error) as error:
            raise _explain(self._path, error) from error
        if rows is not None:
            self.newest = max(self.newest, float(rows.starts.max()))
        return rows


class RecordedFiles:
    """Several files, read in the order of time. Use as a context manager."""

    def __init__(self, options: ReadingOptions, labels: LabelTable) -> None:
        with ExitStack() as stack:  # closes the files that were opened before one that cannot be
            self._files = [_OpenFile(path, options, labels, stack) for path in options.paths]
            self._stack = stack.pop_all()

    def __enter__(self) -> "RecordedFiles":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def progress(self) -> float:
        """Share of the files that was read, from 0 to 1."""
        total = sum(each.size for each in self._files)
        return sum(each.position for each in self._files) / total if total else 1.0

    @property
    def bad_rows(self) -> int:
        return sum(each.reader.bad_rows for each in self._files)

    @property
    def notes(self) -> list[str]:
        """Sentences about columns that were ignored and rows that were skipped."""
        ignored = sorted({name for each in self._files for name in each.reader.ignored})
        problems = [each.reader.first_problem for each in self._files if each.reader.first_problem]
        notes = [f"ignored columns: {', '.join(ignored)}"] if ignored else []
        return [*notes, *(f"the first bad row: {each}" for each in problems[:1])]

    def read(self) -> Iterator[Chunk]:
        """Yield rows: always of the file that is furthest behind."""
        unfinished = list(self._files)
        while unfinished:
            file = min(unfinished, key=lambda each: each.newest)
            rows = file.read()
            if rows is None:
                unfinished.remove(file)
                continue
            yield Chunk(rows, min(each.newest for each in unfinished), file.reader.seconds)


def _choose_reader(
    name: str, stream: BinaryIO, beginning: bytes, options: ReadingOptions, labels: LabelTable
) -> RowReader:
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{") and b'"resultType"' in text:
        return PrometheusReader(name, stream.read(), labels, mapping=options.labels, skips_bad=options.skips_bad)
    if text.startswith((b"{", b"[")) or b'"_aws"' in text.partition(b"\n")[0]:
        return EmfReader(
            name,
            stream.read,
            labels,
            seconds=options.seconds or BIN_SECONDS,
            workloads=options.workloads,
            mappings=options.mappings,
            skips_bad=options.skips_bad,
        )
    return CsvReader(name, stream.read, labels, skips_bad=options.skips_bad)


def _explain(path: Path, error: Exception) -> InvalidValue:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidValue(f"{path} cannot be read: {reason}")

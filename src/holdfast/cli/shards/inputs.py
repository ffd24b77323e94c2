"""Fleets, tenants and assignments from files: JSON lines, CSV with a header, or plain names. The first line decides.

Files are UTF-8. Other bytes are preserved, because a tenant's name may be any bytes.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast._errors import InvalidValue
from holdfast.cli.output import decode_json, describe_input, open_input
from holdfast.shards.fleet import Fleet, Slot

_SLOT_COLUMNS = ("worker", "weight", "host")
_FORMAT_SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson")
"""Files with these suffixes must have the format that the suffix names: they are not lists of plain names."""


class FileRecord(NamedTuple):
    """The fields of one record of a file."""

    location: str
    """The file and the line or entry, for messages."""
    fields: Mapping[str, Any]


def read_fleet(path: str, *, shared_host_policy: Literal["refuse", "allow"] = "refuse") -> Fleet:
    """Read a file of workers: field `worker`, optional `weight` and `host`; every other field is a group."""
    slots: list[Slot] = []
    groups: list[str] = []
    seen: dict[str, str] = {}
    for location, fields in _read_records(path, "worker"):
        found = [name for name in fields if name not in _SLOT_COLUMNS]
        other = seen.setdefault(str(fields.get("worker")), location)
        if other != location:
            raise InvalidValue(f"{location}: worker {fields.get('worker')} is already in {other}; expected it once")
        if not slots:
            groups = found
        elif {*found} != {*groups}:  # as sets, because JSON may have them in any order
            raise InvalidValue(
                f"{location}: this worker has {_join_names(found)} and the first one {_join_names(groups)}: "
                "expected the same groups for each"
            )
        slots.append(_build_slot(location, fields, groups))
    if not slots:
        raise InvalidValue(f"{describe_input(path)}: no worker in it; expected a line for each worker")
    try:
        return Fleet(slots=tuple(slots), shared_host_policy=shared_host_policy)
    except InvalidValue as error:
        raise InvalidValue(f"{describe_input(path)}: {error}") from error


def read_tenants(path: str) -> Iterator[bytes]:
    """Yield the names of a file of tenants: field `tenant` of JSON or CSV, or whole lines."""
    for location, fields in _read_records(path, "tenant", or_lines=True):
        yield parse_name(_require_text(location, fields.get("tenant"), "the name of a tenant"))


def read_assignments(path: str) -> Iterator[tuple[bytes, Sequence[str]]]:
    """Yield the tenants of a file and their workers: a list or text `workers`, or all fields except `tenant`."""
    for location, fields in _read_records(path, "tenant"):
        name = parse_name(_require_text(location, fields.get("tenant"), "the name of a tenant"))
        workers = fields.get("workers", [value for key, value in fields.items() if key != "tenant"])
        if isinstance(workers, str):
            workers = workers.split()
        if not isinstance(workers, list) or not workers:
            raise InvalidValue(f"{location}: expected the workers of tenant {fields['tenant']}")
        yield name, [_require_text(location, worker, "a worker") for worker in workers]


def parse_name(text: str) -> bytes:
    """Return a tenant's name from the command line or a file, with its original bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, as JSON can hold
        return text.encode("utf-8", "surrogatepass")


def _read_records(path: str, wanted: str, *, or_lines: bool = False) -> Iterator[FileRecord]:
    """Yield the records of a file, without empty lines. With `or_lines`, a plain line is a field `wanted`."""
    with open_input(path, errors="surrogateescape") as lines:
        yield from _parse_records(describe_input(path), lines, wanted, or_lines=or_lines)


def _parse_records(source: str, lines: Iterable[str], wanted: str, *, or_lines: bool) -> Iterator[FileRecord]:
    numbered = enumerate(lines, start=1)
    begin, first = next(((number, line) for number, line in numbered if line.strip()), (1, ""))
    # The beginning of an array, `[{`, may be on two lines; a bracket alone may be a name.
    opening = [(begin, first), *(islice(numbered, 1) if first.strip() == "[" else ())]
    filled = chain(opening, numbered)
    if first.lstrip().startswith("{"):
        yield from _parse_json_lines(source, filled)
    elif "".join(line.strip() for _, line in opening).startswith("[{"):
        yield from _parse_array(source, "".join(line for _, line in filled))
    elif wanted in _parse_header(first):
        yield from _parse_csv(source, (line for _, line in filled), begin)
    elif or_lines and Path(source).suffix.lower() not in _FORMAT_SUFFIXES:
        names = ((number, line.rstrip("\r\n")) for number, line in filled if line.strip())
        yield from (FileRecord(f"{source}, line {number}", {wanted: name}) for number, name in names)
    elif first:
        raise InvalidValue(f"{source}: expected JSON lines, or CSV whose first line has a column `{wanted}`")


def _parse_array(source: str, text: str) -> Iterator[FileRecord]:
    """Yield the records of one JSON array, as commands print it with --json."""
    for number, fields in enumerate(decode_json(source, text), start=1):
        yield _build_record(f"{source}, entry {number}", fields)


def _build_record(location: str, fields: object) -> FileRecord:
    if not isinstance(fields, dict):
        raise InvalidValue(f"{location}: expected a JSON object")
    # Null is a missing field, as is an empty field of CSV.
    return FileRecord(location, {name: value for name, value in fields.items() if value is not None})


def _parse_json_lines(source: str, numbered: Iterable[tuple[int, str]]) -> Iterator[FileRecord]:
    for number, line in numbered:
        location = f"{source}, line {number}"
        if line.strip():
            yield _build_record(location, decode_json(location, line))


def _parse_header(line: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line]), [])]
    except csv.Error:  # a field that is far too long: not a header
        return []


def _parse_csv(source: str, lines: Iterable[str], begin: int) -> Iterator[FileRecord]:
    reader = csv.reader(lines, strict=True)
    number = begin  # the first line of a row, which may have several
    try:
        header = [field.strip() for field in next(reader)]
        if len({*header}) < len(header):
            raise InvalidValue(f"{source}: columns {', '.join(header)}; expected each column once")
        number = begin + reader.line_num
        for row in reader:
            location = f"{source}, line {number}"
            if len(row) > len(header):
                raise InvalidValue(f"{location}: {len(row)} fields, and the first line has {len(header)}")
            # Blanks are part of a tenant's name. Around other fields they are only for readability.
            pairs = (
                (name, field if name == "tenant" else field.strip()) for name, field in zip(header, row, strict=False)
            )
            fields = {name: field for name, field in pairs if field}
            if fields:
                yield FileRecord(location, fields)
            number = begin + reader.line_num
    except csv.Error as error:
        raise InvalidValue(f"{source}, line {number}: this is not CSV: {error}") from error


def _build_slot(location: str, fields: Mapping[str, Any], groups: Sequence[str]) -> Slot:
    texts = {
        name: _require_text(location, value, f"text as {name}") for name, value in fields.items() if name != "weight"
    }
    weight = fields.get("weight", 1.0)
    try:
        number = float(weight)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(f"{location}: weight {weight!r}: expected a number above 0") from error
    try:
        return Slot(
            worker=texts.get("worker", ""),
            group=tuple(texts[name] for name in groups),
            weight=number,
            host=texts.get("host"),
        )
    except InvalidValue as error:
        raise InvalidValue(f"{location}: {error}") from error


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "no group"


def _require_text(location: str, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{location}: {value!r}: expected {what}")
    return value

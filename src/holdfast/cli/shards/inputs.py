"""Fleets, tenants and assignments from files: JSON lines, CSV with a header, or names alone, told by the first line.

Files are UTF-8; what is not is kept byte by byte, because a tenant's name may be any bytes.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast._errors import InvalidValue
from holdfast.cli.output import decode_json, open_input, source_of
from holdfast.shards.fleet import Fleet, Slot

_OWN = ("worker", "weight", "host")
_TOLD = (".csv", ".json", ".jsonl", ".ndjson")
"""Ends of names of files that say what is in them: no names alone."""


class Record(NamedTuple):
    """What one line of a file says."""

    place: str
    """The file and the line, for people."""
    fields: Mapping[str, Any]


def read_fleet(path: str, *, shared_hosts: Literal["refuse", "allow"] = "refuse") -> Fleet:
    """The workers of a file: `worker`, and `weight` and `host` if it has them; whatever else there is, is a group."""
    slots: list[Slot] = []
    groups: list[str] = []
    seen: dict[str, str] = {}
    for place, fields in _records(path, "worker"):
        found = [name for name in fields if name not in _OWN]
        other = seen.setdefault(str(fields.get("worker")), place)
        if other != place:
            raise InvalidValue(f"{place}: worker {fields.get('worker')} was there before, in {other}; expected it once")
        if not slots:
            groups = found
        elif {*found} != {*groups}:  # by name: JSON may have them in any order
            raise InvalidValue(
                f"{place}: this worker has {_listed(found)} and the first one {_listed(groups)}: "
                "expected the same for each"
            )
        slots.append(_slot(place, fields, groups))
    if not slots:
        raise InvalidValue(f"{source_of(path)}: no worker in it; expected a line for each")
    try:
        return Fleet(slots=tuple(slots), shared_hosts=shared_hosts)
    except InvalidValue as error:
        raise InvalidValue(f"{source_of(path)}: {error}") from error


def read_tenants(path: str) -> Iterator[bytes]:
    """The names of a file, one after the other: `tenant` of JSON or CSV, or whole lines."""
    for place, fields in _records(path, "tenant", or_lines=True):
        yield as_name(_text(place, fields.get("tenant"), "the name of a tenant"))


def read_assignments(path: str) -> Iterator[tuple[bytes, Sequence[str]]]:
    """The tenants of a file and their workers: `workers` is a list in JSON; in CSV, whatever is not the tenant."""
    for place, fields in _records(path, "tenant"):
        name = as_name(_text(place, fields.get("tenant"), "the name of a tenant"))
        workers = fields.get("workers", [value for key, value in fields.items() if key != "tenant"])
        if isinstance(workers, str):
            workers = workers.split()
        if not isinstance(workers, list) or not workers:
            raise InvalidValue(f"{place}: expected the workers of tenant {fields['tenant']}")
        yield name, [_text(place, worker, "a worker") for worker in workers]


def as_name(text: str) -> bytes:
    """A tenant's name from the command line or a file, byte by byte as it was there."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, as JSON can hold
        return text.encode("utf-8", "surrogatepass")


def _records(path: str, wanted: str, *, or_lines: bool = False) -> Iterator[Record]:
    """The lines of a file that are not empty, each with what it says of what is wanted and whatever else it says."""
    with open_input(path, errors="surrogateescape") as lines:
        yield from _parsed(source_of(path), lines, wanted, or_lines=or_lines)


def _parsed(source: str, lines: Iterable[str], wanted: str, *, or_lines: bool) -> Iterator[Record]:
    numbered = enumerate(lines, start=1)
    begin, first = next((entry for entry in numbered if entry[1].strip()), (1, ""))
    # What an array begins with may stand on two lines; a name may be a bracket.
    opening = [(begin, first), *(islice(numbered, 1) if first.strip() == "[" else ())]
    filled = chain(opening, numbered)
    if first.lstrip().startswith("{"):
        yield from _json(source, filled)
    elif "".join(line.strip() for _, line in opening).startswith("[{"):
        yield from _array(source, "".join(line for _, line in filled))
    elif wanted in _columns(first):
        yield from _csv(source, (line for _, line in filled), begin)
    elif or_lines and Path(source).suffix.lower() not in _TOLD:
        names = ((number, line.rstrip("\r\n")) for number, line in filled if line.strip())
        yield from (Record(f"{source}, line {number}", {wanted: name}) for number, name in names)
    elif first:
        raise InvalidValue(f"{source}: expected JSON lines, or CSV whose first line has a column `{wanted}`")


def _array(source: str, text: str) -> Iterator[Record]:
    """One JSON document, as commands print it with --json."""
    for number, fields in enumerate(decode_json(source, text), start=1):
        yield _record(f"{source}, entry {number}", fields)


def _record(place: str, fields: object) -> Record:
    if not isinstance(fields, dict):
        raise InvalidValue(f"{place}: expected a JSON object")
    # Null says nothing, as an empty field of CSV.
    return Record(place, {name: value for name, value in fields.items() if value is not None})


def _json(source: str, numbered: Iterable[tuple[int, str]]) -> Iterator[Record]:
    for number, line in numbered:
        place = f"{source}, line {number}"
        if line.strip():
            yield _record(place, decode_json(place, line))


def _columns(line: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line]), [])]
    except csv.Error:  # far too long: whatever it is, it is no header
        return []


def _csv(source: str, lines: Iterable[str], begin: int) -> Iterator[Record]:
    reader = csv.reader(lines, strict=True)
    number = begin  # where a row begins, which may go on for several lines
    try:
        header = [field.strip() for field in next(reader)]
        if len({*header}) < len(header):
            raise InvalidValue(f"{source}: columns {', '.join(header)}; expected each once")
        number = begin + reader.line_num
        for row in reader:
            place = f"{source}, line {number}"
            if len(row) > len(header):
                raise InvalidValue(f"{place}: {len(row)} fields, and the first line has {len(header)}")
            # A tenant's name is what it is, blanks and all; around the others they are for the eye.
            pairs = (
                (name, field if name == "tenant" else field.strip()) for name, field in zip(header, row, strict=False)
            )
            fields = {name: field for name, field in pairs if field}
            if fields:
                yield Record(place, fields)
            number = begin + reader.line_num
    except csv.Error as error:
        raise InvalidValue(f"{source}, line {number}: this is not CSV: {error}") from error


def _slot(place: str, fields: Mapping[str, Any], groups: Sequence[str]) -> Slot:
    texts = {name: _text(place, value, f"a text as {name}") for name, value in fields.items() if name != "weight"}
    weight = fields.get("weight", 1.0)
    try:
        share = float(weight)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(f"{place}: weight {weight!r}: expected a number above 0") from error
    try:
        return Slot(
            worker=texts.get("worker", ""),
            group=tuple(texts[name] for name in groups),
            weight=share,
            host=texts.get("host"),
        )
    except InvalidValue as error:
        raise InvalidValue(f"{place}: {error}") from error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no group"


def _text(place: str, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{place}: {value!r}: expected {what}")
    return value

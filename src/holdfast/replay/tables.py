"""Parse the small CSV files beside a recording: labels, deploys, states of zones, shared resources. Pure."""

import csv
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from holdfast._errors import InvalidValue
from holdfast._names import parse_operation
from holdfast._types import Zone, ZoneState
from holdfast.replay.csv_bins import parse_time
from holdfast.replay.windows import StateSpan
from holdfast.telemetry.context import Deployment, SharedResource

Value = TypeVar("Value")
EXPECTED = ("isolated", "instance", "shared", "regional", "unknown")
"""The kinds of labels for which a verdict is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A failure that is known to have happened, from `start` to `end`."""

    start: float
    end: float
    kind: str
    """The expected kind of verdict. Another word, such as `deploy`, is no failure: no verdict is expected."""
    zone: Zone | None = None
    resource: str | None = None
    instance: str | None = None


def parse_labels(name: str, text: str) -> list[Label]:
    """Return the labels in a CSV with the columns start, end, kind, zone, resource, instance."""

    def build(row: Mapping[str, str]) -> Label:
        start, end = _parse_span(row)
        kind = row["kind"].lower()
        if not kind:
            raise InvalidValue(f"kind is blank: expected {', '.join(EXPECTED)}, or another word for no verdict")
        if kind not in EXPECTED and (close := difflib.get_close_matches(kind, EXPECTED, n=1, cutoff=0.75)):
            raise InvalidValue(
                f"kind {kind[:40]!r}: did you mean {close[0]}? Known kinds are {', '.join(EXPECTED)}; "
                "use a word that is not like any of them if you expect no verdict"
            )
        zone, resource, instance = (row.get(each) or None for each in ("zone", "resource", "instance"))
        if kind == "isolated" and zone is None:
            raise InvalidValue("zone is blank: a failure of the kind isolated needs its zone")
        return Label(
            start=start,
            end=end,
            kind=kind,
            zone=None if zone is None else Zone(zone),
            resource=resource,
            instance=instance,
        )

    return _parse_rows(name, text, ("start", "kind"), build)


def parse_deployments(name: str, text: str) -> list[Deployment]:
    """Return the announced deploys in a CSV with the columns start, end, zone."""

    def build(row: Mapping[str, str]) -> Deployment:
        start, end = _parse_span(row)
        zone = row.get("zone")
        return Deployment(Zone(zone) if zone else None, start, end)

    return _parse_rows(name, text, ("start", "end"), build)


def parse_states(name: str, text: str) -> list[StateSpan]:
    """Return the states of zones in a CSV with the columns start, end, zone, state."""

    def build(row: Mapping[str, str]) -> StateSpan:
        start, end = _parse_span(row)
        if not row["zone"]:
            raise InvalidValue("zone is blank")
        try:
            return StateSpan(start, end, Zone(row["zone"]), ZoneState(row["state"].lower()))
        except ValueError as error:
            raise InvalidValue(f"state {row['state'][:40]!r}: expected {', '.join(ZoneState)}") from error

    return _parse_rows(name, text, ("start", "zone", "state"), build)


def parse_resources(name: str, text: str) -> list[SharedResource]:
    """Return the shared resources in a CSV with the columns resource, operation, zone: a row for each operation."""

    def build(row: Mapping[str, str]) -> tuple[str, SharedResource]:
        if not row["resource"]:
            raise InvalidValue("resource is blank")
        operation, zone = parse_operation(row["operation"]), row.get("zone")
        return row["resource"], SharedResource(row["resource"], (operation,), Zone(zone) if zone else None)

    found = []
    rows = sorted(_parse_rows(name, text, ("resource", "operation"), build), key=lambda each: each[0])
    for resource, group in groupby(rows, key=lambda each: each[0]):
        parts = [part for _, part in group]
        zone = next((part.zone for part in parts if part.zone is not None), None)
        found.append(SharedResource(resource, tuple(part.operations[0] for part in parts), zone))
    return found


def _parse_span(row: Mapping[str, str]) -> tuple[float, float]:
    start = parse_time(row["start"])
    end = parse_time(row["end"]) if row.get("end") else math.inf
    if end < start:
        raise InvalidValue("end is before start")
    return start, end


def _parse_rows(
    name: str, text: str, required: Sequence[str], build: Callable[[Mapping[str, str]], Value]
) -> list[Value]:
    """Return an object for each row. Raise InvalidValue, with the line, for a bad one."""
    reader = csv.reader(text.lstrip("\ufeff").splitlines(keepends=True))
    header: list[str] | None = None
    found = []
    try:
        for record in reader:
            if not any(each.strip() for each in record) or record[0].startswith("#"):
                continue
            if header is None:
                header = [each.strip().lower() for each in record]
                _require(required, header)
            else:
                found.append(build(_name_fields(header, record)))
    except (InvalidValue, csv.Error) as error:
        raise InvalidValue(f"{name}, line {reader.line_num}: {error}") from error
    if header is None:
        raise InvalidValue(f"{name}: it is empty: expected a header with {', '.join(required)}")
    return found


def _require(required: Iterable[str], header: Sequence[str]) -> None:
    missing = [each for each in required if each not in header]
    if missing:
        raise InvalidValue(f"the header has no column {', '.join(missing)}")


def _name_fields(header: Sequence[str], record: Sequence[str]) -> Mapping[str, str]:
    if len(record) != len(header):
        raise InvalidValue(f"expected {len(header)} fields, found {len(record)}")
    return dict(zip(header, (each.strip() for each in record), strict=True))

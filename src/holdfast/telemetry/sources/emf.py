"""Decode lines of CloudWatch's embedded metric format (EMF) into bins. Pure.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

There are two ways for a record. Records as `encode_emf` writes them are decoded in one step, into a Struct with exactly
the needed members. All others, and those with anything unusual, are read member by member, as their directives and the
mappings say, with exact reasons if they cannot be used. Both ways accept the same records with the same result.

No member is kept longer than the decoding, except directives and labels in bounded caches.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Operation, Side, Zone
from holdfast.telemetry.bins import BIN_SECONDS, MAX_REQUESTS, Bin, BinDelta, BinKey
from holdfast.telemetry.collector import MAX_AHEAD_SECONDS
from holdfast.telemetry.source import SourceBatch, SourceWorkload
from holdfast.telemetry.sources.emf_mapping import EmfMapping
from holdfast.telemetry.sources.emf_plan import NO_REQUESTS, NO_ZONE, UNKNOWN_WORKLOAD, Plan, build_plan
from holdfast.telemetry.sources.emf_record import read_labels, read_requests
from holdfast.telemetry.sources.emf_values import (
    INVALID,
    MAX_LABEL_CHARACTERS,
    MAX_LATENCY,
    OUT_OF_RANGE,
    Members,
    Refused,
    read_dimension,
)

NOT_JSON, NOT_EMF, TOO_EARLY = "not_json", "not_emf", "too_early"
UNKNOWN_ZONE, ZONE_NAME, NOT_ALLOWED = "unknown_zone", "zone_name", "not_allowed"
REASONS = frozenset(
    {
        INVALID,
        NOT_ALLOWED,
        NOT_EMF,
        NOT_JSON,
        NO_REQUESTS,
        NO_ZONE,
        OUT_OF_RANGE,
        TOO_EARLY,
        UNKNOWN_WORKLOAD,
        UNKNOWN_ZONE,
        ZONE_NAME,
    }
)
"""All reasons for which a record is refused."""

MAX_LINE_BYTES = 1_048_576
"""Maximum size of a record: that of a log event of CloudWatch."""
_MIN_TIMESTAMP = 10**11
"""Minimum milliseconds since the epoch, in the year 1973. A smaller timestamp is in seconds, by mistake."""
_MAX_TIMESTAMP = 10**14
"""Maximum milliseconds since the epoch, in the year 5138."""
_ROUNDING = 1e-6
"""As in `bin_number`: a bin includes its start."""
_CHUNK_BYTES = 65_536
"""How much is decoded in one step. One unusual record makes all records of its chunk slower."""
_MAX_PLANS = 1_024
_MAX_PLAN_BYTES = 16_384
"""Longest directives that are cached: 100 metrics with short names."""
_MAX_KEYS = 65_536
_MAX_KEY_CHARACTERS = 512
"""Limits of the cache of labels: at most some 60 MB, however strange the labels are."""
# https://docs.aws.amazon.com/lambda/latest/dg/python-logging.html
_LAMBDA_PREFIX = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+Z[\t ]+\S+[\t ]+(?:[A-Z]+[\t ]+)?(?=\{)")

_Count = Annotated[int, Meta(ge=0, le=MAX_REQUESTS // 4)]
_Milliseconds = Annotated[float, Meta(ge=0, le=MAX_LATENCY * 1000)]


class _OwnMetadata(Struct, gc=False):
    directives: Raw = field(name="CloudWatchMetrics")
    timestamp: Annotated[int, Meta(ge=_MIN_TIMESTAMP, le=_MAX_TIMESTAMP)] = field(name="Timestamp")


class _OwnRecord(Struct, gc=False):
    """A record as `encode_emf` writes it."""

    aws: _OwnMetadata = field(name="_aws")
    controller: str = field(name="Controller")
    action: str = field(name="Action")
    zone: str = field(name="AZ-ID")
    instance: str = field(name="InstanceId")
    region: str = field(name="Region", default="")
    side: Side = field(name="Side", default=Side.SERVER)
    status: Annotated[int, Meta(ge=100, le=599)] = field(name="HttpStatusCode", default=0)
    """0 if the record has none."""
    count_2xx: _Count = field(name="2xx", default=0)
    count_3xx: _Count = field(name="3xx", default=0)
    count_4xx: _Count = field(name="4xx", default=0)
    count_5xx: _Count = field(name="5xx", default=0)
    success: _Milliseconds | UnsetType = field(name="SuccessLatency", default=UNSET)
    fault: _Milliseconds | UnsetType = field(name="FaultLatency", default=UNSET)


class _Metadata(Struct):
    directives: Raw = field(name="CloudWatchMetrics")
    timestamp: int | float = field(name="Timestamp")


_own_decoder = msgspec.json.Decoder(_OwnRecord)
_decode_own, _decode_own_lines = _own_decoder.decode, _own_decoder.decode_lines
_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_DECODE_ERRORS = (ValueError, RecursionError)
"""All that msgspec raises: its own errors and that of invalid UTF-8 are ValueErrors."""


_Labels: TypeAlias = tuple[str, str, str, str, str, Side]
"""Workload, service, operation, zone, instance and side."""
_BinLabels: TypeAlias = tuple[str, str, str, str, str, Side, int]
"""Workload, service, operation, zone, instance, side, and the number of the bin."""


class EmfDecoder:
    """Decodes lines of EMF. Not thread-safe, because of its caches."""

    def __init__(
        self,
        workloads: Iterable[SourceWorkload],
        mappings: Iterable[EmfMapping] = (),
        bin_seconds: float = BIN_SECONDS,
    ) -> None:
        self._workloads = {workload.name: workload for workload in workloads}
        self._mappings = {mapping.namespace: mapping for mapping in mappings}
        self._bin_seconds = bin_seconds
        self._plans: dict[bytes, Plan] = {}
        self._keys: dict[_Labels, BinKey] = {}

    def decode(self, body: bytes, now: float, *, allowed: frozenset[str] | None = None) -> SourceBatch:
        """Return the measurements in the lines of `body`, which arrives at `now`. Never raises.

        `allowed` has the workloads that the sender may report; None means all.
        """
        latest = (now + MAX_AHEAD_SECONDS) * 1000
        reading = _Reading(self._plans, self._keys, self._bin_seconds, latest, allowed)
        for chunk in _split_chunks(body):
            for line in reading.add_own(chunk):
                try:
                    self._add_line(reading, line, now)
                except Refused as error:
                    reading.refuse(error)
        return reading.finish()

    def _add_line(self, reading: "_Reading", line: bytes, now: float) -> None:
        """Add a record of any emitter. Raise Refused if it cannot be used."""
        line = _find_record(line)
        if not line:
            return
        metadata, members = _parse(line)
        timestamp = metadata.timestamp
        if not _MIN_TIMESTAMP <= timestamp <= _MAX_TIMESTAMP:
            raise Refused(
                OUT_OF_RANGE, f"`$._aws.Timestamp` is {str(timestamp)[:24]}: expected milliseconds since the epoch"
            )
        if timestamp > reading.latest:
            ahead = timestamp / 1000 - now
            raise Refused(TOO_EARLY, f"`$._aws.Timestamp` is {ahead:.0f} s ahead: check the clock of the sender")
        plan = self._find_plan(bytes(metadata.directives))
        for name in plan.dimensions:
            read_dimension(members, name)
        found = []
        for part in plan.parts:
            reading.require_allowed(part.workload.name)
            labels: _Labels = (part.workload.name, *read_labels(part, members))
            measured = read_requests(part, members, int(timestamp // 1000))
            found.append((labels, self._find_key(part.workload, labels), measured))
        reading.add(timestamp, found)

    def _find_plan(self, directives: bytes) -> Plan:
        plan = self._plans.get(directives)
        if plan is None:
            plan = build_plan(directives, self._workloads, self._mappings)
            if len(directives) <= _MAX_PLAN_BYTES:
                if len(self._plans) >= _MAX_PLANS:
                    self._plans.clear()
                self._plans[directives] = plan
        return plan

    def _find_key(self, workload: SourceWorkload, labels: _Labels) -> BinKey:
        key = self._keys.get(labels)
        if key is None:
            _, service, operation, zone, instance, side = labels
            if zone not in workload.zones:
                raise _explain_zone(workload, zone)
            key = BinKey(workload.name, Operation(service, operation), Zone(zone), instance, side)
            if sum(map(len, labels)) <= _MAX_KEY_CHARACTERS:
                if len(self._keys) >= _MAX_KEYS:
                    self._keys.clear()
                self._keys[labels] = key
        return key


class _Reading:
    """The measurements of one body."""

    def __init__(
        self,
        plans: Mapping[bytes, Plan],
        keys: Mapping[_Labels, BinKey],
        bin_seconds: float,
        latest: float,
        allowed: frozenset[str] | None,
    ) -> None:
        self.latest = latest
        """The latest timestamp that is accepted, in milliseconds."""
        self._plans = plans
        self._keys = keys
        self._bin_seconds = bin_seconds
        self._bin_milliseconds = bin_seconds * 1000
        self._allowed = allowed
        self._batch = SourceBatch()
        self._bins: dict[_BinLabels, Bin] = {}
        self._accepted = 0
        self._oldest = math.inf

    def add_own(self, chunk: bytes) -> Iterator[bytes]:
        """Add the records of a chunk that `encode_emf` could have written. Yield the lines of all others."""
        if len(chunk) > MAX_LINE_BYTES:  # a single line, because chunks are shorter
            yield chunk
            return
        lines: list[bytes] | None = None
        try:
            if not chunk.isascii():
                chunk.decode()  # msgspec does not decode text that it skips
            records: Sequence[_OwnRecord | None] = _decode_own_lines(chunk)
        except _DECODE_ERRORS:
            records = ()
        # Several times as fast as `count`. The numbers also differ if a record continues on a second line.
        line_ends = len(chunk) - len(chunk.replace(b"\n", b""))
        if len(records) != line_ends + 1:
            lines = chunk.split(b"\n")
            records = [_decode_own_or_none(line) for line in lines]
        for index in self._add_records(records):
            if lines is None:
                lines = chunk.split(b"\n")
            yield lines[index]

    def _add_records(self, records: Sequence[_OwnRecord | None]) -> Iterator[int]:
        """Add records of one request. Yield the index of each that needs a closer look: unusual, or new to the caches.

        One loop without further functions, because it runs for nearly every request of every service.
        """
        plans, latest, bin_milliseconds = self._plans, self.latest, self._bin_milliseconds
        keys, last_directives, plan = self._keys, Raw(), None
        last_number, rows = None, []
        for index, record in enumerate(records):
            if record is None:
                yield index
                continue
            directives = record.aws.directives
            if directives != last_directives:  # nearly all are the same, and comparing is quicker than hashing
                last_directives, plan = directives, plans.get(bytes(directives))
            if plan is None or plan.own is None:
                yield index
                continue
            own, timestamp = plan.own, record.aws.timestamp
            count_2xx, count_3xx = record.count_2xx, record.count_3xx
            count_4xx, count_5xx = record.count_4xx, record.count_5xx
            took, other = (record.fault, record.success) if count_5xx else (record.success, record.fault)
            is_declared = own.has_fault_latency if count_5xx else own.has_success_latency
            if (
                count_2xx + count_3xx + count_4xx + count_5xx != 1
                or timestamp > latest
                or other is not UNSET
                or (took is not UNSET and not is_declared)
                or (own.needs_region and not 0 < len(record.region) <= MAX_LABEL_CHARACTERS)
            ):
                yield index
                continue
            labels = own.workload, record.controller, record.action, record.zone, record.instance, record.side
            key = keys.get(labels)
            if key is None or not self._is_allowed(own.workload):
                yield index
                continue
            number, second = int(timestamp / bin_milliseconds + _ROUNDING), timestamp // 1000
            if number != last_number:
                last_number, rows = number, self._batch.requests.setdefault(number, [])
            seconds = None if took is UNSET else took * 0.001
            if count_2xx or count_3xx:
                rows.append((key, second, 2 if count_2xx else 3, False, seconds))
            else:
                is_fault = own.count_faults(count_4xx, count_5xx, record.status or None) > 0
                rows.append((key, second, 4 if count_4xx else 5, is_fault, seconds))
            self._accepted += 1
            if timestamp < self._oldest:  # noqa: PLR1730 - `min` takes ten times as long
                self._oldest = timestamp

    def require_allowed(self, workload: str) -> None:
        """Raise Refused if the sender may not report this workload."""
        if not self._is_allowed(workload):
            expected = " or ".join(sorted(self._allowed or ())) or "no workload"
            raise Refused(NOT_ALLOWED, f"the sender may not report workload {workload!r}: expected {expected[:200]}")

    def add(self, timestamp: float, found: Iterable[tuple[_Labels, BinKey, Bin]]) -> None:
        """Add the measurements of one record."""
        number = int(timestamp / self._bin_milliseconds + _ROUNDING)
        for labels, key, measured in found:
            bin_labels = (*labels, number)
            known = self._bins.get(bin_labels)
            if known is None:
                known = self._open_bin(bin_labels, key)
            known.merge(measured)
        self._accepted += 1
        self._oldest = min(self._oldest, timestamp)

    def refuse(self, error: Refused) -> None:
        """Count a record that cannot be used."""
        self._batch.refuse(error.reason, str(error))

    def finish(self) -> SourceBatch:
        """Return the batch with all measurements."""
        self._batch.accepted = self._accepted
        self._batch.oldest = self._oldest / 1000 if self._accepted else None
        return self._batch

    def _is_allowed(self, workload: str) -> bool:
        return self._allowed is None or workload in self._allowed

    def _open_bin(self, bin_labels: _BinLabels, key: BinKey) -> Bin:
        measured = self._bins[bin_labels] = Bin()
        self._batch.deltas.append(BinDelta(key, bin_labels[-1] * self._bin_seconds, self._bin_seconds, measured))
        return measured


def _split_chunks(body: bytes) -> Iterator[bytes]:
    """Yield the body in parts of whole lines, each without its last line end."""
    start, end = 0, len(body)
    while start < end:
        stop = end if end - start <= _CHUNK_BYTES else body.rfind(b"\n", start, start + _CHUNK_BYTES)
        if stop < 0:  # a line that is longer than a chunk
            stop = body.find(b"\n", start + _CHUNK_BYTES)
        stop = stop if stop >= 0 else end
        yield body[start:stop].rstrip(b"\n") if stop == end else body[start:stop]
        start = stop + 1


def _decode_own_or_none(line: bytes) -> _OwnRecord | None:
    try:
        line.decode()
        return _decode_own(line)
    except _DECODE_ERRORS:
        return None


def _find_record(line: bytes) -> bytes:
    """Return the record in a line: all of it, or the text after the time and request id that Lambda writes."""
    line = line.strip()
    if len(line) > MAX_LINE_BYTES:
        raise Refused(INVALID, f"a line has {len(line):,} bytes: expected at most {MAX_LINE_BYTES:,}")
    prefix = None if line.startswith(b"{") else _LAMBDA_PREFIX.match(line)
    return line if prefix is None else line[prefix.end() :]


def _parse(line: bytes) -> tuple[_Metadata, Members]:
    try:
        line.decode()
        members = _decode_members(line)
    except _DECODE_ERRORS as error:
        problem = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise Refused(NOT_JSON, f"a line is no JSON object: {problem}") from error
    if "_aws" not in members:
        raise Refused(NOT_EMF, "`$._aws` is missing: the line is not in embedded metric format")
    try:
        return _decode_metadata(members["_aws"]), members
    except _DECODE_ERRORS as error:
        message, _, below = str(error).partition(" - at `$")
        raise Refused(INVALID, f"`$._aws{below or '`'}: {message}") from error


def _explain_zone(workload: SourceWorkload, zone: str) -> Refused:
    expected = ", ".join(sorted(workload.zones))
    try:
        parse_zone(zone)
    except InvalidValue as error:
        return Refused(ZONE_NAME, f"{error}; workload {workload.name} has {expected}")
    return Refused(UNKNOWN_ZONE, f"workload {workload.name} has no zone {zone!r}: expected one of {expected}")

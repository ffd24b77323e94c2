"""Read the values of metrics and dimensions from the members of an EMF record. Pure.

A metric has one value, an array of values, or, from OpenTelemetry's exporter, values with their counts:
`{"Values": [], "Counts": [], "Max": 0, "Min": 0, "Count": 0, "Sum": 0}`, of which the arrays may be absent or empty.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from holdfast._names import CONTROL_CHARACTERS
from holdfast.metrics.histogram import Histogram
from holdfast.telemetry.bins import MAX_REQUESTS

Value = TypeVar("Value")

INVALID, OUT_OF_RANGE = "invalid", "out_of_range"
MAX_VALUES = 100
"""Maximum values of a metric in one record: CloudWatch's own limit."""
MAX_LABEL_CHARACTERS = 1024
"""Maximum length of the value of a dimension: CloudWatch's own limit."""
MAX_LATENCY = 3600.0
"""Maximum latency in seconds. No caller waits longer, so a longer one is an error of the source, or a wrong unit."""
_CONTROL_CHARACTERS = re.compile(f"[{CONTROL_CHARACTERS}]")
_WHOLE_TOLERANCE = 1e-6
"""How far a count may be from a whole number: OpenTelemetry computes sums as differences of floats."""


class Refused(Exception):
    """A record cannot be used."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


_Values = Annotated[list[int | float], Meta(max_length=MAX_VALUES)]


class _Distribution(Struct):
    values: _Values = field(name="Values", default=[])
    counts: _Values = field(name="Counts", default=[])
    max: int | float | None = field(name="Max", default=None)
    min: int | float | None = field(name="Min", default=None)
    count: int | float | None = field(name="Count", default=None)
    sum: int | float | None = field(name="Sum", default=None)


_decode_value = msgspec.json.Decoder(int | float | _Values | _Distribution).decode
_decode_text = msgspec.json.Decoder(Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_CHARACTERS)]).decode
_decode_status = msgspec.json.Decoder(
    Annotated[int, Meta(ge=100, le=599)] | Annotated[str, Meta(pattern="^[1-5][0-9]{2}$")]
).decode

Members = Mapping[str, Raw]
"""The members at the root of a record."""


class Latencies(NamedTuple):
    """The latencies of a metric, in seconds."""

    seconds: Histogram
    is_coarse: bool = False
    """Whether only their number, sum and extremes are known."""
    is_summary: bool = False
    """Whether they were counted by the source over a longer span, so that their seconds are unknown."""


def read_dimension(members: Members, name: str) -> str:
    """Return the value of a dimension. Raise Refused if it is absent, no text or too long."""
    raw = members.get(name)
    if raw is None:
        raise Refused(INVALID, f"{format_path(name)} is missing")
    text: str = _decode(_decode_text, raw, name)
    return text


def read_label(members: Members, name: str) -> str:
    """Return the value of a dimension that becomes a label. Raise Refused if it is not printable."""
    label = read_dimension(members, name)
    if _CONTROL_CHARACTERS.search(label):
        raise Refused(INVALID, f"{format_path(name)} contains a control character: expected printable text")
    return label


def read_status(members: Members, name: str | None) -> int | None:
    """Return the HTTP status of a record, or None if it has none."""
    raw = None if name is None else members.get(name)
    return None if raw is None or name is None else int(_decode(_decode_status, raw, name))


def read_count(raw: Raw, name: str) -> tuple[int, bool]:
    """Return the sum of the values of a metric that counts requests, and whether the source summed them up."""
    value = _decode(_decode_value, raw, name)
    if isinstance(value, _Distribution):
        if value.sum is not None:
            return _to_count(value.sum, f"{name}.Sum"), True
        return _to_count(
            sum(_to_count(each, f"{name}.Values") * count for each, count in _pairs(value, name)), name
        ), True
    if isinstance(value, list):
        return _to_count(sum(_to_count(each, name) for each in value), name), False
    return _to_count(value, name), False


def read_latencies(raw: Raw, name: str, unit_seconds: float) -> Latencies:
    """Return the values of a metric whose unit has `unit_seconds` seconds."""
    value = _decode(_decode_value, raw, name)
    if isinstance(value, _Distribution):
        return _read_distribution(value, name, unit_seconds)
    values = value if isinstance(value, list) else [value]
    return Latencies(Histogram.of(_to_seconds(each, name, unit_seconds) for each in values))


def format_path(name: str) -> str:
    """Return the JSON path of a member, cut to a length that fits into a message."""
    return f"`$.{name[:100]}`"


def _read_distribution(value: _Distribution, name: str, unit_seconds: float) -> Latencies:
    low = None if value.min is None else _to_seconds(value.min, f"{name}.Min", unit_seconds)
    high = None if value.max is None else _to_seconds(value.max, f"{name}.Max", unit_seconds)
    count = None if value.count is None else _to_count(value.count, f"{name}.Count")
    if not value.values and not value.counts:
        if count is None or value.sum is None:
            raise Refused(INVALID, f"{format_path(name)}: expected Values and Counts, or Count and Sum")
        total = _to_seconds(value.sum, f"{name}.Sum", unit_seconds, count)
        return Latencies(_spread(count, total, low, high), is_coarse=count > 1, is_summary=True)
    found = Histogram()
    for each, number in _pairs(value, name):
        if number:
            found.add(_to_seconds(each, f"{name}.Values", unit_seconds), number)
    if count not in (None, found.count):
        raise Refused(INVALID, f"{format_path(f'{name}.Count')} is {count}, and the sum of Counts {found.count}")
    if value.sum is not None:
        # Of a histogram that the exporter splits over several records, only the first has the sum; the others have 0.
        found.sum = _to_seconds(value.sum, f"{name}.Sum", unit_seconds, found.count)
    if low is not None and high is not None and 0 < high >= low:
        found.min, found.max = low, high  # exact, while the values are the middles of buckets
    return Latencies(found, is_summary=True)


def _spread(count: int, total: float, low: float | None, high: float | None) -> Histogram:
    """Return `count` values with this sum and these extremes; all at the mean if the extremes contradict the sum."""
    found = Histogram()
    if not count:
        return found
    if count > 1 and low is not None and high is not None:
        others = count - 2
        rest = (total - low - high) / others if others else low
        if low <= rest <= high and total >= low + high:
            found.add(low)
            found.add(high)
            if others:
                found.add(rest, others)
            return found
    found.add(total / count, count)
    return found


def _pairs(value: _Distribution, name: str) -> Iterator[tuple[float, int]]:
    """Yield each value with its count."""
    if len(value.values) != len(value.counts):
        found = f"{len(value.values)} Values and {len(value.counts)} Counts"
        raise Refused(INVALID, f"{format_path(name)} has {found}: expected a count for each value")
    for each, count in zip(value.values, value.counts, strict=True):
        yield each, _to_count(count, f"{name}.Counts")


def _to_count(number: float, name: str) -> int:
    """Return a number of requests. Raise Refused if it is negative, absurd or not whole."""
    if not 0 <= number <= MAX_REQUESTS:
        raise Refused(
            OUT_OF_RANGE, f"{format_path(name)} is {_shorten(number)}: expected 0 to {MAX_REQUESTS:,} requests"
        )
    whole = round(number)
    if abs(number - whole) > _WHOLE_TOLERANCE:
        raise Refused(INVALID, f"{format_path(name)} is {_shorten(number)}: expected a whole number of requests")
    return whole


def _to_seconds(value: float, name: str, unit_seconds: float, count: int = 1) -> float:
    """Return the seconds of `count` latencies together. Raise Refused if one is negative or above an hour."""
    if not 0 <= value <= MAX_LATENCY / unit_seconds * count:
        raise Refused(OUT_OF_RANGE, f"{format_path(name)} is {_shorten(value)}: expected latencies from 0 to one hour")
    return value * unit_seconds


def _shorten(number: float) -> str:
    return str(number)[:24]


def _decode(decode: Callable[[Raw], Value], raw: Raw, name: str) -> Value:
    try:
        return decode(raw)
    except (ValueError, RecursionError) as error:
        text, _, below = str(error).partition(" - at `$")
        reason = OUT_OF_RANGE if "out of range" in text else INVALID
        raise Refused(reason, f"{format_path(name + below.rstrip('`'))}: {text}") from error

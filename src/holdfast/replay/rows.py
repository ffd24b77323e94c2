"""Recorded measurements as columns: a row for each series and bin. Pure. Needs NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast._errors import InvalidValue
from holdfast._names import MAX_ZONE_CHARACTERS, check_workload_name, parse_operation
from holdfast._types import Side, Zone
from holdfast.telemetry.bins import MAX_REQUESTS, BinKey
from holdfast.telemetry.block import Floats, Histograms, Integers

DEFAULT_WORKLOAD = "workload"
"""The name of the workload if the data has none."""
MAX_NAME_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class Rows:
    """Measurements of many series and bins."""

    numbers: Integers
    """The number of the series: an index of the list of labels."""
    starts: Floats
    """The time of each row: the start of its bin, or a time within the bin."""
    arrived: Floats
    """When the row reached the server; NaN if that is not recorded: then it was on time."""
    requests: Integers
    faults: Integers
    latencies: Histograms
    """Latencies of successful requests, in seconds: a row for each row."""

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Integers) -> "Rows":
        """Return some rows, in their order."""
        return Rows(
            self.numbers[rows],
            self.starts[rows],
            self.arrived[rows],
            self.requests[rows],
            self.faults[rows],
            self.latencies.take(rows),
        )

    def slice(self, start: int, end: int) -> "Rows":
        """Return the rows from `start` up to `end`. Copies nothing but offsets."""
        part, kept = slice(start, end), self.latencies
        first, last = int(kept.offsets[start]), int(kept.offsets[end])
        latencies = Histograms(
            kept.offsets[start : end + 1] - first,
            kept.buckets[first:last],
            kept.values[first:last],
            kept.zeros[part],
            kept.sums[part],
            kept.minima[part],
            kept.maxima[part],
        )
        return Rows(
            self.numbers[part],
            self.starts[part],
            self.arrived[part],
            self.requests[part],
            self.faults[part],
            latencies,
        )


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, which must be at least one, in their order."""
    if len(parts) == 1:
        return parts[0]
    kept = [part.latencies for part in parts]
    ends = np.cumsum([0, *(each.offsets[-1] for each in kept)])
    offsets = [np.zeros(1, np.int64), *(each.offsets[1:] + end for each, end in zip(kept, ends, strict=False))]
    latencies = Histograms(
        np.concatenate(offsets),
        np.concatenate([each.buckets for each in kept]),
        np.concatenate([each.values for each in kept]),
        np.concatenate([each.zeros for each in kept]),
        np.concatenate([each.sums for each in kept]),
        np.concatenate([each.minima for each in kept]),
        np.concatenate([each.maxima for each in kept]),
    )
    return Rows(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.arrived for part in parts]),
        np.concatenate([part.requests for part in parts]),
        np.concatenate([part.faults for part in parts]),
        latencies,
    )


class LabelTable:
    """The series that were found so far, each with a number."""

    def __init__(self) -> None:
        self.keys: list[BinKey] = []
        """The labels of all series, by number."""
        self._numbers: dict[BinKey, int] = {}

    def find(self, labels: Mapping[str, str]) -> int:
        """Return the number of a series by its labels: workload, operation, zone, instance and side.

        Raise InvalidValue if a label is not valid.
        """
        return self.number(_parse_labels(labels))

    def number(self, key: BinKey) -> int:
        """Return the number of a series. A new one gets the next number."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number


def check_counts(requests: Floats, faults: Floats) -> str | None:
    """Return the problem with counts, or None."""
    if not (np.all(requests >= 0) and np.all(requests <= MAX_REQUESTS)):
        return f"requests: expected 0 to {MAX_REQUESTS}"
    if not (np.all(faults >= 0) and np.all(faults <= requests)):
        return "faults: expected 0 to the number of requests"
    return None


def _parse_labels(labels: Mapping[str, str]) -> BinKey:
    names = ("workload", "operation", "zone", "instance", "side")
    workload, operation, zone, instance, side = (labels.get(each, "").strip() for each in names)
    for name, text in (("operation", operation), ("instance", instance)):
        if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
            raise InvalidValue(f"{name} {text[:80]!r}: expected at most {MAX_NAME_CHARACTERS} printable characters")
    # Names of zones are accepted, too: nothing is taken out because of a recording.
    if not 1 <= len(zone) <= MAX_ZONE_CHARACTERS or not zone.isprintable():
        raise InvalidValue(f"zone {zone[:80]!r}: expected 1 to {MAX_ZONE_CHARACTERS} printable characters")
    try:
        known_side = Side(side.lower() or Side.SERVER)
    except ValueError as error:
        raise InvalidValue(f"side {side[:80]!r}: expected {', '.join(Side)}") from error
    checked = check_workload_name(workload or DEFAULT_WORKLOAD)
    return BinKey(checked, parse_operation(operation), Zone(zone), instance, known_side)

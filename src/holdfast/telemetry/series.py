"""Number the series of all workloads, and limit how many there are. Pure.

A series is one combination of labels. Labels come from outside: an operation named by an identifier, or an instance
name per request, would fill the memory. So a workload has a limit of each. Measurements beyond it are added to the
operation `other/other`, or to the instance or zone `other`, and counted.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Zone
from holdfast.telemetry.bins import BinKey

OTHER = "other"
OTHER_OPERATION = Operation(OTHER, OTHER)
"""The operation of measurements whose own operation is beyond the limit."""
ALL_INSTANCES = ""
"""The instance of a series that has the measurements of all instances of its zone."""
ALL_OPERATIONS = Operation("", "")
"""The operation of a series that has the measurements of all operations and instances of its zone."""
_NOT_STORED = math.inf
"""The time at which a series was last seen, if no stored bin has it yet."""

MAX_OPERATIONS = 500
"""Default limit. Most services have fewer than 200; one with more has identifiers in its names."""
MAX_INSTANCES = 2_000
"""Default limit."""
MAX_ZONES = 50
"""Limit of zones, also those that the settings do not name. The largest region has 25, with its Local Zones."""
MAX_SERIES = 60_000
"""Default limit: 200 operations on each of 300 instances. They need up to 1 GB (`benchmarks/telemetry.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLimits:
    """The maximum number of names and series of one workload."""

    max_operations: int = MAX_OPERATIONS
    max_instances: int = MAX_INSTANCES
    max_series: int = MAX_SERIES
    """Combinations of operation, zone, instance and side."""

    def __post_init__(self) -> None:
        for name in ("max_operations", "max_instances", "max_series"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected 1 or more")


@dataclass(slots=True)
class _WorkloadNames:
    """The names of one workload, each with the number of series that use it."""

    operations: Counter[Operation] = field(default_factory=Counter)
    zones: Counter[Zone] = field(default_factory=Counter)
    instances: Counter[str] = field(default_factory=Counter)
    series: int = 0
    """Number of series by instance."""
    overflowed: Counter[str] = field(default_factory=Counter)
    """Requests beyond each limit, by the name of the limit, since the start."""


class SeriesTable:
    """The known series: a number for each, so that stored bins need no labels. Not thread-safe."""

    def __init__(self, limits: SeriesLimits | None = None) -> None:
        self._limits = limits or SeriesLimits()
        self._numbers: dict[BinKey, int] = {}
        self._keys: dict[int, BinKey] = {}
        self._zone_numbers: dict[int, int] = {}
        self._total_numbers: dict[int, int] = {}
        self._last_seen: dict[int, float] = {}
        self._next = 0
        self._workloads: dict[str, _WorkloadNames] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def admit(self, key: BinKey, requests: int) -> BinKey:
        """Return the labels to store `requests` requests under: `key`, or `other` in place of a name beyond a limit."""
        if key in self._numbers:
            return key
        names = self._workloads.setdefault(key.workload, _WorkloadNames())
        limits, admitted = self._limits, key
        if key.operation not in names.operations and len(names.operations) >= limits.max_operations:
            admitted = replace(admitted, operation=OTHER_OPERATION)
            names.overflowed["max_operations"] += requests
        if key.zone not in names.zones and len(names.zones) >= MAX_ZONES:
            admitted = replace(admitted, zone=Zone(OTHER))
            names.overflowed["max_zones"] += requests
        if key.instance != ALL_INSTANCES:
            if key.instance not in names.instances and len(names.instances) >= limits.max_instances:
                admitted = replace(admitted, instance=OTHER)
                names.overflowed["max_instances"] += requests
            if admitted not in self._numbers and names.series >= limits.max_series:
                admitted = replace(admitted, instance=OTHER)
                names.overflowed["max_series"] += requests
        self.number(admitted)
        return admitted

    def number(self, key: BinKey) -> int:
        """Return the number of a series. A new series gets a number that no series had before."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
            self._keys[number] = key
            self._last_seen[number] = _NOT_STORED
            names = self._workloads.setdefault(key.workload, _WorkloadNames())
            names.zones[key.zone] += 1
            if key.operation != ALL_OPERATIONS:
                names.operations[key.operation] += 1
                self._total_numbers[number] = self._number_sum(
                    replace(key, operation=ALL_OPERATIONS, instance=ALL_INSTANCES)
                )
            if key.instance != ALL_INSTANCES:
                names.instances[key.instance] += 1
                names.series += 1
                self._zone_numbers[number] = self._number_sum(replace(key, instance=ALL_INSTANCES))
        return number

    def find(self, key: BinKey) -> int | None:
        """Return the number of a series, or None if it is not known."""
        return self._numbers.get(key)

    def _number_sum(self, key: BinKey) -> int:
        """Return the number of the series that a new series is added to: it must not be forgotten before that."""
        number = self.number(key)
        self._last_seen[number] = _NOT_STORED
        return number

    def snapshot(self) -> "SeriesTable":
        """Return a table that knows only the labels of all present numbers, for another thread."""
        copied = SeriesTable(self._limits)
        copied._keys = dict(self._keys)
        return copied

    def key(self, number: int) -> BinKey:
        return self._keys[number]

    def zone_number(self, number: int) -> int:
        """Return the number of the series with the same operation and zone, and all instances."""
        return self._zone_numbers.get(number, number)

    def total_number(self, number: int) -> int:
        """Return the number of the series with the same zone, and all operations and instances."""
        return self._total_numbers.get(number, number)

    def mark_seen(self, numbers: Iterable[int], at: float) -> None:
        """Record that stored bins up to the time `at` use these series."""
        for number in numbers:
            last_seen = self._last_seen[number]
            self._last_seen[number] = at if last_seen == _NOT_STORED else max(last_seen, at)

    def forget(self, now: float, instances_after: float, others_after: float) -> None:
        """Forget the series not seen for some seconds, so that their names no longer count.

        A series by instance is forgotten after `instances_after` seconds, another one after `others_after`.
        """
        for number, last_seen in list(self._last_seen.items()):
            seen = self._last_seen[number] = now if last_seen == _NOT_STORED else last_seen
            key = self._keys[number]
            is_instance = key.instance != ALL_INSTANCES
            if now - seen > (instances_after if is_instance else others_after):
                self._forget(number, key, is_instance=is_instance)

    def overflowed(self) -> dict[str, dict[str, int]]:
        """Return the requests beyond each limit since the start, by workload and name of the limit."""
        return {name: dict(names.overflowed) for name, names in self._workloads.items() if names.overflowed}

    def _forget(self, number: int, key: BinKey, *, is_instance: bool) -> None:
        del self._last_seen[number], self._keys[number], self._numbers[key]
        self._zone_numbers.pop(number, None)
        self._total_numbers.pop(number, None)
        names = self._workloads[key.workload]
        _decrease(names.zones, key.zone)
        if key.operation != ALL_OPERATIONS:
            _decrease(names.operations, key.operation)
        if is_instance:
            _decrease(names.instances, key.instance)
            names.series -= 1


def _decrease(counts: "Counter[Any]", name: object) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]

"""Count the instances of each zone that contribute faults or slow requests to a period. Pure. Needs NumPy.

The store keeps measurements by instance for a short time. So the instances of each step, 10 or 60 seconds, are noted
when it is new, and stay known for as long as an alarm needs them. An instance counts once in a period.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast._types import Side, Zone
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.telemetry.block import Block
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import SeriesStore

Codes: TypeAlias = "NDArray[np.int64]"
"""Numbers of instances, each with the number of its zone in the remainder."""

_SPARE = 1000
"""Instances that may be numbered before unused numbers are dropped."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The instances of one step."""

    blocks: list[Block]
    """The stored bins that they were found in, as far as the store still has them."""
    codes: tuple[Codes, Codes, Codes]
    """Instances with faults, with slow requests, and with any request, each once."""


class ContributorCounts:
    """Counts the instances of one workload. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, store: SeriesStore, table: SeriesTable) -> None:
        self._workload, self._options = declaration.workload, declaration.options
        self._store, self._table = store, table
        self._zone_numbers: dict[Zone, int] = {zone: number for number, zone in enumerate(declaration.zones)}
        self._steps: dict[float, _Step] = {}
        self._periods: dict[float, tuple[list[_Step], NDArray[np.float64]]] = {}
        self._instances = np.zeros(0, np.int64), np.zeros(0, np.int64)
        """Sorted numbers of series, and the code of the instance of each; -1 for a series that does not count."""
        self._codes: dict[tuple[Zone, str], int] = {}
        self._next = 0
        self._used = 0
        """Codes that were in use when unused ones were dropped last."""

    def count(self, start: float) -> tuple["NDArray[np.float64]", bool]:
        """Return the instances of the period from `start` on, and whether all its steps are known.

        The rows are instances with faults, with slow requests, and with any request; the columns are zones. A zone
        without requests has no value.
        """
        step, period = self._options.step, self._options.period
        starts = [start + step * number for number in range(period // step)]
        steps = [found for each in starts if (found := self._find_step(each)) is not None]
        known = self._periods.get(start)
        if known is None or len(known[0]) != len(steps) or any(map(_differ, known[0], steps)):
            known = self._periods[start] = steps, self._count_steps(steps)
        return known[1], len(steps) == len(starts)

    def drop_before(self, start: float) -> None:
        """Forget the steps that no later period needs."""
        self._steps = {each: kept for each, kept in self._steps.items() if each >= start}
        self._periods = {each: kept for each, kept in self._periods.items() if each >= start}

    def _find_step(self, start: float) -> _Step | None:
        known = self._steps.get(start)
        blocks = self._store.read_instances(self._workload, start, self._options.step)
        if not blocks and known is None:
            return None
        if known is None or any(all(block is not each for each in known.blocks) for block in blocks):
            known = self._steps[start] = _Step(blocks, self._find_contributors(blocks))
        elif len(blocks) < len(known.blocks):  # the store has dropped some: let go of them, too
            known.blocks[:] = blocks
        return known

    def _count_steps(self, steps: list[_Step]) -> "NDArray[np.float64]":
        zones = len(self._zone_numbers)
        if not steps:
            return np.full((3, zones), np.nan)
        found = [np.unique(np.concatenate([step.codes[kind] for step in steps])) % zones for kind in range(3)]
        counted = np.stack([np.bincount(each, minlength=zones) for each in found]).astype(np.float64)
        return np.where(counted[2] > 0, counted, np.nan)

    def _find_contributors(self, blocks: list[Block]) -> tuple[Codes, Codes, Codes]:
        codes = self._find_codes(np.concatenate([block.numbers for block in blocks]))
        counts = np.concatenate([block.counts for block in blocks])
        slowest = np.concatenate([block.success.maxima for block in blocks])
        is_counted = codes >= 0
        return (
            np.unique(codes[is_counted & (counts[:, 4] > 0)]),
            np.unique(codes[is_counted & (slowest > self._options.max_latency)]),
            np.unique(codes[is_counted & (counts[:, :4].sum(axis=1) > 0)]),
        )

    def _find_codes(self, numbers: "NDArray[np.int32]") -> Codes:
        """Return a code for each series: the same for all series of one instance."""
        wanted = np.unique(numbers).astype(np.int64)
        known, codes = self._instances
        positions = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
        is_known = known[positions] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
        found = np.full(len(wanted), -1, np.int64)
        found[is_known] = codes[positions[is_known]]
        for index in np.flatnonzero(~is_known).tolist():
            key = self._table.key(int(wanted[index]))
            if key.side is Side.SERVER and key.zone in self._zone_numbers:
                found[index] = self._get_code(key.zone, key.instance)
        self._instances = wanted, found
        if len(self._codes) > self._used + 2 * len(wanted) + _SPARE:  # instances come and go
            self._drop_unused_codes(found)
        return found[np.searchsorted(wanted, numbers)]

    def _get_code(self, zone: Zone, instance: str) -> int:
        code = self._codes.get((zone, instance))
        if code is None:
            code = self._codes[zone, instance] = self._next * len(self._zone_numbers) + self._zone_numbers[zone]
            self._next += 1
        return code

    def _drop_unused_codes(self, found: Codes) -> None:
        kept = [found, *(codes for step in self._steps.values() for codes in step.codes)]
        used = set(np.unique(np.concatenate(kept)).tolist())
        self._codes = {key: code for key, code in self._codes.items() if code in used}
        self._used = len(self._codes)


def _differ(one: _Step, other: _Step) -> bool:
    return one is not other

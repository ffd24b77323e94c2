"""Compare the requests of each zone in a period with its usual share of all requests. Pure. Needs NumPy."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast._alarm_options import USUAL_SECONDS
from holdfast._types import Side
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.telemetry.bins import MINUTE, BinKey
from holdfast.telemetry.block import Block
from holdfast.telemetry.series import ALL_INSTANCES, ALL_OPERATIONS, SeriesTable
from holdfast.telemetry.store import SeriesStore, Tier

Floats: TypeAlias = "NDArray[np.float64]"

USUAL_MINUTES = round(USUAL_SECONDS / MINUTE)
"""Minutes whose mean is the usual share of a zone: long enough for rare requests, short enough for a day."""
MIN_USUAL_MINUTES = 10
"""Minutes below which the usual share is not known."""
MIN_EXPECTED_REQUESTS = 20
"""Expected requests of a period below which chance alone may halve them."""


class ThroughputComparison:
    """Compares the requests of one workload's zones. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, store: SeriesStore, table: SeriesTable) -> None:
        self._workload, self._zones = declaration.workload, declaration.zones
        self._store, self._table = store, table
        self._minutes: dict[float, tuple[Block, Floats]] = {}
        """Stored minutes, by their start, each with the requests of every zone."""

    def compare(self, requests: Floats, first: float) -> Floats:
        """Return the share of each zone in per cent of its usual share, which is that of the hour before `first`.

        `requests` has a row for each zone and a column for each period. A zone has no value if too few of its requests
        are expected.
        """
        expected = self._find_usual_share(first)[:, None] * requests.sum(axis=0)
        with np.errstate(all="ignore"):
            return np.where(expected >= MIN_EXPECTED_REQUESTS, 100 * requests / expected, np.nan)

    def drop_before(self, first: float) -> None:
        """Forget the minutes that no period from `first` on is compared with."""
        oldest = first - MINUTE * (USUAL_MINUTES + 1)
        self._minutes = {minute: kept for minute, kept in self._minutes.items() if minute >= oldest}

    def _find_usual_share(self, end: float) -> Floats:
        """Return each zone's share of the requests in the hour before `end`; NaN if it is not known."""
        last = end // MINUTE * MINUTE
        minutes = [last - MINUTE * age for age in range(USUAL_MINUTES, 0, -1)]
        found = [requests for minute in minutes if (requests := self._find_totals(minute)) is not None]
        used = [requests for requests in found if requests.sum() > 0]
        if len(used) < MIN_USUAL_MINUTES:
            return np.full(len(self._zones), np.nan)
        total = np.sum(used, axis=0)
        return np.asarray(total / total.sum(), np.float64)

    def _find_totals(self, minute: float) -> "Floats | None":
        """Return the requests of each zone in one minute; None if the store has no bin of it."""
        block = self._store.read_block(self._workload, Tier.MINUTES, minute)
        if block is None:
            return None
        known = self._minutes.get(minute)
        if known is None or known[0] is not block:
            keys = [BinKey(self._workload, ALL_OPERATIONS, zone, ALL_INSTANCES, Side.SERVER) for zone in self._zones]
            numbers = [-1 if (number := self._table.find(key)) is None else number for key in keys]
            rows = {number: row for row, number in enumerate(block.numbers.tolist())}
            counts = [block.counts[rows[number], :4].sum() if number in rows else 0 for number in numbers]
            known = self._minutes[minute] = block, np.array(counts, np.float64)
        return known[1]

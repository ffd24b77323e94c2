"""Evaluate the alarms of one workload over recorded bins. Pure: measurements are kept in memory. Needs NumPy."""

from collections.abc import Sequence, Set

import numpy as np

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.alarms.alarm import StateValue
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.alarms.engine import AlarmChange, AlarmEngine
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.alarms.tree_metrics import IN_A_ROW
from holdfast.replay.judges import ALARMS, VerdictLog
from holdfast.replay.rows import Rows
from holdfast.replay.timeline import RecordedBin
from holdfast.replay.windows import WindowBuilder
from holdfast.telemetry.bins import MINUTE, BinKey, bin_number
from holdfast.telemetry.block import EMPTY, Block, Histograms, sum_over_instances
from holdfast.telemetry.collector import GRACE_SECONDS
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import SeriesStore, StoredBlock, Tier


class AlarmJudge:
    """The alarms of one workload. An alarm `<zone>-isolated-impact` counts as a verdict about the zone.

    In a recording without instances, no zone has several failing instances, and that alarm has no chance. Then
    `<zone>-aggregate-alarm` counts, which is the same without this condition.
    """

    def __init__(
        self, declaration: AlarmDeclaration, builder: WindowBuilder, seconds: float, *, has_instances: bool = True
    ) -> None:
        """Raise InvalidValue if bins of `seconds` do not fit the period of the alarms."""
        conclusion = "isolated-impact" if has_instances else "aggregate-alarm"
        self.log = VerdictLog(ALARMS)
        self._workload, self._period = declaration.workload, declaration.options.period
        self._builder = builder
        self._seconds, self._minute = seconds, max(MINUTE, seconds)
        self._table = SeriesTable()
        self._store = SeriesStore(self._table, seconds)
        self._engine = AlarmEngine(declaration, RecentMetrics(declaration, self._store, self._table))
        self._verdicts = {f"{zone}-{conclusion}": (VerdictKind.ISOLATED, zone, None) for zone in declaration.zones} | {
            f"{name}-impact": (VerdictKind.SHARED, None, name) for name, _ in declaration.resources
        }
        self._late: list[tuple[float, Rows]] = []
        """Late rows that have not arrived yet, with the start of their bin."""
        self._numbers: dict[int, int] = {}
        """The numbers in `_table` of series of the recording. A pruned table may number them anew."""

    def judge(self, recorded: RecordedBin, keys: Sequence[BinKey], zones_out: Set[Zone]) -> None:
        """Add a bin, and evaluate the alarms if a period ends with it."""
        end = recorded.end
        self._put(Tier.INSTANCES, recorded.start, self._build_block(recorded.rows, keys))
        changed = {bin_number(recorded.start, self._minute)} | self._add_late(end + GRACE_SECONDS, keys)
        if recorded.late is not None:
            self._late.append((recorded.start, recorded.late))
        is_complete = _is_multiple(end, self._minute)
        if self._period == self._seconds:
            self._put(Tier.ZONES, recorded.start, self._sum(recorded.start, self._seconds))
        for minute in changed:
            if is_complete or self._period < self._minute:
                start = minute * self._minute
                self._put(Tier.MINUTES, start, self._sum(start, self._minute))
        if _is_multiple(end, self._period):
            for change in self._engine.evaluate(round(end), zones_out).changes:
                self._note(change, end)
        if is_complete:
            self._store.prune(end)
            self._store.pop_changed()
            self._numbers.clear()

    def _note(self, change: AlarmChange, at: float) -> None:
        found = self._verdicts.get(change.alarm.alarm_name)
        if found is None:
            return
        name = change.alarm.alarm_name
        if change.new.state_value is not StateValue.ALARM:
            self.log.close(name, at)
            return
        kind, zone, resource = found
        verdict = Verdict(
            id=name,
            workload=self._workload,
            kind=kind,
            since=at - IN_A_ROW.number * self._period,
            at=at,
            zone=zone,
            resource=resource,
            summary=f"the alarm {name} is in ALARM",
        )
        self.log.open(verdict, at)

    def _add_late(self, now: float, keys: Sequence[BinKey]) -> set[int]:
        """Add late rows that have arrived by `now` to their bins. Return the minutes of these bins."""
        kept, changed = [], set()
        for start, rows in self._late:
            has_arrived = rows.arrived <= now
            if np.any(has_arrived):
                stored = self._store.read_block(self._workload, Tier.INSTANCES, start) or EMPTY
                added = self._build_block(rows.take(np.flatnonzero(has_arrived)), keys)
                self._put(Tier.INSTANCES, start, Block.merge([stored, added]))
                changed.add(bin_number(start, self._minute))
            if not np.all(has_arrived):
                kept.append((start, rows.take(np.flatnonzero(~has_arrived))))
        self._late = kept
        return changed

    def _put(self, tier: Tier, start: float, block: Block) -> None:
        seconds = self._minute if tier is Tier.MINUTES else self._seconds
        self._store.load(StoredBlock(self._workload, tier, start, seconds, block))

    def _sum(self, start: float, seconds: float) -> Block:
        blocks = self._store.read_instances(self._workload, start, seconds)
        return sum_over_instances(Block.merge(blocks), self._table, seconds)

    def _build_block(self, rows: Rows | None, keys: Sequence[BinKey]) -> Block:
        used = self._builder.select(rows, keys)
        if used is None:
            return EMPTY
        known = self._numbers
        for each in np.unique(used.numbers).tolist():
            if each not in known:
                known[each] = self._table.number(keys[each])
        given = np.fromiter(map(known.__getitem__, used.numbers.tolist()), np.int64, len(used))
        numbers, groups = np.unique(given, return_inverse=True)
        size = len(numbers)
        requests, faults = (np.bincount(groups, each, size).astype(np.int32) for each in (used.requests, used.faults))
        none = np.zeros(size, np.int32)
        empty = Histograms.of([]).spread(np.zeros(0, np.int64), np.zeros(0, np.int64), size)
        return Block(
            numbers.astype(np.int32),
            np.stack([requests - faults, none, none, faults, faults], axis=1),
            none,
            np.ones(size, np.bool_),
            Histograms.merge([used.latencies], groups, size),
            empty,
        )


def _is_multiple(at: float, seconds: float) -> bool:
    return abs(at / seconds - round(at / seconds)) < 1e-6

"""How much CPU time the alarms of 60,000 series take.

A workload has 200 operations in three zones with 100 instances each, so 60,000 series by instance and 600 by zone. Its
tree has about 3,600 metric alarms and 1,200 composite alarms. A unit is one evaluation of all of them, with one new
period of data. Storing that data is not measured: it happens without alarms, too.

`a minute`: periods of 60 s, as by default. `ten seconds`: periods of 10 s. `fifteen minutes`: the longest periods, soon
after a start, when all windows have to be computed. `a zone fails`: three minutes in which one zone fails and three
healthy ones in turn, so that the alarms of all its operations change, with reasons. The goal is 2 % of a tick of 10 s,
for the slowest of all evaluations.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main
from holdfast import Operation, Side, Zone
from holdfast.alarms import AlarmDeclaration, AlarmEngine, AlarmOptions, RecentMetrics
from holdfast.metrics import Histogram
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import SeriesStore, StoredBlock

START = 1_700_000_400.0
ZONES = Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3")
OPERATIONS = [Operation("Shop", f"Operation{number}") for number in range(200)]
INSTANCES = 100
BUDGET = 0.2
"""Seconds: 2 % of ten."""
LATENCIES = [Histogram.of([0.01 * (1 + (number + each) % 17) for each in range(20)]) for number in range(50)]


def measure_bin(*, faults: int) -> dict[BinKey, Bin]:
    """Return one bin of all series. In one zone, requests have faults."""
    found = {}
    for row, operation in enumerate(OPERATIONS):
        for zone in ZONES:
            failed = faults if zone == ZONES[0] else 0
            for instance in range(INSTANCES):
                measured = Bin(
                    count_2xx=20 - failed,
                    count_5xx=failed,
                    faults=failed,
                    success_seconds=LATENCIES[(row + instance) % len(LATENCIES)],
                )
                found[BinKey("shop", operation, zone, f"i-{zone}-{instance}", Side.SERVER)] = measured
    return found


class Fleet:
    """A store, and the blocks of one healthy minute and one in which a zone fails, to be stored again and again."""

    def __init__(self) -> None:
        self.table = SeriesTable()
        self.store = SeriesStore(self.table, 10.0)
        self.minutes = [self._build(START, 0), self._build(START + 60, 10)]

    def _build(self, start: float, faults: int) -> list[StoredBlock]:
        content = measure_bin(faults=faults)
        for number in range(6):
            self.store.close_bin(int(start // 10) + number, content, ["shop"])
        return self.store.pop_changed()

    def fill(self, minutes: int, *, failing_after: int | None = None) -> None:
        """Store minutes from START on: three healthy ones and three others in turn after `failing_after`."""
        for minute in range(minutes):
            is_failing = (
                failing_after is not None and minute >= failing_after and (minute - failing_after) // 3 % 2 == 0
            )
            for stored in self.minutes[is_failing]:
                offset = stored.start - (START + 60 * is_failing)
                self.store.load(stored._replace(start=START + 60 * minute + offset))


@contextmanager
def evaluate(fleet: Fleet, period: int, times: list[float], *, is_failing: bool = False) -> Iterator[Work]:
    """Evaluate one period after the other, and add the CPU time of each evaluation to `times`."""
    before = {10: 1, 60: 4, 900: 106}[period]
    fleet.fill(before + 16, failing_after=before if is_failing else None)
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, options=AlarmOptions(period=period))
    engine = AlarmEngine(declaration, RecentMetrics(declaration, fleet.store, fleet.table))
    end, step = START + 60 * before, declaration.options.step
    engine.evaluate(end)  # builds the tree; all alarms get their first state

    def work(count: int) -> int:
        for number in range(count):
            began = time.process_time()
            engine.evaluate(end + step * (number + 1))
            times.append(time.process_time() - began)
        return count

    yield work


def build(quick: bool) -> Benchmark:
    fleet = Fleet()

    times: dict[str, list[float]] = {"a minute": [], "ten seconds": [], "fifteen minutes": [], "a zone fails": []}

    def goals(_: Results) -> list[Goal]:
        return [
            Goal(f"slowest_seconds_of_{name.replace(' ', '_')}", max(found), BUDGET, "lower")
            for name, found in times.items()
        ]

    contenders = [
        Contender("a minute", lambda: evaluate(fleet, 60, times["a minute"]), 12),
        Contender("ten seconds", lambda: evaluate(fleet, 10, times["ten seconds"]), 12),
        Contender("fifteen minutes", lambda: evaluate(fleet, 900, times["fifteen minutes"]), 12),
        Contender("a zone fails", lambda: evaluate(fleet, 60, times["a zone fails"], is_failing=True), 12),
    ]
    return Benchmark(
        contenders=contenders, goals=goals, rounds=1 if quick else 5, show="seconds", timer=time.process_time
    )


if __name__ == "__main__":
    sys.exit(main("alarms", build))

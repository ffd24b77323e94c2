"""A workload with three zones, its measurements minute by minute, and an engine over them."""

from collections.abc import Iterable, Mapping

import msgspec

from holdfast import Operation, Side, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import StateValue
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.alarms.engine import AlarmEngine, Evaluation, SavedAlarms
from holdfast.alarms.explanation import Explanation, explain_alarm
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.metrics import Histogram
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import SeriesStore

START = 1_700_000_400.0
ZONES = Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3")
HOME, LIST = Operation("Home", "Index"), Operation("Products", "List")


def bins(
    zones: Iterable[Zone] = ZONES,
    operation: Operation = HOME,
    *,
    requests: int = 100,
    faults: int = 0,
    seconds: float = 0.02,
    instances: int = 10,
    side: Side = Side.SERVER,
) -> dict[BinKey, Bin]:
    """Return the requests of one bin, spread over the instances of each zone."""
    found = {}
    for zone in zones:
        for number in range(instances):
            count, failed = (
                each // instances + (number < each % instances) for each in (requests, min(faults, requests))
            )
            if count:
                success = Histogram.of([seconds] * (count - failed))
                measured = Bin(count_2xx=count - failed, count_5xx=failed, faults=failed, success_seconds=success)
                found[BinKey("shop", operation, zone, f"i-{number}", side)] = measured
    return found


class World:
    """The store of one workload with bins of ten seconds, and an engine."""

    def __init__(
        self,
        options: AlarmOptions | None = None,
        *,
        operations: tuple[Operation, ...] = (),
        resources: tuple[tuple[str, tuple[Operation, ...]], ...] = (),
    ) -> None:
        self.declaration = AlarmDeclaration(
            workload="shop",
            zones=ZONES,
            region="us-east-1",
            options=options or AlarmOptions(),
            operations=operations,
            resources=resources,
        )
        self.table = SeriesTable()
        self.store = SeriesStore(self.table, 10.0)
        self.at = START
        self.engine = self.start()

    def start(self, saved: SavedAlarms | None = None) -> AlarmEngine:
        """Return an engine over the store, as a new process would have it."""
        return AlarmEngine(self.declaration, RecentMetrics(self.declaration, self.store, self.table), saved)

    def save(self) -> SavedAlarms:
        """Return the state that a new process would load."""
        return msgspec.json.decode(msgspec.json.encode(self.engine.saved), type=SavedAlarms)

    def explain(self, name: str) -> Explanation:
        """Explain an alarm with the saved states, as another process does."""
        metrics = RecentMetrics(self.declaration, self.store, self.table)
        return explain_alarm(self.engine.tree, self.save(), name, metrics)

    def fill(self, *parts: Mapping[BinKey, Bin]) -> None:
        """Store a minute, of which every bin has the same content."""
        for _ in range(6):
            content = {key: measured for part in parts for key, measured in part.items()}
            self.store.close_bin(int(self.at // 10), content, ["shop"])
            self.at += 10.0

    def minute(self, *parts: Mapping[BinKey, Bin], zones_out: frozenset[Zone] = frozenset()) -> Evaluation:
        """Store a minute, and evaluate the alarms."""
        self.fill(*parts)
        return self.engine.evaluate(self.at, zones_out)

    def find(self, state: StateValue = StateValue.ALARM) -> set[str]:
        """Return the names of all alarms in a state, apart from those about operations."""
        states = self.engine.states
        return {
            name
            for name in (*self.engine.tree.composites, *self.engine.tree.metrics)
            if name in states and states[name].state_value is state and name not in self.engine.tree.about_operations
        }

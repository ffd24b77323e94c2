"""A watcher over one workload, with time and traffic under control."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import EngineUnavailable, Operation, Outcome, Side, Verdict, Zone
from holdfast.engines import Database
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore
from holdfast.telemetry import build_deltas
from holdfast.telemetry.series import SeriesLimits
from holdfast.testing import FakeClock
from holdfast.watch import TrafficSample, VerdictChange, WatchedWorkload, WatchEvent, WatchStore, WorkloadWatcher
from tests.unit.evacuate.fleet import build_service

ZONES = (Zone("az1"), Zone("az2"), Zone("az3"))


class Events:
    """Keeps what the loop reports."""

    def __init__(self) -> None:
        self.reported: list[WatchEvent] = []

    def emit(self, event: WatchEvent) -> None:
        self.reported.append(event)

    @property
    def verdicts(self) -> list[VerdictChange]:
        return [event for event in self.reported if isinstance(event, VerdictChange)]

    @property
    def samples(self) -> list[TrafficSample]:
        return [event for event in self.reported if isinstance(event, TrafficSample)]


class FailingStore(WatchStore):
    """A store whose database is away for the first `failures` writes that open a verdict."""

    failures = 0

    def record(
        self, *arguments: Any, opened: Verdict | None, closed: Sequence[str], current: Verdict | None = None
    ) -> None:
        if opened is not None and self.failures:
            self.failures -= 1
            raise EngineUnavailable("away")
        super().record(*arguments, opened=opened, closed=closed, current=current)


class World:
    """A watch over one workload, with time and traffic under control."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: FakeClock | None = None,
        detector: str = "threshold",
        history: Database | None = None,
        limits: SeriesLimits | None = None,
        may_evacuate: bool | None = True,
    ) -> None:
        self.clock = clock or FakeClock(wall=1_700_000_000.0)
        self.database = SqliteDatabase(folder / "test.sqlite")
        self.statuses = SqlStatusStore(self.database)
        self.log = FailingStore(self.database)
        self.events = Events()
        self.watch = WorkloadWatcher(
            [WatchedWorkload(name="shop", zones=ZONES, detector=detector, may_evacuate=may_evacuate)],
            self.log,
            evacuator=build_service(self.statuses, self.clock, ZONES),
            events=self.events,
            history=history,
            bin_seconds=10.0,
            limits=limits,
            clock=self.clock,
        )

    def second(self, failing: str | None = None, silent: frozenset[str] = frozenset()) -> None:
        """One second of traffic: ten requests in each zone, half of which fail where it is failing."""
        for zone in ZONES:
            for number in range(0 if zone in silent else 10):
                faulty = zone == failing and number % 2 == 0
                happened = outcome(self.clock.wall(), zone, f"i-{zone}-{number % 4}", faulty=faulty)
                self.watch.ingest(build_deltas([happened], 10.0))
        self.clock.advance(1.0)
        self.watch.tick()

    def seconds(self, count: int, failing: str | None = None, silent: frozenset[str] = frozenset()) -> None:
        for _ in range(count):
            self.second(failing, silent)


def outcome(at: float, zone: str, instance: str = "i-1", *, faulty: bool = False) -> Outcome:
    return Outcome(
        workload="shop",
        operation=Operation("Home", "Index"),
        zone=Zone(zone),
        instance=instance,
        at=at,
        side=Side.SERVER,
        count_2xx=int(not faulty),
        count_5xx=int(faulty),
        success_seconds=() if faulty else (0.02,),
        fault_seconds=(0.02,) if faulty else (),
    )

"""Several operators who evacuate zones at the same time, interleaved call by call in an order that a test chooses.

Every operator is a thread, and only one of them runs at a time. Before each call of AWS, of a status store and of a
journal, it waits until a schedule chooses it. So a run with the same choices is the same run. Calls take no time: time
passes only while all operators sleep.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from holdfast import HoldfastError, StatusStore, Zone, ZoneStatus
from holdfast.evacuate.actions.status import MarkOut
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.evacuator import Evacuator
from holdfast.evacuate.journal import Entry, Journal, RecordedRuns, Run
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock
from tests.unit.evacuate.direct import open_accounts
from tests.unit.evacuate.fleet import Killed

T = TypeVar("T")
R = TypeVar("R")

STUCK = 30.0
"""Seconds after which a thread that does not reach its next call is taken to be stuck."""


class Schedule:
    """Lets one of several operators go on at a time, as `choose` says, which gets the number of those who wait."""

    def __init__(self, clock: FakeClock, choose: Callable[[int], int]) -> None:
        self.clock = clock
        self._choose = choose
        self._changed = threading.Condition()
        self._running = 0
        """Threads that are not waiting."""
        self._waiting: dict[str, float] = {}
        """Who waits, and until when; 0.0 is now."""
        self._chosen: str | None = None

    def run(self, scripts: dict[str, Callable[[], None]]) -> None:
        """Run all scripts to their ends. Raise the first error."""
        errors: list[BaseException] = []

        def start(name: str, script: Callable[[], None]) -> None:
            try:
                self.wait(name)
                script()
            except BaseException as error:
                errors.append(error)
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

        threads = [threading.Thread(target=start, args=each, daemon=True) for each in scripts.items()]
        self._running = len(threads)
        for thread in threads:
            thread.start()
        while self._let_one_go_on():
            pass
        for thread in threads:
            thread.join(STUCK)
        if errors:
            raise errors[0]

    def wait(self, name: str, seconds: float = 0.0) -> None:
        """Wait for the next turn. Called by the thread of an operator."""
        with self._changed:
            self._waiting[name] = self.clock.monotonic() + seconds if seconds > 0 else 0.0
            self._running -= 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._chosen == name, STUCK), f"{name} was never chosen"
            self._chosen = None
            del self._waiting[name]

    def _let_one_go_on(self) -> bool:
        """Choose one operator, and return True; or False if all have ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._running and self._chosen is None, STUCK)
            if not self._waiting:
                return False
            ready = sorted(name for name, until in self._waiting.items() if until <= self.clock.monotonic())
            if not ready:
                first = min(self._waiting, key=lambda name: (self._waiting[name], name))
                self.clock.advance(self._waiting[first] - self.clock.monotonic())
                ready = [first]
            self._chosen = ready[self._choose(len(ready)) if len(ready) > 1 else 0]
            self._running += 1
            self._changed.notify_all()
            return True


class SerialExecutor:
    """A ThreadPoolExecutor that does everything in the calling thread, in a random order."""

    order = random.Random(0)

    def __init__(self, max_workers: int | None = None) -> None:
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> "Future[T]":
        future = _LazyFuture(self)
        self._waiting.append((future, lambda: function(*arguments)))
        return future

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return iter([function(each) for each in items])

    def work(self) -> None:
        """Do everything that was submitted."""
        waiting, self._waiting = self._waiting, []
        self.order.shuffle(waiting)
        for future, function in waiting:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Everything is done, or never will be."""

    def __enter__(self) -> "SerialExecutor":
        return self

    def __exit__(self, *exception: object) -> None:
        self.work()


class _LazyFuture(Future[Any]):
    def __init__(self, executor: SerialExecutor) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> Any:
        self._executor.work()
        return super().result(0)


def use_one_thread(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Let each run do its changes one after the other, in an order that depends on `seed`."""
    patch.setattr(SerialExecutor, "order", random.Random(seed))
    for module in ("runner", "discovering", "shift_candidates"):
        patch.setattr(f"holdfast.evacuate.{module}.ThreadPoolExecutor", SerialExecutor)


class _OperatorClock(FakeClock):
    """The time of all operators; a sleep lets the others go on."""

    def __init__(self, operator: "Operator") -> None:
        super().__init__()
        self._operator = operator

    def wall(self) -> float:
        return self._operator.schedule.clock.wall()

    def monotonic(self) -> float:
        return self._operator.schedule.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._operator.wait("sleep", seconds)


class _Store:
    """A status store whose calls wait for their turn."""

    def __init__(self, store: StatusStore, operator: "Operator") -> None:
        self._store = store
        self._operator = operator

    def read(self) -> Sequence[ZoneStatus]:
        self._operator.wait("read statuses")
        return self._store.read()

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        self._operator.wait(f"write status {status.zone} {status.state}")
        return self._store.write(status, expected)

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        return self._store.expire(now)


class _Journal:
    """A journal whose writes wait for their turn."""

    def __init__(self, journal: Journal, operator: "Operator") -> None:
        self._journal = journal
        self._operator = operator

    def read_runs(self) -> RecordedRuns:
        self._operator.wait("read runs")
        return self._journal.read_runs()

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        self._operator.wait("write runs")
        return self._journal.write_runs(runs, expected)

    def write_entries(self, entries: Sequence[Entry]) -> None:
        self._operator.wait("write entries")
        self._journal.write_entries(entries)

    def read_entries(self, zone: Zone | None = None, *, type: str | None = None) -> Sequence[Entry]:  # noqa: A002
        return self._journal.read_entries(zone, type=type)

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        self._operator.wait("delete entries")
        self._journal.delete_entries(entries)


class World:
    """What all operators share: one account, one status store, one time; and a check after every call."""

    def __init__(self, resources: int, choose: Callable[[int], int]) -> None:
        self.clock = FakeClock(wall=1_000_000.0)
        self.region = SimulatedRegion(self.clock)
        for number in range(resources):
            self.region.add("application", f"shop-{number}")
        self.store = MemoryStatusStore()
        self.schedule = Schedule(self.clock, choose)
        self.is_denied: Callable[[str], bool] = lambda _: False
        """Whether AWS denies a call, by the name of its operation."""
        self.events: list[str] = []
        """Every call, for people who look at a failure."""

    def find_shifted(self) -> set[Zone]:
        """Return the zones that evacuations of ours have shifted traffic away from."""
        for arn in self.region.resources:
            self.region.arc.get_active(arn)  # shifts that are over expire
        shifts = self.region.arc.shifts
        return {each.zone for each in shifts if each.status == "ACTIVE" and each.comment.startswith("hf-")}

    def find_out(self) -> set[Zone]:
        """Return the zones that are out for good: the first of the two writes is provisional."""
        now = self.clock.wall()
        return {each.zone for each in self.store.read() if each.is_out(now) and each.expires is None}

    def check(self) -> None:
        shifted, out = self.find_shifted(), self.find_out()
        assert len(shifted) <= 1, f"shifted: {sorted(shifted)}\n{self.describe()}"
        assert len(out) <= 1, f"out: {sorted(out)}\n{self.describe()}"

    def describe(self) -> str:
        return "\n".join(self.events)


class Operator:
    """A person at a machine with a journal, who may be killed and come back."""

    def __init__(self, name: str, world: World, journal: Journal | None = None) -> None:
        self.name = name
        self.world = world
        self.schedule = world.schedule
        self.journal = journal or MemoryJournal()
        self._calls_left: int | None = None
        self.evacuator = self._start()

    def wait(self, call: str, seconds: float = 0.0) -> None:
        """Wait for the turn of a call. Raise Killed if the process does not live that long."""
        if self._calls_left == 0:
            raise Killed
        if self._calls_left is not None:
            self._calls_left -= 1
        self.schedule.wait(self.name, seconds)
        self.world.events.append(f"{self.world.clock.wall() - 1_000_000:.1f} {self.name}: {call}")
        self.world.check()

    def perform(self, work: Callable[[Evacuator], object], kill_after: int | None = None) -> None:
        """Do something in a new process, which may be killed after some calls."""
        self.evacuator = self._start()
        self._calls_left = kill_after
        try:
            work(self.evacuator)
        except (HoldfastError, Killed) as error:
            self.world.events.append(f"{self.name}: {type(error).__name__} {error}")
        self._calls_left = None
        self.world.check()

    def _call(self, operation: str) -> None:
        self.wait(operation)
        if self.world.is_denied(operation):
            self.world.events.append(f"{operation} is denied")
            raise ServiceError(Refusal.DENIED)

    def _start(self) -> Evacuator:
        clock, store = _OperatorClock(self), _Store(self.world.store, self)
        return Evacuator(
            {
                "status": MarkOut({"main": StatusWriter(store, clock)}, clock),
                "zonal-shift": ZonalShift(open_accounts(self.world.region, self._call)),
            },
            _Journal(self.journal, self),
            store,
            clock,
        )


def evacuate(zone: Zone, workload: str | None, think: float, **overrides: str) -> Callable[[Evacuator], object]:
    """Return the work of an operator who looks at the plan for some seconds before going on."""
    known = {"verdict": "seen", "pause": "seen"} | {name.replace("_", "-"): text for name, text in overrides.items()}

    def work(evacuator: Evacuator) -> None:
        proposal = evacuator.prepare(zone, workload, reason="it fails", overrides=known)
        if not proposal.refusals:
            evacuator._clock.sleep(think)
            evacuator.evacuate(*evacuator.begin(proposal, by="operator"))

    return work


def resume(evacuator: Evacuator) -> None:
    """Continue every open run."""
    for run in evacuator.read_runs().open:
        evacuator.resume(evacuator.claim(run))


def restore(evacuator: Evacuator) -> None:
    """Undo every open run."""
    for run in evacuator.read_runs().open:
        evacuator.restore(evacuator.claim(run))


def wait(seconds: float) -> Callable[[Evacuator], object]:
    """Return the work of an operator who does nothing for some time."""
    return lambda evacuator: evacuator._clock.sleep(seconds)

"""A worker whose parts are driven by hand, on a clock that the test moves, over a backend that fails when told to."""

import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar, cast

from holdfast._types import Zone
from holdfast.queue import OutgoingMessage, Queue, QueuePolicy, RefusedMessage, SentMessage, Worker, WorkerOptions
from holdfast.queue.backend import (
    Backend,
    Capabilities,
    DeadLetter,
    DeadLetterQuery,
    LeaseRequest,
    LeaseResult,
    QueueChange,
    QueueSnapshot,
    Settlement,
)
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.events import AttemptEvent, BackendErrorEvent, PollEvent, QueueEvent
from holdfast.queue.rules.leasing import Pace
from holdfast.queue.worker.worker import WorkerRun
from holdfast.testing import FakeClock

PATIENCE = 10.0
"""Real seconds after which a test that waits for a thread is taken to be stuck."""
LEASE = 30.0
QUICK = Pace(rate=10_000.0, handler_seconds=0.0001, fetch_seconds=0.01)
"""The pace of a worker that fetches messages ahead."""
Item = TypeVar("Item")
Event = TypeVar("Event", bound=QueueEvent)


class Arrivals(SimpleQueue[Item]):
    """What handlers hand to the test, which waits for it."""

    def next(self) -> Item:
        return self.get(timeout=PATIENCE)


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[QueueEvent] = []

    def emit(self, event: QueueEvent) -> None:
        self.events.append(event)

    @property
    def handled(self) -> list[AttemptEvent]:
        return [event for event in self.events if isinstance(event, AttemptEvent)]

    @property
    def endings(self) -> list[str]:
        return [event.result.value for event in self.handled]

    @property
    def polled(self) -> list[PollEvent]:
        return [event for event in self.events if isinstance(event, PollEvent)]

    @property
    def troubles(self) -> list[tuple[str, str]]:
        return [(event.operation, event.error) for event in self.events if isinstance(event, BackendErrorEvent)]


class Zones:
    """A view that says what it is told to."""

    def __init__(self) -> None:
        self.are_out: dict[str | None, frozenset[Zone]] = {}

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        return self.are_out.get(None, frozenset()) | self.are_out.get(workload, frozenset())


class Faulty:
    """A backend in front of another, whose next calls raise what it is told to, before or after they are done."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.calls: list[str] = []
        self._before: dict[str, list[Exception]] = {}
        self._after: dict[str, list[Exception]] = {}
        self.on: dict[str, Callable[[], None]] = {}
        """Called before each call of a method."""

    def fail(self, method: str, *errors: Exception) -> None:
        """The next calls of a method fail, with nothing done."""
        self._before.setdefault(method, []).extend(errors)

    def lose_reply(self, method: str, *errors: Exception) -> None:
        """The next calls of a method are done, and fail all the same."""
        self._after.setdefault(method, []).extend(errors)

    def _do(self, method: str, call: Callable[[], Item]) -> Item:
        self.calls.append(method)
        self.on.get(method, lambda: None)()
        if self._before.get(method):
            raise self._before[method].pop(0)
        result = call()
        if self._after.get(method):
            raise self._after[method].pop(0)
        return result

    @property
    def capabilities(self) -> Capabilities:
        return self.backend.capabilities

    def send(
        self, destination: str, messages: Sequence[OutgoingMessage], *, is_topic: bool = False
    ) -> Sequence[SentMessage | RefusedMessage]:
        return self._do("send", lambda: self.backend.send(destination, messages, is_topic=is_topic))

    def lease(self, request: LeaseRequest) -> LeaseResult:
        return self._do("lease", lambda: self.backend.lease(request))

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        return self._do("settle", lambda: self.backend.settle(settlements))

    def wait(self, queue: str, timeout: float) -> bool:
        return self._do("wait", lambda: self.backend.wait(queue, timeout))

    def sweep(self, queue: str, before: float | None = None) -> int:
        return self._do("sweep", lambda: self.backend.sweep(queue, before))

    def inspect(self, queue: str, **options: Any) -> QueueSnapshot:
        return self._do("inspect", lambda: self.backend.inspect(queue, **options))

    def list_dead_letters(self, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        return self._do("list_dead_letters", lambda: self.backend.list_dead_letters(query))

    def redrive(self, query: DeadLetterQuery, *, discard: bool = False) -> int:
        return self._do("redrive", lambda: self.backend.redrive(query, discard=discard))

    def change(self, queue: str, change: QueueChange, *, create: bool = False) -> QueuePolicy:
        return self._do("change", lambda: self.backend.change(queue, change, create=create))

    def list_queues(self) -> Sequence[str]:
        return self._do("list_queues", self.backend.list_queues)

    def close(self) -> None:
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Bench:
    """A queue with the parts of one worker at rest. Handlers do run in threads, or an event loop, of their own."""

    made: ClassVar[list["Bench"]] = []

    def __init__(self, *, lease: float = LEASE, max_attempts: int = 3, real_time: bool = False, **options: Any) -> None:
        self.clock = FakeClock()
        self.backend = Faulty(MemoryBackend(None if real_time else self.clock))
        self.queue = Queue("work", self.backend, policy=QueuePolicy(lease=lease, max_attempts=max_attempts))
        self.sink = Kept()
        self.zones = Zones()
        self.worker = Worker(
            self.queue,
            WorkerOptions(**options),
            zones=self.zones,
            sink=self.sink,
            clock=None if real_time else self.clock,
        )
        self._current_run: WorkerRun | None = None
        self.made.append(self)

    @property
    def run(self) -> WorkerRun:
        """The parts of the worker, made when the handlers are there."""
        if self._current_run is None:
            self._current_run = self.worker.create_run()
        return self._current_run

    def send(self, *bodies: bytes, tenant: str = "tenant") -> None:
        self.queue.send_many([OutgoingMessage(tenant=tenant, body=body) for body in bodies])

    def feed(self) -> None:
        """Lease once."""
        self.run.fetcher.step()

    def feed_blindly(self) -> None:
        """Lease once, as if no handler hung."""
        executors = self.run.executors
        self.run.fetcher._executors = cast("Any", SimpleNamespace(can_accept=lambda: True, submit=executors.submit))
        self.run.fetcher.step()
        self.run.fetcher._executors = executors

    def settle(self) -> None:
        """Settle until nothing is held."""
        for _ in range(int(PATIENCE / 0.1)):
            if not len(self.run.context.leased):
                return
            self.run.settler.loop.run_step()
        raise AssertionError(f"{len(self.run.context.leased)} messages are still held")

    def settle_next(self) -> None:
        """Settle once, what is finished next."""
        for _ in range(int(PATIENCE / 0.1)):
            before = len(self.backend.calls)
            self.run.settler.loop.run_step()
            if len(self.backend.calls) > before:
                return
        raise AssertionError("nothing was finished")

    def wait_until_unstuck(self) -> None:
        """Let threads end whose handlers have returned."""
        until = time.monotonic() + PATIENCE
        while self.run.executors.is_stuck:
            assert time.monotonic() < until, "handlers still hang"
            time.sleep(0)

    def work(self) -> None:
        """Lease once, and settle all of it."""
        self.feed()
        self.settle()

    def end(self) -> None:
        """End its threads."""
        if self._current_run is not None:
            self._current_run.watchdog.release("the test is over", include_started=True)
            self._current_run.executors.stop()
            self._current_run.executors.join(1.0)
        self.worker.stop()

    def depth(self) -> tuple[int, int, int, int]:
        """Messages that are ready, leased, delayed and dead."""
        lanes = self.backend.backend.inspect("work").lanes
        return (
            sum(lane.ready for lane in lanes),
            sum(lane.leased for lane in lanes),
            sum(lane.delayed for lane in lanes),
            sum(lane.dead for lane in lanes),
        )

    def dead(self) -> list[DeadLetter]:
        return list(self.backend.backend.list_dead_letters(DeadLetterQuery(queue="work")))


def texts(messages: Iterable[Any]) -> list[str]:
    """What log records say."""
    return [record.getMessage() for record in messages]

"""Metastable failure: a service stays overloaded after a stall, because retries keep its queue full.

A server processes one queue in order, even calls whose callers have timed out. It stalls once. Whether it recovers
depends only on its callers: https://sigops.org/s/conferences/hotos/2021/papers/hotos21-s11-bronson.pdf
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast._errors import AttemptTimedOut, InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import Call
from holdfast.calls.limits import TokenBucket
from holdfast.calls.retry import Retry, RetryBudget
from holdfast.calls.runtime import Runtime
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Timeouts
from holdfast.simulate.budgets import ObservingBucket, RequestBucket
from holdfast.simulate.virtual import FailureProcess, Process, Timeline, seeded_random, simulate_call

GOOD_SHARE = 0.95
"""A second is good if this share of its requests succeeded."""
QUIET_SECONDS = 10
"""Good seconds at the end of the run that count as a recovery."""

_OPERATION = Operation("server", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A server, its callers, and a period in which the server stalls."""

    rate: float = 80.0
    """Requests per second of all callers together, at random times."""
    capacity: float = 100.0
    """Mean calls per second that the server can process. The time for each is random."""
    clients: int = 1
    """Calling processes. Each has its own retry budget."""
    timeout: float = 1.0
    """Attempt timeout in seconds."""
    stall_start: float = 10.0
    """Seconds before the stall."""
    stall: float = 10.0
    """Duration of the stall in seconds."""
    seconds: float = 200.0
    """Duration of the simulation in seconds."""
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate < self.capacity <= 10_000:
            raise InvalidValue(f"rate {self.rate} and capacity {self.capacity}: expected 0 < rate < capacity <= 10000")
        if not 1 <= self.clients <= 10_000:
            raise InvalidValue(f"{self.clients} clients: expected 1 to 10000")
        if not 0 < self.timeout < math.inf or not 0 <= self.stall_start < math.inf or not 0 < self.stall < math.inf:
            raise InvalidValue(
                f"timeout {self.timeout}, stall {self.stall} after {self.stall_start}: expected more than 0"
            )
        if not self.stall_start + self.stall + 2 * QUIET_SECONDS <= self.seconds <= 100_000:
            raise InvalidValue(
                f"{self.seconds} seconds in all: expected at least {self.stall_end + 2 * QUIET_SECONDS:g}, to detect a "
                "recovery, and at most 100000"
            )

    @property
    def stall_end(self) -> float:
        """Time at which the server works again, in seconds from the start."""
        return self.stall_start + self.stall


@dataclass(slots=True)
class Second:
    """The counts of one second."""

    offered: int = 0
    """Requests that began."""
    answered: int = 0
    """Those of them that succeeded, then or later."""
    calls: int = 0
    """Calls to the server, including retries."""
    queue: float = 0.0
    """Length of the server's queue at the end of the second, in seconds of waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallResult:
    """The result with one kind of caller."""

    callers: str
    recovery_seconds: int | None
    """Seconds from the end of the stall until requests succeeded for good; None: never."""
    calls_per_request: float
    """Calls to the server per request."""
    success_rate: float
    """The share of all requests that succeeded."""
    history: tuple[Second, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """One kind of caller, with its retry policy."""

    name: str
    retry: Retry = Retry()  # noqa: RUF009 - frozen
    budget: RetryBudget = RetryBudget()  # noqa: RUF009
    bucket: Callable[[], TokenBucket] | None = None
    """Makes a bucket of another kind to compare with, instead of the budget."""

    def build_client(self, options: Stall, runtime: Runtime) -> DependencyState:
        """Return the dependency of one calling process."""
        timeouts = Timeouts(attempt=options.timeout)
        made = state_of(Dependency("server", timeouts=timeouts, retry=self.retry, budget=self.budget, runtime=runtime))
        if self.bucket is not None:
            made.bucket = self.bucket()
        return made


CALLERS = (
    Callers(name="no retries", retry=Retry(max_attempts=1)),
    Callers(name="retries, no budget", budget=RetryBudget(cost=0.0, throttle_cost=0.0)),
    Callers(name="retries, 20 % of requests and 10/s", bucket=lambda: RequestBucket(0.2, per_second=10.0)),
    Callers(name="Holdfast's defaults"),
)
"""The kinds of callers to compare; the third has Finagle's budget."""


def compare(options: Stall) -> Iterator[StallResult]:
    """Yield the result with each kind of caller, for the same requests and the same work."""
    for callers in CALLERS:
        yield simulate_stall(options, callers)


def simulate_stall(options: Stall, callers: Callers) -> StallResult:
    """Simulate a stall with one kind of caller."""
    run = _Run(options, callers)
    run.timeline.start(0.0, run.requests())
    run.timeline.start(1.0, run.watch_queue())
    run.timeline.run(options.seconds)
    run.record_queue(options.seconds)
    history = run.history
    offered = sum(second.offered for second in history)
    return StallResult(
        callers=callers.name,
        recovery_seconds=find_recovery(history, options),
        calls_per_request=sum(second.calls for second in history) / offered,
        success_rate=sum(second.answered for second in history) / offered,
        history=history,
    )


def find_recovery(history: tuple[Second, ...], options: Stall) -> int | None:
    """Return the whole seconds from the end of the stall to the end of the last bad second; None without recovery."""
    # Requests of the last seconds may still be in flight when the run ends.
    judged = len(history) - math.ceil(options.timeout) - 1
    bad = [number for number, one in enumerate(history[:judged]) if one.answered < GOOD_SHARE * one.offered]
    if not bad:
        return 0
    return None if bad[-1] >= judged - QUIET_SECONDS else max(0, bad[-1] + 1 - math.ceil(options.stall_end))


class _Run:
    """One run: the server's queue, and the calls of all clients, counted per second."""

    def __init__(self, options: Stall, callers: Callers) -> None:
        self._options = options
        self.timeline = Timeline()
        self._clock = self.timeline.clock
        # The seeds do not depend on the callers, so that all kinds get the same requests and the same work.
        self._arrivals = seeded_random("metastability", options.seed, "arrivals")
        self._work = seeded_random("metastability", options.seed, "work")
        runtime = Runtime(self._clock, seeded_random("metastability", options.seed, "backoff").random)
        self._clients = [callers.build_client(options, runtime) for _ in range(options.clients)]
        self._free = 0.0  # when the server has processed its queue
        self.history = tuple(Second() for _ in range(math.ceil(options.seconds)))

    def requests(self) -> Process[None]:
        """Start requests at random times, each by a random client."""
        chance, clients = self._arrivals, self._clients
        while True:
            yield chance.expovariate(self._options.rate)
            client = clients[int(chance.random() * len(clients))]
            self.timeline.start(self._clock.now, self._request(client))

    def watch_queue(self) -> Process[None]:
        """Record the length of the queue at the end of every second."""
        while True:
            self.record_queue(self._clock.now)
            yield 1.0

    def record_queue(self, now: float) -> None:
        """Record how long a new call would wait at `now`."""
        self.history[math.ceil(now) - 1].queue = max(0.0, self._free - now)

    def _request(self, client: DependencyState) -> Process[None]:
        came = self.history[int(self._clock.now)]
        came.offered += 1
        if isinstance(client.bucket, ObservingBucket):
            client.bucket.on_call_begin(self._clock.now)
        error = yield from simulate_call(
            Call(client, _OPERATION, None, self._clock.now, idempotent=True), self._attempt
        )
        came.answered += error is None

    def _attempt(self, attempt: Attempt) -> FailureProcess:
        wait = self._served() - self._clock.now
        self.history[int(self._clock.now)].calls += 1
        if wait <= attempt.timeout:
            yield wait
            return None
        yield attempt.timeout
        return AttemptTimedOut("no response in time; the server will do the work anyway")

    def _served(self) -> float:
        """Add a call to the server's queue, and return the time at which it will be processed."""
        stall_start, stall_end = self._options.stall_start, self._options.stall_end
        start = max(self._clock.now, self._free)
        if stall_start <= start < stall_end:
            start = stall_end
        done = start + self._work.expovariate(self._options.capacity)
        if start < stall_start < done:
            done += stall_end - stall_start
        self._free = done
        return done

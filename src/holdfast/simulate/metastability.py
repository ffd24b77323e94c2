"""Why a service that has recovered may stay down: retries keep the queue full that made them.

A server works off one queue, first in, first out, and does not know that a caller has given up waiting. It stalls once.
What follows depends on the callers alone: https://sigops.org/s/conferences/hotos/2021/papers/hotos21-s11-bronson.pdf
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
"""A second is good if this share of its requests was answered."""
QUIET_SECONDS = 10
"""Seconds that must be good at the end before a recovery is believed."""

_OPERATION = Operation("server", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A server, its callers, and how long it stands still."""

    rate: float = 80.0
    """Requests per second, by all callers together; they come at random."""
    capacity: float = 100.0
    """Calls per second that the server can do; how long each takes is random."""
    clients: int = 1
    """Processes that call; each has a budget of its own."""
    timeout: float = 1.0
    """Seconds that a caller waits for an answer."""
    stall_start: float = 10.0
    """Seconds before the stall."""
    stall: float = 10.0
    """Seconds that the server does nothing."""
    seconds: float = 200.0
    """All of it."""
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
                f"{self.seconds} seconds in all: expected at least {self.stall_end + 2 * QUIET_SECONDS:g}, to see a "
                "recovery, and at most 100000"
            )

    @property
    def stall_end(self) -> float:
        """When the server works again, in seconds from the beginning."""
        return self.stall_start + self.stall


@dataclass(slots=True)
class Second:
    """What happened in one second."""

    offered: int = 0
    """Requests that came."""
    answered: int = 0
    """Of these, those that were answered in the end."""
    calls: int = 0
    """That the server got: requests, and retries."""
    queue: float = 0.0
    """Seconds that a call would wait which comes at the end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallResult:
    """How one kind of caller came through."""

    callers: str
    recovery_seconds: int | None
    """Seconds from the end of the stall until requests were answered again, and stayed so; None: never."""
    calls_per_request: float
    """Calls that the server got for each request."""
    success_rate: float
    """The share of all requests that were."""
    history: tuple[Second, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """One kind of caller."""

    name: str
    retry: Retry = Retry()  # noqa: RUF009 - frozen
    budget: RetryBudget = RetryBudget()  # noqa: RUF009
    bucket: Callable[[], TokenBucket] | None = None
    """In place of the budget, to compare with."""

    def build_client(self, options: Stall, runtime: Runtime) -> DependencyState:
        """Return what one process calls the server by."""
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
"""What is compared; the third is Finagle's budget."""


def compare(options: Stall) -> Iterator[StallResult]:
    """Let each kind of caller go through the same stall, one after the other: same requests, same work."""
    for callers in CALLERS:
        yield simulate_stall(options, callers)


def simulate_stall(options: Stall, callers: Callers) -> StallResult:
    """Let one kind of caller go through a stall."""
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
    """Whole seconds from the end of the stall to the end of the last bad one; None if they do not end."""
    # What came in the last seconds may still be on its way when the run ends.
    judged = len(history) - math.ceil(options.timeout) - 1
    bad = [number for number, one in enumerate(history[:judged]) if one.answered < GOOD_SHARE * one.offered]
    if not bad:
        return 0
    return None if bad[-1] >= judged - QUIET_SECONDS else max(0, bad[-1] + 1 - math.ceil(options.stall_end))


class _Run:
    """One run: the server's queue and everybody's calls, counted by the second."""

    def __init__(self, options: Stall, callers: Callers) -> None:
        self._options = options
        self.timeline = Timeline()
        self._clock = self.timeline.clock
        # Not named after the callers: all kinds meet the same requests and the same work.
        self._arrivals = seeded_random("metastability", options.seed, "arrivals")
        self._work = seeded_random("metastability", options.seed, "work")
        runtime = Runtime(self._clock, seeded_random("metastability", options.seed, "backoff").random)
        self._clients = [callers.build_client(options, runtime) for _ in range(options.clients)]
        self._free = 0.0
        self.history = tuple(Second() for _ in range(math.ceil(options.seconds)))

    def requests(self) -> Process[None]:
        """Requests that come, each to any of the clients."""
        chance, clients = self._arrivals, self._clients
        while True:
            yield chance.expovariate(self._options.rate)
            client = clients[int(chance.random() * len(clients))]
            self.timeline.start(self._clock.now, self._request(client))

    def watch_queue(self) -> Process[None]:
        """Look at the queue at the end of every second."""
        while True:
            self.record_queue(self._clock.now)
            yield 1.0

    def record_queue(self, now: float) -> None:
        """See how long a call would wait now."""
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
        return AttemptTimedOut("no answer in time; the server will do the work all the same")

    def _served(self) -> float:
        """When the server will have done one more call, after all that came before it."""
        stall_start, stall_end = self._options.stall_start, self._options.stall_end
        start = max(self._clock.now, self._free)
        if stall_start <= start < stall_end:
            start = stall_end
        done = start + self._work.expovariate(self._options.capacity)
        if start < stall_start < done:
            done += stall_end - stall_start
        self._free = done
        return done

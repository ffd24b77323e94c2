"""Retry amplification: the calls that a failing service gets when every layer above it retries, or only one does.

Each layer calls the next, and the last one calls the service. Each is a `Dependency`, and the engine makes every call.
Requests arrive at a constant rate and overlap, in virtual time.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import Call
from holdfast.calls.limits import TokenBucket
from holdfast.calls.retry import Retry, RetryBudget
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import Scope
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Timeouts
from holdfast.simulate.budgets import FailureBucket, ObservingBucket, RequestBucket
from holdfast.simulate.virtual import FailureProcess, Process, Timeline, seeded_random, simulate_call

MEASURED_CALLS = 20_000
"""Calls to the service that are enough to measure a policy without memory: they give the mean to within 1 %."""

_UNBOUNDED = Timeouts(attempt=None, total=None)
_FREE = RetryBudget(cost=0.0, throttle_cost=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStack:
    """The layers of the simulation, and the service below them."""

    layers: int = 5
    max_attempts: int = 3
    """Of each layer."""
    failure_rate: float = 1.0
    """The share of calls to the service that fail."""
    requests: int = 20_000
    rate: float = 100.0
    """Requests per second. Matters for a budget's `min_retry_rate`, which is a number of retries per second."""
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.layers <= 10:
            raise InvalidValue(f"{self.layers} layers: expected 1 to 10")
        if not 1 <= self.max_attempts <= 10:
            raise InvalidValue(f"{self.max_attempts} attempts: expected 1 to 10")
        if self.max_attempts**self.layers > MEASURED_CALLS:
            raise InvalidValue(
                f"{self.layers} layers of {self.max_attempts} attempts: expected at most {MEASURED_CALLS} calls per "
                "request"
            )
        if not 0 <= self.failure_rate <= 1:
            raise InvalidValue(f"failure_rate {self.failure_rate}: expected a share, 0 to 1")
        if not 1 <= self.requests <= 1_000_000:
            raise InvalidValue(f"{self.requests} requests: expected 1 to 1000000")
        if not 0 < self.rate < math.inf:
            raise InvalidValue(f"rate {self.rate}: expected requests per second, more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationResult:
    """The effect of one policy on the service, and on the callers."""

    policy: str
    requests: int
    """Simulated requests. Fewer for a policy without a budget that makes many calls per request: its requests do not
    affect each other, so fewer are enough to measure it."""
    calls: int
    """Calls to the service."""
    succeeded: int
    """Requests that succeeded."""

    @property
    def calls_per_request(self) -> float:
        """Calls to the service per request."""
        return self.calls / self.requests

    @property
    def success_rate(self) -> float:
        """The share of requests that succeeded."""
        return self.succeeded / self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The retry policy of all layers."""

    name: str
    is_aware: bool
    """Whether a layer knows the retry owner above it, and so does not retry itself."""
    budget: RetryBudget = _FREE
    """The budget for retries."""
    bucket: Callable[[], TokenBucket] | None = None
    """Makes a bucket of another kind to compare with, instead of the budget."""
    timeouts: Timeouts = _UNBOUNDED

    @property
    def has_memory(self) -> bool:
        """True if the outcome of one request affects the next."""
        return self.bucket is not None or self.budget is not _FREE

    def build_layer(self, name: str, options: ServiceStack, runtime: Runtime) -> DependencyState:
        """Return a layer with this policy."""
        retry = Retry(max_attempts=options.max_attempts)
        made = state_of(Dependency(name, retry=retry, budget=self.budget, timeouts=self.timeouts, runtime=runtime))
        if self.bucket is not None:
            made.bucket = self.bucket()
        return made


POLICIES = (
    Policy(name="every layer, no budget", is_aware=False),
    Policy(name="one layer, no budget", is_aware=True),
    Policy(name="every layer, 10 % of requests", is_aware=False, bucket=lambda: RequestBucket(0.1)),
    Policy(name="every layer, 500 tokens of 5", is_aware=False, budget=RetryBudget(cost=5.0, min_retry_rate=0.0)),
    Policy(name="every layer, 500 tokens of 14", is_aware=False, budget=RetryBudget(min_retry_rate=0.0)),
    Policy(name="every layer, gRPC 10/0.1", is_aware=False, bucket=FailureBucket),
    Policy(name="Holdfast's defaults", is_aware=True, budget=RetryBudget(), timeouts=Timeouts()),
)
"""The policies to compare. The three before the last are the AWS SDKs' former and current ones, and gRPC's."""


def compare(options: ServiceStack) -> Iterator[AmplificationResult]:
    """Yield the result of each policy."""
    for policy in POLICIES:
        yield amplify(options, policy)


def expected_calls(options: ServiceStack, *, is_aware: bool) -> float:
    """Return the expected calls to the service per request without a budget."""
    calls, failure_rate = 1.0, options.failure_rate
    for _ in range(1 if is_aware else options.layers):
        calls *= sum(failure_rate**number for number in range(options.max_attempts))
        failure_rate **= options.max_attempts
    return calls


def amplify(options: ServiceStack, policy: Policy) -> AmplificationResult:
    """Simulate the requests with one policy."""
    requests = options.requests
    if not policy.has_memory:
        requests = min(requests, math.ceil(MEASURED_CALLS / expected_calls(options, is_aware=policy.is_aware)))
    timeline = Timeline()
    runtime = Runtime(timeline.clock, seeded_random("amplification", options.seed, policy.name, "backoff").random)
    layers = [policy.build_layer(f"layer-{number}", options, runtime) for number in range(1, options.layers + 1)]
    stack = _Layers(layers, options, policy, seeded_random("amplification", options.seed, policy.name))
    timeline.start(0.0, _send_requests(timeline, stack, requests, 1 / options.rate))
    timeline.run()
    return AmplificationResult(policy=policy.name, requests=requests, calls=stack.calls, succeeded=stack.succeeded)


def _send_requests(timeline: Timeline, stack: "_Layers", requests: int, interval: float) -> Process[None]:
    for _ in range(requests):
        timeline.start(timeline.clock.now, stack.request())
        yield interval


class _Layers:
    """The layers, and the service below them."""

    def __init__(
        self, layers: list[DependencyState], options: ServiceStack, policy: Policy, chance: random.Random
    ) -> None:
        self._layers = layers
        self._failure_rate = options.failure_rate
        self._is_aware = policy.is_aware
        self._chance = chance
        self._operations = [Operation(layer.name, "call") for layer in layers]
        self.calls = 0
        self.succeeded = 0

    def request(self) -> Process[None]:
        """Make one request to the first layer."""
        error = yield from self._call_layer(0, None)
        self.succeeded += error is None

    def _call_layer(self, depth: int, outer: Scope | None) -> FailureProcess:
        if depth == len(self._layers):
            self.calls += 1
            return ConnectionError() if self._chance.random() < self._failure_rate else None
        layer = self._layers[depth]
        now, bucket = layer.runtime.monotonic(), layer.bucket
        if isinstance(bucket, ObservingBucket):
            bucket.on_call_begin(now)

        def make_attempt(attempt: Attempt) -> FailureProcess:
            error = yield from self._call_layer(depth + 1, attempt if self._is_aware else None)
            if error is not None and isinstance(bucket, ObservingBucket):
                bucket.on_attempt_failed()
            return error

        call = Call(layer, self._operations[depth], outer, now, idempotent=True)
        return (yield from simulate_call(call, make_attempt))

"""Fault injection: attempts that fail, hang, are slow or return another result, without changes to the tested code."""

import itertools
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from holdfast._backoff import Chance
from holdfast._errors import AttemptTimedOut, DeadlineExceeded, InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import current_attempt
from holdfast.calls.dependency import Dependency
from holdfast.calls.runtime import PROCESS, Interceptor, Runtime
from holdfast.testing.clock import seeded

Error = Exception | Callable[[], Exception]
"""An exception, or a class or function that makes one without arguments."""


class HttpStatusError(Exception):
    """An exception for an HTTP status, with a `response` like those of HTTP clients."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP status {status} (injected fault)")
        self.response = SimpleNamespace(
            status_code=status, headers={name.lower(): text for name, text in headers.items()}
        )


@dataclass(frozen=True, slots=True)
class FakeResult:
    """A result to return instead of calling the function. It may be None, hence this class."""

    result: Any


@dataclass(slots=True, kw_only=True)
class FaultRule:
    """A fault that is injected into attempts."""

    seconds: float = 0.0
    """Seconds that pass; infinity until the attempt times out."""
    error: Callable[[], Exception] | None = None
    fake_result: FakeResult | None = None
    times_left: float
    """Attempts that it still applies to."""
    probability: float
    up_to_attempt: float
    """It applies only to this many first attempts of each call."""

    def __post_init__(self) -> None:
        if self.times_left != math.inf and (self.times_left < 1 or self.times_left != int(self.times_left)):
            raise InvalidValue(f"times {self.times_left}: expected a whole number, at least 1, or math.inf for always")
        if not 0 < self.probability <= 1:
            raise InvalidValue(f"probability {self.probability}: expected more than 0, and at most 1")
        if self.up_to_attempt < 1:
            raise InvalidValue(
                f"up_to_attempt {self.up_to_attempt}: expected at least 1, the first attempt of each call"
            )

    @property
    def ends_attempt(self) -> bool:
        """True if no later rule can apply to the attempt."""
        return self.seconds == math.inf or self.error is not None or self.fake_result is not None

    def applies(self, attempt: Attempt, chance: Chance) -> bool:
        """Return whether it applies to this attempt. Draw a random number only if needed."""
        is_due = self.times_left > 0 and attempt.number <= self.up_to_attempt
        return is_due and (self.probability == 1 or chance() < self.probability)


class Script:
    """The faults for the attempts that it matches. `fail`, `status`, `answer`, `slow` and `hang` add a rule.

    Rules apply to an attempt in the order in which they were added: delays add up, and the first failure or result ends
    it. A rule applies to `times` attempts of any calls; by default it always applies. With a `probability`, a seeded
    random number decides for each attempt. With `up_to_attempt`, it applies to the attempts 1 to that number of each
    call: `fail(TimeoutError, up_to_attempt=1)` makes every call need a retry.
    """

    def __init__(self, *, dependency: str | None = None, operation: str | None = None, zone: str | None = None) -> None:
        self._dependency = dependency
        self._operation = operation
        self._zone = zone
        self._rules: list[FaultRule] = []
        self.matched = 0
        """Attempts that it matched."""
        self.applied = 0
        """Those of them to which at least one rule applied."""

    def fail(
        self, *errors: Error, times: float = math.inf, probability: float = 1.0, up_to_attempt: float = math.inf
    ) -> Self:
        """Fail attempts with these errors in turn: `fail(ConnectionResetError, TimeoutError("slow"), times=2)`."""
        if not errors:
            raise InvalidValue("no error to fail with: expected at least one exception, or a function that makes one")
        factories = itertools.cycle([_error_factory(error) for error in errors])

        def make() -> Exception:
            return next(factories)()

        return self._add(FaultRule(error=make, times_left=times, probability=probability, up_to_attempt=up_to_attempt))

    def status(
        self,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        times: float = math.inf,
        probability: float = 1.0,
        up_to_attempt: float = math.inf,
    ) -> Self:
        """Fail attempts with an exception that has a response: `status(429, headers={"retry-after": "2"})`.

        For code that checks responses itself, use `answer` with a response of its HTTP client.
        """
        if not 400 <= status <= 599:
            raise InvalidValue(f"HTTP status {status}: expected an error status, 400 to 599")
        made = headers or {}
        return self._add(
            FaultRule(
                error=lambda: HttpStatusError(status, made),
                times_left=times,
                probability=probability,
                up_to_attempt=up_to_attempt,
            )
        )

    def hang(
        self,
        error: Error | None = None,
        *,
        times: float = math.inf,
        probability: float = 1.0,
        up_to_attempt: float = math.inf,
    ) -> Self:
        """Let attempts take all their time, and then fail with `error`, such as an HTTP client's own timeout.

        Default: the error of a call that times out, AttemptTimedOut or DeadlineExceeded.
        """
        factory = None if error is None else _error_factory(error)
        return self._add(
            FaultRule(
                seconds=math.inf,
                error=factory,
                times_left=times,
                probability=probability,
                up_to_attempt=up_to_attempt,
            )
        )

    def slow(
        self, seconds: float, *, times: float = math.inf, probability: float = 1.0, up_to_attempt: float = math.inf
    ) -> Self:
        """Delay attempts by `seconds`. An attempt with less time left times out."""
        if not 0 < seconds < math.inf:
            raise InvalidValue(f"slower by {seconds} seconds: expected more than 0; for no end, use hang()")
        return self._add(
            FaultRule(seconds=seconds, times_left=times, probability=probability, up_to_attempt=up_to_attempt)
        )

    def answer(
        self, result: Any, *, times: float = math.inf, probability: float = 1.0, up_to_attempt: float = math.inf
    ) -> Self:
        """Return `result` from attempts instead of calling the function."""
        return self._add(
            FaultRule(
                fake_result=FakeResult(result), times_left=times, probability=probability, up_to_attempt=up_to_attempt
            )
        )

    def matches(self, operation: Operation, attempt: Attempt) -> bool:
        """Return whether the script is for this attempt. If it is for a zone, this chooses the attempt's endpoint."""
        return (
            self._dependency in {None, operation.service}
            and self._operation in {None, operation.name}
            and (
                self._zone is None or (attempt.dependency.endpoints is not None and attempt.endpoint.zone == self._zone)
            )
        )

    def draw(self, attempt: Attempt, chance: Chance) -> list[FaultRule]:
        """Return the rules that apply to an attempt, and count them as used. Not thread-safe."""
        self.matched += 1
        met: list[FaultRule] = []
        for rule in self._rules:
            if rule.applies(attempt, chance):
                rule.times_left -= 1
                met.append(rule)
                if rule.ends_attempt:
                    break
        self.applied += bool(met)
        return met

    def _add(self, rule: FaultRule) -> Self:
        self._rules.append(rule)
        return self


def _error_factory(error: Error) -> Callable[[], Exception]:
    if isinstance(error, Exception):
        return lambda: error
    given: object = error
    if not callable(given) or (isinstance(given, type) and not issubclass(given, Exception)):
        raise InvalidValue(f"{error!r} is not an error: expected an exception, or a class or function that makes one")
    return error


Function = TypeVar("Function", bound=Callable[..., Any])
Steps = Generator[float, None, FakeResult | None]


class Faults:
    """Faults for the attempts of all dependencies of the process, inside the `with` block, as its scripts say.

        with instant_calls(), Faults() as faults:
            faults.on("pricing").fail(ConnectionResetError, times=2)
            faults.on("stock", zone="use1-az1").hang()
            buy("a lamp")

    A fault replaces the function that is called, or the block of `with attempt:`. If the dependency has endpoints, the
    attempt has one before it fails, and the next attempt goes to another. Under a FakeClock, the time of a fault passes
    immediately and is not a sleep; under a real clock, the attempt waits. Scripts may be added before the block and
    inside it. Blocks may be nested: the inner one comes first. Thread-safe, but it is undefined which thread gets which
    fault. Calls through the botocore adapter get no faults, because it has its own driver.

    The adapters for HTTP clients pass the errors and results of a script to the caller unchanged: `status(503)` does
    not become a response of the client. To test how code handles responses, replace the network: `httpx.MockTransport`.
    """

    def __init__(self, seed: int = 0, *, runtime: Runtime = PROCESS) -> None:
        self._runtime = runtime
        self._chance = seeded("holdfast.testing.calls.faults", seed).random
        self._scripts: list[Script] = []
        self._outer: Interceptor | None = None
        self._is_entered = False
        self._lock = threading.Lock()

    def on(
        self, dependency: Dependency | str | None = None, operation: str | None = None, *, zone: str | None = None
    ) -> Script:
        """Add and return a script for a dependency, operation or zone; None matches all. Scripts apply in order."""
        name = dependency.name if isinstance(dependency, Dependency) else dependency
        script = Script(dependency=name, operation=operation, zone=zone)
        self._scripts.append(script)
        return script

    def __enter__(self) -> Self:
        if self._is_entered:
            raise InvalidValue("these Faults are entered already: make new ones for each `with`")
        self._outer, self._runtime.interceptor = self._runtime.interceptor, self
        self._is_entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._runtime.interceptor, self._outer = self._outer, None
        self._is_entered = False

    def wrap(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """For the drivers of calls: tests do not call it."""
        function = function if self._outer is None else self._outer.wrap(operation, function)
        return self._wrap_sync(function, lambda: self._find_steps(operation, current_attempt()))

    def wrap_async(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """For the drivers of calls: tests do not call it."""
        function = function if self._outer is None else self._outer.wrap_async(operation, function)
        return self._wrap_async(function, lambda: self._find_steps(operation, current_attempt()))

    def before_attempt(self, operation: Operation, attempt: Attempt) -> None:
        """For the drivers of calls: tests do not call it."""
        _refuse_result(self._perform(self._find_steps(operation, attempt)))
        if self._outer is not None:
            self._outer.before_attempt(operation, attempt)

    async def before_attempt_async(self, operation: Operation, attempt: Attempt) -> None:
        """For the drivers of calls: tests do not call it."""
        _refuse_result(await self._perform_async(self._find_steps(operation, attempt)))
        if self._outer is not None:
            await self._outer.before_attempt_async(operation, attempt)

    def _find_steps(self, operation: Operation, attempt: Attempt) -> Steps:
        rules: list[FaultRule] = []
        for script in list(self._scripts):
            if script.matches(operation, attempt):
                with self._lock:
                    rules += script.draw(attempt, self._chance)
                if rules and rules[-1].ends_attempt:
                    break
        if rules and attempt.dependency.endpoints is not None:
            _ = attempt.endpoint  # reading it chooses the endpoint: a failed attempt must have one
        return _perform_rules(rules, attempt)

    def _wrap_sync(self, function: Callable[..., Any], steps: Callable[[], Steps]) -> Callable[..., Any]:
        @wraps(function)
        def faulty(*args: Any, **kwargs: Any) -> Any:
            fake_result = self._perform(steps())
            return function(*args, **kwargs) if fake_result is None else fake_result.result

        return faulty

    def _wrap_async(self, function: Callable[..., Any], steps: Callable[[], Steps]) -> Callable[..., Any]:
        @wraps(function)
        async def faulty(*args: Any, **kwargs: Any) -> Any:
            fake_result = await self._perform_async(steps())
            return await function(*args, **kwargs) if fake_result is None else fake_result.result

        return faulty

    def _perform(self, steps: Steps) -> FakeResult | None:
        waits = _StepWaits(steps)
        for seconds in waits:
            if not self._try_advance(seconds):
                self._runtime.clock.sleep(seconds)
        return waits.fake_result

    async def _perform_async(self, steps: Steps) -> FakeResult | None:
        waits = _StepWaits(steps)
        for seconds in waits:
            if not self._try_advance(seconds):
                await self._runtime.clock.sleep_async(seconds)
        return waits.fake_result

    def _try_advance(self, seconds: float) -> bool:
        """Advance the clock, and return True. Return False for a real clock."""
        advance = getattr(self._runtime.clock, "advance", None)
        if advance is None:
            return False
        advance(seconds)
        return True


class _StepWaits:
    """The waits of some steps, as an iterator. Their result is in `fake_result` at its end."""

    fake_result: FakeResult | None = None

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[float]:
        self.fake_result = yield from self._steps


def _perform_rules(rules: list[FaultRule], attempt: Attempt) -> Steps:
    """Yield the seconds that must pass, then raise or return as the rules say."""
    left = attempt.timeout
    for rule in rules:
        if rule.seconds >= left:
            if left == math.inf:
                raise InvalidValue("a hanging attempt has neither a timeout nor a deadline: it would never end")
            yield left
            raise rule.error() if rule.error is not None else _timeout_error(attempt)
        if rule.seconds > 0:
            yield rule.seconds
            left -= rule.seconds
        if rule.error is not None:
            raise rule.error()
        if rule.fake_result is not None:
            return rule.fake_result
    return None


def _timeout_error(attempt: Attempt) -> Exception:
    what = f"{attempt.dependency.name}: attempt {attempt.number}"
    if attempt.expires >= attempt.call_expires:
        return DeadlineExceeded(f"{what} hung until the deadline passed (injected fault)")
    return AttemptTimedOut(f"{what} hung until it timed out (injected fault)")


def _refuse_result(fake_result: FakeResult | None) -> None:
    if fake_result is not None:
        raise InvalidValue("a loop over attempts() has no result to replace: script an error instead of an answer")

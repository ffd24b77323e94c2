"""Failures on demand: attempts that fail, hang, are slow or get another answer, in code that knows nothing of it."""

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
from holdfast.calls.runtime import PROCESS, Intercept, Runtime
from holdfast.testing.clock import seeded

Error = Exception | Callable[[], Exception]
"""An exception, or what makes one: a class that needs no arguments, or a function."""


class HttpStatus(Exception):
    """An HTTP client's exception for a status, as calls understand it: with a `response`."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP status {status}, as the test wanted it")
        self.response = SimpleNamespace(
            status_code=status, headers={name.lower(): text for name, text in headers.items()}
        )


@dataclass(frozen=True, slots=True)
class Instead:
    """What a function seems to return."""

    result: Any


@dataclass(slots=True, kw_only=True)
class Rule:
    """One thing that happens to attempts."""

    seconds: float = 0.0
    """Time that passes; infinity: until the attempt is cut off."""
    error: Callable[[], Exception] | None = None
    instead: Instead | None = None
    left: float
    """Attempts that it still happens to."""
    probability: float
    first: float

    def __post_init__(self) -> None:
        if self.left != math.inf and (self.left < 1 or self.left != int(self.left)):
            raise InvalidValue(f"times {self.left}: expected a whole number, at least 1, or math.inf for always")
        if not 0 < self.probability <= 1:
            raise InvalidValue(f"probability {self.probability}: expected more than 0, and at most 1")
        if self.first < 1:
            raise InvalidValue(f"first {self.first}: expected at least 1, the first attempt of each call")

    @property
    def is_end(self) -> bool:
        """Whether nothing more can happen to the attempt."""
        return self.seconds == math.inf or self.error is not None or self.instead is not None

    def applies(self, attempt: Attempt, chance: Chance) -> bool:
        """Whether it happens to this attempt. Chance is asked only where it decides."""
        is_meant = self.left > 0 and attempt.number <= self.first
        return is_meant and (self.probability == 1 or chance() < self.probability)


class Script:
    """What happens to the attempts that it is made for. Every method adds a rule and returns the script.

    An attempt meets the rules in the order in which they are written: time that passes adds up, and the first failure
    or answer ends it. A rule happens to `times` attempts, of whatever call, and is then over; by default it never is.
    With a `probability` chance decides for each attempt, from a seed. With `first`, it happens only to the first so
    many attempts of each call: `fail(TimeoutError, first=1)` makes every call need a retry.
    """

    def __init__(self, *, dependency: str | None = None, operation: str | None = None, zone: str | None = None) -> None:
        self._dependency = dependency
        self._operation = operation
        self._zone = zone
        self._rules: list[Rule] = []
        self.seen = 0
        """Attempts that it was looked up for."""
        self.applied = 0
        """Those of them that anything has happened to."""

    def fail(self, *errors: Error, times: float = math.inf, probability: float = 1.0, first: float = math.inf) -> Self:
        """Attempts fail with these errors, in turn: `fail(ConnectionResetError, TimeoutError("slow"), times=2)`."""
        if not errors:
            raise InvalidValue("no error to fail with: expected at least one exception, or a function that makes one")
        makers = itertools.cycle([_maker(error) for error in errors])

        def make() -> Exception:
            return next(makers)()

        return self._add(Rule(error=make, left=times, probability=probability, first=first))

    def status(
        self,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        times: float = math.inf,
        probability: float = 1.0,
        first: float = math.inf,
    ) -> Self:
        """Attempts fail with an exception that carries a response: `status(429, headers={"retry-after": "2"})`.

        For code that looks at responses itself, `answer` with one of its HTTP client's.
        """
        if not 400 <= status <= 599:
            raise InvalidValue(f"HTTP status {status}: expected that of a failure, 400 to 599")
        made = headers or {}
        return self._add(Rule(error=lambda: HttpStatus(status, made), left=times, probability=probability, first=first))

    def hang(
        self,
        error: Error | None = None,
        *,
        times: float = math.inf,
        probability: float = 1.0,
        first: float = math.inf,
    ) -> Self:
        """Attempts take all the time that they have, and then fail with `error`, as an HTTP client's own timeout.

        By default it is what a call is cut off with: AttemptTimedOut, or DeadlineExceeded.
        """
        maker = None if error is None else _maker(error)
        return self._add(Rule(seconds=math.inf, error=maker, left=times, probability=probability, first=first))

    def slow(
        self, seconds: float, *, times: float = math.inf, probability: float = 1.0, first: float = math.inf
    ) -> Self:
        """Attempts take so much longer; one that has less time than that times out."""
        if not 0 < seconds < math.inf:
            raise InvalidValue(f"slower by {seconds} seconds: expected more than 0; hang() never ends")
        return self._add(Rule(seconds=seconds, left=times, probability=probability, first=first))

    def answer(
        self, result: Any, *, times: float = math.inf, probability: float = 1.0, first: float = math.inf
    ) -> Self:
        """The function is not called, and seems to return this."""
        return self._add(Rule(instead=Instead(result), left=times, probability=probability, first=first))

    def fits(self, operation: Operation, attempt: Attempt) -> bool:
        """Whether the script is for this attempt. If it is for a zone, this chooses the attempt's endpoint."""
        return (
            self._dependency in {None, operation.service}
            and self._operation in {None, operation.name}
            and (self._zone is None or (attempt.core.endpoints is not None and attempt.endpoint.zone == self._zone))
        )

    def draw(self, attempt: Attempt, chance: Chance) -> list[Rule]:
        """The rules that an attempt meets, which count as met from now on. Not thread-safe."""
        self.seen += 1
        met: list[Rule] = []
        for rule in self._rules:
            if rule.applies(attempt, chance):
                rule.left -= 1
                met.append(rule)
                if rule.is_end:
                    break
        self.applied += bool(met)
        return met

    def _add(self, rule: Rule) -> Self:
        self._rules.append(rule)
        return self


def _maker(error: Error) -> Callable[[], Exception]:
    if isinstance(error, Exception):
        return lambda: error
    given: object = error
    if not callable(given) or (isinstance(given, type) and not issubclass(given, Exception)):
        raise InvalidValue(f"{error!r} is no error: expected an exception, or a class or function that makes one")
    return error


Function = TypeVar("Function", bound=Callable[..., Any])
Steps = Generator[float, None, Instead | None]


class Faults:
    """Makes attempts fail as its scripts say, inside of its block, for all dependencies of the process.

        with instant_calls(), Faults() as faults:
            faults.on("pricing").fail(ConnectionResetError, times=2)
            faults.on("stock", zone="use1-az1").hang()
            buy("a lamp")

    A fault stands in place of the function that is called, or of the work in `with attempt:`. Where a dependency has
    endpoints, the attempt has one before it fails, and the next goes elsewhere. Under a FakeClock time that a fault
    takes passes at once and is no sleep; under a real one it is waited for. Scripts may be written before the block and
    inside of it. Blocks may be nested: the inner one comes first. Thread-safe, but chance decides which thread meets
    which fault. The adapter to botocore drives calls in its own way, and meets none.

    Through the adapters to HTTP clients, what a script raises or answers reaches the caller as it is: `status(503)` is
    no response of the client there. To test how code treats those, replace the network: `httpx.MockTransport`.
    """

    def __init__(self, seed: int = 0, *, runtime: Runtime = PROCESS) -> None:
        self._world = runtime
        self._chance = seeded("holdfast.testing.calls.faults", seed).random
        self._scripts: list[Script] = []
        self._outer: Intercept | None = None
        self._is_entered = False
        self._lock = threading.Lock()

    def on(
        self, dependency: Dependency | str | None = None, operation: str | None = None, *, zone: str | None = None
    ) -> Script:
        """Return a script for attempts of a dependency, operation or zone; None: of all. Scripts are met in order."""
        name = dependency.name if isinstance(dependency, Dependency) else dependency
        script = Script(dependency=name, operation=operation, zone=zone)
        self._scripts.append(script)
        return script

    def __enter__(self) -> Self:
        if self._is_entered:
            raise InvalidValue("these faults are entered already: make new ones for each `with`")
        self._outer, self._world.intercept = self._world.intercept, self
        self._is_entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._world.intercept, self._outer = self._outer, None
        self._is_entered = False

    # What follows is for the drivers of calls.

    def around(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        function = function if self._outer is None else self._outer.around(operation, function)
        return self._now(function, lambda: self._met(operation, current_attempt()))

    def around_async(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        function = function if self._outer is None else self._outer.around_async(operation, function)
        return self._later(function, lambda: self._met(operation, current_attempt()))

    def before(self, operation: Operation, attempt: Attempt) -> None:
        _no_answer(self._perform(self._met(operation, attempt)))
        if self._outer is not None:
            self._outer.before(operation, attempt)

    async def before_async(self, operation: Operation, attempt: Attempt) -> None:
        _no_answer(await self._perform_async(self._met(operation, attempt)))
        if self._outer is not None:
            await self._outer.before_async(operation, attempt)

    def _met(self, operation: Operation, attempt: Attempt) -> Steps:
        rules: list[Rule] = []
        for script in list(self._scripts):
            if script.fits(operation, attempt):
                with self._lock:
                    rules += script.draw(attempt, self._chance)
                if rules and rules[-1].is_end:
                    break
        if rules and attempt.core.endpoints is not None:
            _ = attempt.endpoint  # chosen when it is asked for: an attempt that fails has gone somewhere
        return _steps(rules, attempt)

    def _now(self, function: Callable[..., Any], steps: Callable[[], Steps]) -> Callable[..., Any]:
        @wraps(function)
        def faulty(*args: Any, **kwargs: Any) -> Any:
            instead = self._perform(steps())
            return function(*args, **kwargs) if instead is None else instead.result

        return faulty

    def _later(self, function: Callable[..., Any], steps: Callable[[], Steps]) -> Callable[..., Any]:
        @wraps(function)
        async def faulty(*args: Any, **kwargs: Any) -> Any:
            instead = await self._perform_async(steps())
            return await function(*args, **kwargs) if instead is None else instead.result

        return faulty

    def _perform(self, steps: Steps) -> Instead | None:
        waits = _Waits(steps)
        for seconds in waits:
            if not self._advanced(seconds):
                self._world.clock.sleep(seconds)
        return waits.instead

    async def _perform_async(self, steps: Steps) -> Instead | None:
        waits = _Waits(steps)
        for seconds in waits:
            if not self._advanced(seconds):
                await self._world.clock.sleep_async(seconds)
        return waits.instead

    def _advanced(self, seconds: float) -> bool:
        """Whether the time could be moved on: a real clock's cannot be."""
        advance = getattr(self._world.clock, "advance", None)
        if advance is None:
            return False
        advance(seconds)
        return True


class _Waits:
    """The waits of some steps, and then what they came to."""

    instead: Instead | None = None

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[float]:
        self.instead = yield from self._steps


def _steps(rules: list[Rule], attempt: Attempt) -> Steps:
    """Yields the seconds that must pass, and then raises or returns as the rules say."""
    left = attempt.timeout
    for rule in rules:
        if rule.seconds >= left:
            if left == math.inf:
                raise InvalidValue("a hanging attempt has neither a timeout nor a deadline: it would never end")
            yield left
            raise rule.error() if rule.error is not None else _timed_out(attempt)
        if rule.seconds > 0:
            yield rule.seconds
            left -= rule.seconds
        if rule.error is not None:
            raise rule.error()
        if rule.instead is not None:
            return rule.instead
    return None


def _timed_out(attempt: Attempt) -> Exception:
    what = f"{attempt.core.name}: attempt {attempt.number}"
    if attempt.expires >= attempt.limit:
        return DeadlineExceeded(f"{what} hung, as the test wanted it, until the deadline had passed")
    return AttemptTimedOut(f"{what} hung, as the test wanted it, until its time was over")


def _no_answer(instead: Instead | None) -> None:
    if instead is not None:
        raise InvalidValue("a loop over attempts() has no result that could be another: script an error instead")

"""Which attempts fail, and how: rules in the order in which they are written. Pure; `faults.py` performs them."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

from holdfast._backoff import Chance
from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt

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

    def applies(self, attempt: Attempt | None, chance: Chance) -> bool:
        """Whether it happens to this attempt. Chance is asked only where it decides."""
        number = 1 if attempt is None else attempt.number
        return self.left > 0 and number <= self.first and (self.probability == 1 or chance() < self.probability)


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

    def draw(self, attempt: Attempt | None, chance: Chance) -> list[Rule]:
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

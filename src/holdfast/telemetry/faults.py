"""Decide which HTTP statuses count against the availability of a workload. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from holdfast._errors import InvalidValue

_CLASS = re.compile(r"[45]xx")
_STATUS = re.compile(r"[45][0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FaultStatuses:
    """The statuses that count as faults: whole classes, and single statuses of other classes.

    5xx are faults by default, 4xx are not: they are mostly mistakes of callers. But a service that answers 429 to all
    its callers does not serve them, and stricter validation may answer 400 to requests that used to succeed.
    """

    classes: frozenset[int] = frozenset({5})
    """Classes whose statuses are all faults: 4, 5, or both."""
    statuses: frozenset[int] = frozenset()
    """Single statuses that are faults, besides those of `classes`. They apply to requests whose status is known."""

    def __post_init__(self) -> None:
        # Those of `classes` are removed, so that no request is counted twice.
        others = frozenset(status for status in self.statuses if status // 100 not in self.classes)
        object.__setattr__(self, "statuses", others)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the rule for a list such as `["5xx", "429"]`. Raise InvalidValue for another text, or an empty list.

        The list replaces the default: `["429"]` alone means that 5xx are no faults.
        """
        classes, statuses = set(), set()
        for text in texts:
            if _CLASS.fullmatch(text):
                classes.add(int(text[0]))
            elif _STATUS.fullmatch(text):
                statuses.add(int(text))
            else:
                raise InvalidValue(
                    f"{text[:20]!r} is no status that can be a fault: expected 4xx, 5xx, or a single status from 400 "
                    "to 599 as text, such as 429"
                )
        if not classes and not statuses:
            raise InvalidValue(
                "no status would be a fault, so no zone could fail: expected 5xx, 4xx or single statuses"
            )
        return cls(frozenset(classes), frozenset(statuses))

    def counts_as_fault(self, status: int) -> bool:
        """Return whether a request with this status counts against availability."""
        return status // 100 in self.classes or status in self.statuses

    def count_faults(self, count_4xx: int, count_5xx: int, status: int | None = None) -> int:
        """Return how many requests of one record are faults. Successes (2xx, 3xx) never are.

        `status` is the record's `HttpStatusCode`, if it has one. It says which status the requests of its class had.
        """
        classes = self.classes
        faults = (count_4xx if 4 in classes else 0) + (count_5xx if 5 in classes else 0)
        if status is not None and status in self.statuses:  # then its class is not in `classes`
            faults += count_4xx if status < 500 else count_5xx
        return faults

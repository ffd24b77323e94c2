"""Lines of CloudWatch's embedded metric format, and what it allows in them.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from holdfast._errors import InvalidValue

MOST_VALUES = 100
"""Of one metric in one line: CloudWatch's limit."""
MOST_DIMENSIONS = 30
"""Of one set: CloudWatch's limit; two of them are always our own."""
LONGEST_DIMENSION = 1024
LONGEST_DIMENSION_NAME = 250
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#: -]{0,254}")
_DIMENSION_NAME = re.compile(r"[!-9;-~][ -~]{0,249}")
SHORTEST = 1e-6
"""Seconds; what took less is counted with it, where there are many."""
STEP = math.log(1.03)
"""Between two buckets, where there are many: as wide as those that timeouts are learned from."""
Metrics = dict[str, tuple[str, Any]]
"""Unit and value, or values, by name."""


class Spread:
    """How long things took, as at most a hundred values: each of them, or percentiles if there were more. Pure."""

    __slots__ = ("_few", "_many", "_most")

    def __init__(self) -> None:
        self._few: list[float] = []
        self._many: Counter[int] | None = None  # by the logarithm
        self._most = 0.0

    def add(self, seconds: float) -> None:
        self._most = max(self._most, seconds)
        if self._many is not None:
            self._many[_bucket(seconds)] += 1
            return
        self._few.append(seconds)
        if len(self._few) > MOST_VALUES:
            self._many = Counter(map(_bucket, self._few))

    def values(self) -> list[float]:
        """Seconds, in order; the longest is always exact."""
        if self._many is None:
            return sorted(self._few)
        # In one pass, because it is the thread of some call that pays for it.
        found: list[float] = []
        count = MOST_VALUES - 1
        total = self._many.total()
        seen = 0
        for bucket, inside in sorted(self._many.items()):
            seen += inside
            middle = min(math.exp(bucket * STEP), self._most)
            while len(found) < count and (len(found) + 0.5) / count * total <= seen:
                found.append(middle)
        return [*found, self._most]


def _bucket(seconds: float) -> int:
    return round(math.log(max(seconds, SHORTEST)) / STEP)


class Lines:
    """Makes lines with the same namespace and dimensions, and writes them. Validates when built."""

    def __init__(
        self,
        to: TextIO | Callable[[str], object],
        namespace: str,
        dimensions: Mapping[str, str],
        taken: Collection[str],
    ) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidValue(
                f"namespace {namespace!r}: expected 1 to 255 letters, digits and ._-/#: that do not begin with AWS/"
            )
        self._fixed = _checked(dimensions, taken)
        self._namespace = namespace
        self._write = to if callable(to) else _writer(to)

    def write(self, since: float, named: dict[str, str], metrics: Metrics, *, rollup: Sequence[str] = ()) -> None:
        """Write one line; with `rollup`, every metric is there for these dimensions alone as well."""
        sets = [[*self._fixed, *named]]
        if rollup:
            sets.append([*self._fixed, *rollup])
        directive = {
            "Namespace": self._namespace,
            "Dimensions": sets,
            "Metrics": [{"Name": name, "Unit": unit} for name, (unit, _) in metrics.items()],
        }
        line = msgspec.json.encode(
            {
                "_aws": {"Timestamp": round(since * 1000), "CloudWatchMetrics": [directive]},
                **self._fixed,
                **named,
                **{name: value for name, (_, value) in metrics.items()},
            }
        )
        self._write(line.decode())


def checked_every(every: float) -> float:
    """The same, or InvalidValue for seconds after which no lines could be written."""
    if not 0 < every < math.inf:
        raise InvalidValue(f"lines every {every} seconds: expected more than 0")
    return every


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(line: str) -> None:
        stream.write(f"{line}\n")  # in one piece: others may write to the same stream
        stream.flush()

    return write


def _checked(dimensions: Mapping[str, str], taken: Collection[str]) -> dict[str, str]:
    if len(dimensions) > MOST_DIMENSIONS - 2:
        raise InvalidValue(f"{len(dimensions)} dimensions: expected at most {MOST_DIMENSIONS - 2} besides our own")
    for name, value in dimensions.items():
        if name in taken or not _DIMENSION_NAME.fullmatch(name):
            raise InvalidValue(
                f"dimension {name!r}: expected a name of 1 to {LONGEST_DIMENSION_NAME} ASCII characters, and none of "
                + ", ".join(sorted(taken))
            )
        if dimension(value) != value:
            raise InvalidValue(
                f"dimension {name} {value!r}: expected 1 to {LONGEST_DIMENSION} printable ASCII characters, "
                "not only blanks and without a colon in front"
            )
    return dict(dimensions)


def dimension(text: str) -> str:
    """The text as CloudWatch allows it in the value of a dimension."""
    allowed = "".join(char if " " <= char <= "~" else "?" for char in text).lstrip(": ")
    return allowed[:LONGEST_DIMENSION].rstrip() or "?"

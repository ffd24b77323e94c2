"""Limit the number of names that become labels of metrics. Pure.

Every combination of labels is a series. A name with an identifier in it would create a series for every call, until
memory or money runs out. There are two rules: admit the first names, or the busiest ones.
"""

from collections.abc import Hashable, Mapping

from holdfast._errors import InvalidValue

OTHER = "other"
"""Label value for all names without their own series."""
MAX_NAMES = 200
"""Names with their own series, if the first ones are admitted."""
MAX_BUSIEST_NAMES = 20
"""Names with their own series, if the busiest ones are admitted."""
REVIEW_SECONDS = 60.0
"""Seconds between two reviews of the busiest names."""
MIN_COUNT = 10
"""A name with a lower count does not replace another one."""
COUNTED_NAMES_PER_SERIES = 8
"""Names counted for each name with its own series, to find the busiest."""


class CardinalityLimit:
    """A limit that admits the first `max_names` names, and no others. Not thread-safe."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        if max_names < 1:
            raise InvalidValue(f"at most {max_names} names with their own series: expected 1 or more")
        self._max_names = max_names
        self._admitted: set[Hashable] = set()

    def admits(self, name: Hashable) -> bool:
        """Return whether `name` is among the first names; it is added if there is room."""
        if name in self._admitted:
            return True
        if len(self._admitted) >= self._max_names:
            return False
        self._admitted.add(name)
        return True


class FrequencySketch:
    """A counter of the most frequent names that needs little memory. Not thread-safe.

    A name with more than 1 in `max_names + 1` of the total is always present, and its count is too low by at most that
    share (Misra and Gries, https://doi.org/10.1016/0167-6423(82)90012-0).
    """

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self.counts: dict[str, int] = {}
        self.total = 0

    def add(self, name: str, by: int = 1) -> None:
        self.total += by
        counts = self.counts
        if name in counts:
            counts[name] += by
        elif len(counts) < self._max_names:
            counts[name] = by
        else:
            less = min(by, *counts.values())
            self.counts = {known: count - less for known, count in counts.items() if count > less}
            if by > less:
                self.counts[name] = by - less

    def fade(self) -> None:
        """Halve all counts, so that older counts weigh less."""
        self.total //= 2
        self.counts = {name: count // 2 for name, count in self.counts.items() if count > 1}


class TopNames:
    """A slowly changing choice of at most `max_names` names by weight. Not thread-safe.

    Each label value ever used costs memory in the monitoring system. So a name replaces another one only if it has
    twice its weight, and a relevant share of the total.
    """

    def __init__(self, max_names: int = MAX_BUSIEST_NAMES) -> None:
        self._max_names = max_names
        self.names: set[str] = set()
        self._reviewed: float | None = None

    def name(self, name: str) -> str:
        """Return `name` if it is chosen, or there is room for it; otherwise `other`."""
        if name not in self.names:
            if len(self.names) >= self._max_names:
                return OTHER
            self.names.add(name)
        return name

    def is_due(self, at: float) -> bool:
        """Return whether a review is due, also if the clock was set back."""
        if self._reviewed is None:
            self._reviewed = at
        return not 0 <= at - self._reviewed < REVIEW_SECONDS

    def review(self, weights: Mapping[str, int], total: int, at: float) -> set[str]:
        """Choose names with far more weight than chosen ones; return those that are no longer chosen."""
        self._reviewed = at
        replaced: set[str] = set()
        if not self._max_names:
            return replaced
        for name in sorted(weights.keys() - self.names, key=lambda name: (-weights[name], name)):
            if len(self.names) >= self._max_names:
                weakest = min(self.names, key=lambda name: (weights.get(name, 0), name))
                if weights[name] < max(MIN_COUNT, total / (2 * self._max_names), 2 * weights.get(weakest, 0)):
                    break
                self.names.remove(weakest)
                replaced.add(weakest)
            self.names.add(name)
        return replaced - self.names


class BusiestNames(TopNames):
    """A choice of the names that are counted most often. Not thread-safe."""

    def __init__(self, max_names: int = MAX_BUSIEST_NAMES) -> None:
        super().__init__(max_names)
        self._sketch = FrequencySketch(COUNTED_NAMES_PER_SERIES * max_names + 1)

    def count(self, counts: Mapping[str, int], at: float) -> set[str]:
        """Count names at the time `at`; return those that are no longer chosen."""
        for name, count in counts.items():
            self._sketch.add(name, count)
        if not self.is_due(at):
            return set()
        replaced = self.review(self._sketch.counts, self._sketch.total, at)
        self._sketch.fade()
        return replaced


def check_max_busiest(max_names: int) -> int:
    """Return `max_names`, or raise InvalidValue if it is out of range."""
    if not 0 <= max_names <= 1000:
        raise InvalidValue(f"{max_names} names with their own series: expected 0 to 1000")
    return max_names

"""Which tenants have series of their own: the busiest, a bounded number, and not others all the time. Pure.

Every name that ever was a label costs whoever keeps the metrics. So names change slowly: only a tenant with twice the
traffic of another takes its place, and only if it has a share that is worth looking at.
"""

from collections.abc import Mapping

from holdfast._errors import InvalidValue
from holdfast.calls.sinks.names import OTHER

MOST_TENANTS = 20
"""Tenants with series of their own, of each queue."""
REVIEW = 60.0
"""Seconds between two looks at who has a place."""
LEAST = 10
"""Messages below which nobody takes the place of somebody else."""
OVERSIZE = 8
"""Tenants that are counted, for each that has a place."""


class Sketch:
    """Counts those who come often, in little room; of the others it forgets that they came. Not thread-safe.

    Whoever has more than 1 in `most + 1` of all that was counted is here; its count is too low by at most that share
    (Misra and Gries, https://doi.org/10.1016/0167-6423(82)90012-0).
    """

    __slots__ = ("_most", "counts", "total")

    def __init__(self, most: int) -> None:
        self._most = most
        self.counts: dict[str, int] = {}
        self.total = 0

    def add(self, name: str, by: int = 1) -> None:
        """It came so many times more."""
        self.total += by
        counts = self.counts
        if name in counts:
            counts[name] += by
        elif len(counts) < self._most:
            counts[name] = by
        else:
            less = min(by, *counts.values())
            self.counts = {known: count - less for known, count in counts.items() if count > less}
            if by > less:
                self.counts[name] = by - less

    def fade(self) -> None:
        """Let what was counted so far count half."""
        self.total //= 2
        self.counts = {name: count // 2 for name, count in self.counts.items() if count > 1}


class Places:
    """So many names, and who gets one. With `in_all`, only so many ever do. Not thread-safe."""

    __slots__ = ("_given", "_in_all", "_most", "_reviewed", "names")

    def __init__(self, most: int, in_all: int | None = None) -> None:
        self._most = most
        self._in_all = in_all
        self._given: set[str] = set()
        self.names: set[str] = set()
        self._reviewed: float | None = None

    def name(self, tenant: str) -> str:
        """The tenant's own name if it has a place, or there is a free one; else `other`."""
        if tenant in self.names:
            return tenant
        if len(self.names) >= self._most or not self._may_have(tenant):
            return OTHER
        self._give(tenant)
        return tenant

    def is_due(self, at: float) -> bool:
        """Whether it is time for a review; a clock that was set back does not put it off."""
        if self._reviewed is None:
            self._reviewed = at
        return not 0 <= at - self._reviewed < REVIEW

    def review(self, weights: Mapping[str, int], total: int, at: float) -> None:
        """Give places to tenants that have far more than those who have them."""
        self._reviewed = at
        if not self._most:
            return
        for tenant in sorted(weights.keys() - self.names, key=lambda name: (-weights[name], name)):
            if not self._may_have(tenant):
                continue
            if len(self.names) >= self._most:
                weakest = min(self.names, key=lambda name: (weights.get(name, 0), name))
                if weights[tenant] < max(LEAST, total / (2 * self._most), 2 * weights.get(weakest, 0)):
                    return
                self.names.remove(weakest)
            self._give(tenant)

    def _may_have(self, tenant: str) -> bool:
        return self._in_all is None or tenant in self._given or len(self._given) < self._in_all

    def _give(self, tenant: str) -> None:
        self.names.add(tenant)
        if self._in_all is not None:
            self._given.add(tenant)


class Busiest:
    """The tenants of one queue that most messages are handled for. Not thread-safe."""

    __slots__ = ("_places", "_sketch")

    def __init__(self, most: int, in_all: int | None = None) -> None:
        self._places = Places(most, in_all)
        self._sketch = Sketch(OVERSIZE * most + 1)

    @property
    def names(self) -> set[str]:
        """Those that have a place."""
        return self._places.names

    def came(self, counts: Mapping[str, int], at: float) -> None:
        """Messages of these tenants were received."""
        for tenant, count in counts.items():
            self._sketch.add(tenant, count)
        if self._places.is_due(at):
            self._places.review(self._sketch.counts, self._sketch.total, at)
            self._sketch.fade()

    def name(self, tenant: str) -> str:
        """The tenant's own name, or `other`."""
        return self._places.name(tenant)


def checked_most(most: int) -> int:
    """The same, or InvalidValue for a number of tenants that makes no sense."""
    if not 0 <= most <= 1000:
        raise InvalidValue(f"{most} tenants with series of their own: expected 0 to 1000")
    return most

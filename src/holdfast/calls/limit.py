"""How many calls to one dependency may be under way at once.

By Little's law a service that takes W seconds for each of R requests per second has R x W of them under way. A
dependency that hangs raises W, and with it the threads, tasks and connections that wait for it, until none is left for
anything else. A limit keeps that to itself: what exceeds it is refused at once.
"""

import math
import threading
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many attempts at once."""

    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise InvalidValue(f"limit of {self.most} calls at once: expected at least 1")

    @classmethod
    def for_load(cls, *, rate: float, seconds: float, headroom: float = 2.0) -> "Limit":
        """The limit for `rate` calls per second that take `seconds` each, times `headroom` for bursts."""
        if not (0 < rate < math.inf and 0 < seconds < math.inf and 1 <= headroom < math.inf):
            raise InvalidValue(
                f"rate {rate} of {seconds} seconds, headroom {headroom}: expected more than 0, and headroom at least 1"
            )
        return cls(math.ceil(rate * seconds * headroom))


class Running:
    """Counts the attempts that are under way. Thread-safe; a forked child has none."""

    __slots__ = ("__weakref__", "_lock", "count", "most")

    def __init__(self, limit: Limit | None) -> None:
        self.most = math.inf if limit is None else limit.most
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def enter(self) -> bool:
        """Count one more. False: there are as many as may be."""
        with self._lock:
            if self.count >= self.most:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Count one less."""
        with self._lock:
            self.count = max(0, self.count - 1)  # a call that began before a fork ends in the child as well

"""Limit the number of log records of each kind, and count the suppressed ones. Pure."""


class LogLimiter:
    """A limiter that admits `max_records` records of each kind per `period` seconds. Not thread-safe."""

    __slots__ = ("_kinds", "_max_records", "_period")

    def __init__(self, max_records: int, period: float) -> None:
        self._max_records = max_records
        self._period = period
        self._kinds: dict[str, _KindCount] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """Return the number of records suppressed since the last admitted one, or None to suppress this one."""
        counted = self._kinds.setdefault(kind, _KindCount())
        if now >= counted.period_end:
            counted.period_end, counted.admitted = now + self._period, 0
        if counted.admitted >= self._max_records:
            counted.suppressed += 1
            return None
        counted.admitted += 1
        suppressed, counted.suppressed = counted.suppressed, 0
        return suppressed

    def pop_suppressed(self) -> dict[str, int]:
        """Return the number of suppressed records of each kind that `admit` has not returned yet, and reset all."""
        unreported = {kind: counted.suppressed for kind, counted in self._kinds.items() if counted.suppressed}
        self._kinds.clear()
        return unreported


class _KindCount:
    """The admitted and suppressed records of one kind in its current period."""

    __slots__ = ("admitted", "period_end", "suppressed")

    def __init__(self) -> None:
        self.period_end = float("-inf")
        self.admitted = 0
        self.suppressed = 0

"""Limit how many log records of a kind are written, and count those left out. Pure."""


class LogGate:
    """Admit at most `most` records of each kind in every `seconds`, and count the others. Not thread-safe."""

    __slots__ = ("_kinds", "_most", "_seconds")

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._kinds: dict[str, _Kind] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """Return how many records were left out since the last admitted one, or None to leave this one out, too."""
        counted = self._kinds.setdefault(kind, _Kind())
        if now >= counted.period_end:
            counted.period_end, counted.admitted = now + self._seconds, 0
        if counted.admitted >= self._most:
            counted.left_out += 1
            return None
        counted.admitted += 1
        left_out, counted.left_out = counted.left_out, 0
        return left_out

    def drain(self) -> dict[str, int]:
        """Return how many records of each kind were left out and not yet reported, and forget them."""
        unreported = {kind: counted.left_out for kind, counted in self._kinds.items() if counted.left_out}
        self._kinds.clear()
        return unreported


class _Kind:
    """What one kind of record did in its current period."""

    __slots__ = ("admitted", "left_out", "period_end")

    def __init__(self) -> None:
        self.period_end = float("-inf")
        self.admitted = 0
        self.left_out = 0

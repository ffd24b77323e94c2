"""What tests of both drivers need around the application."""

from holdfast._types import Outcome, Zone
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock

HERE = Zone("use1-az1")


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.outcomes.append(event)

    @property
    def counts(self) -> list[str]:
        """Of each outcome its class, and what it took: `2xx 0.5`."""
        return [
            f"{name[6:]} {[*one.success_seconds, *one.fault_seconds][0]:g}"
            for one in self.outcomes
            for name in ("count_2xx", "count_3xx", "count_4xx", "count_5xx")
            if getattr(one, name)
        ]


class Broken:
    """A sink that does what no sink may do."""

    def emit(self, event: Outcome) -> None:
        raise OSError("no space left on device")


class Zones:
    """A view that says what it is told to."""

    def __init__(self) -> None:
        self.are_out: frozenset[Zone] = frozenset()
        self.asked: list[str | None] = []

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        self.asked.append(workload)
        return self.are_out


def fake_runtime(clock: FakeClock) -> Runtime:
    return Runtime(clock, lambda: 0.5)

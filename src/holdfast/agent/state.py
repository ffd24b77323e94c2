"""What the agent holds to be true, and tells the host."""

from dataclasses import dataclass
from typing import Any

from holdfast._types import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Which zones are out for the host's workload."""

    zone: Zone
    """The host's own."""
    workload: str | None
    out: frozenset[Zone] = frozenset()
    changed_at: float
    """When `out` became what it is; before the first change, when the agent started."""

    @property
    def is_out(self) -> bool:
        return self.zone in self.out

    def facts(self) -> dict[str, Any]:
        """As JSON has it, without the time."""
        return {"zone": self.zone, "workload": self.workload, "out": sorted(self.out), "is_out": self.is_out}

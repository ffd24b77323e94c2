"""Which zones and workloads there are, as far as the settings say. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast._errors import NotFound
from holdfast._types import Zone

if TYPE_CHECKING:
    from holdfast.config.settings import WorkloadSettings


def require_known(workloads: "Sequence[WorkloadSettings]", zone: Zone, workload: str | None) -> None:
    """Raise NotFound for a zone or a workload that is not configured: most likely a slip, and a costly one.

    Where no workload is configured, Holdfast only keeps the status of zones, and all are welcome.
    """
    if not workloads:
        return
    named = [each for each in workloads if workload in (None, each.name)]
    if not named:
        raise NotFound(f"no workload {workload} is configured: {', '.join(each.name for each in workloads)}")
    zones = sorted({known for each in named for known in each.zones})
    if zone not in zones:
        raise NotFound(f"no zone {zone} is configured{f' for {workload}' if workload else ''}: {', '.join(zones)}")

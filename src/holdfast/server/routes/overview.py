"""What is going on: zones and their status, verdicts, and the last two minutes of telemetry."""

import asyncio
from collections.abc import Sequence

from litestar import get
from litestar.datastructures import State
from msgspec import Struct

from holdfast._types import ZoneStatus
from holdfast.config import WorkloadSettings
from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.statuses import Statuses
from holdfast.watch import Pulse, RecordedVerdict, Watch, WatchStore


class Overview(Struct, frozen=True):
    """Everything that a page needs to begin with; events tell it the rest."""

    workloads: Sequence[WorkloadSettings]
    statuses: Sequence[ZoneStatus]
    verdicts: Sequence[RecordedVerdict]
    pulses: Sequence[Pulse]


@get(
    "/v1/overview",
    guards=[requires(Role.VIEWER)],
    security=SECURITY,
    responses=described(401, 403, 503),
    summary="See what is going on",
    tags=["zones"],
)
async def overview(state: State) -> Overview:
    """Workloads, zone statuses, the latest verdicts, and what happened second by second."""
    statuses: Statuses = state.statuses
    store: WatchStore = state.watch_store
    watch: Watch = state.watch
    verdicts = await asyncio.to_thread(store.verdicts)
    return Overview(state.workloads, statuses.snapshot().statuses, verdicts, watch.pulses())


@get(
    "/v1/verdicts",
    guards=[requires(Role.VIEWER)],
    security=SECURITY,
    responses=described(401, 403, 503),
    summary="List verdicts",
    tags=["zones"],
)
async def verdicts(state: State) -> Sequence[RecordedVerdict]:
    """The latest verdicts, newest first."""
    store: WatchStore = state.watch_store
    return await asyncio.to_thread(store.verdicts)

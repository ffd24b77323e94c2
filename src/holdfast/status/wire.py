"""The JSON that a server sends about zones and that trackers read: a snapshot of all statuses, or one change."""

from msgspec import Struct

from holdfast._types import ZoneStatus

TIME_HEADER = "holdfast-time"
"""The server's wall time in seconds; also sent with 304 responses."""

KNOWN_HEADER = "holdfast-known"
"""`no` if the zone is reported as in only because the server has not read its store yet."""


WORKLOAD_HEADER = "holdfast-workload"
"""`unknown` if the query names a workload, and the server has others, but not this one."""


class StatusSnapshot(Struct, frozen=True, kw_only=True):
    """All statuses that a server knows."""

    run: str
    """Id of the server process: revisions of different runs cannot be compared."""
    revision: int
    """Grows by one with every change that the server learns of."""
    at: float
    """The server's wall time: a reader with a wrong clock can still tell how long a status is valid."""
    age: float | None
    """Seconds since the server last read its store; None if it has not read it yet and uses its log."""
    statuses: tuple[ZoneStatus, ...]


class StatusChange(Struct, frozen=True, kw_only=True):
    """One changed status, and the revision that the change created."""

    run: str
    revision: int
    at: float
    status: ZoneStatus

"""What a server says of zones over HTTP, and what trackers read: all of it, or one change."""

from msgspec import Struct

from holdfast._types import ZoneStatus

TIME_HEADER = "holdfast-time"
"""The server's time, also with an answer that says only that nothing is new."""

KNOWN_HEADER = "holdfast-known"
"""`no` where a zone is said to be in because nothing at all is known yet."""


class StatusSnapshot(Struct, frozen=True, kw_only=True):
    """Every status that a server knows."""

    run: str
    """Tells the revisions of this server from those before its restart."""
    revision: int
    """Grows by one with every change that the server learns of."""
    at: float
    """The server's time: with it a reader whose clock is wrong still knows how long a status holds."""
    age: float | None
    """Seconds since the server last read its store; None if it has not yet, and goes by its record."""
    statuses: tuple[ZoneStatus, ...]


class StatusChange(Struct, frozen=True, kw_only=True):
    """One status that changed, and the revision that it made."""

    run: str
    revision: int
    at: float
    status: ZoneStatus

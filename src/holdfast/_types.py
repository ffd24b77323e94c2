"""The values and protocols that every part shares; the words here are the words everywhere. Pure.

Zone: an AZ-ID such as `use1-az1`, never the account-specific name. Workload: one service that is watched and
evacuated as a whole. Times are seconds since the epoch, durations seconds, both float.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType, Protocol, TypeVar

from holdfast._errors import InvalidValue

Zone = NewType("Zone", str)

TENANT_BYTES = 256
"""Longest tenant, in UTF-8 bytes: stores index tenants, and an unbounded key would be a way to hurt them."""


class Tenant(str):
    """Whose work it is: opaque text of 1 to 256 UTF-8 bytes."""

    __slots__ = ()

    def __new__(cls, name: str) -> "Tenant":
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise InvalidValue(f"tenant {name[:32]!r} is not valid Unicode text") from error
        if not 1 <= size <= TENANT_BYTES:
            raise InvalidValue(f"tenant {name[:32]!r} has {size} UTF-8 bytes: expected 1 to {TENANT_BYTES}")
        return super().__new__(cls, name)


@dataclass(frozen=True, slots=True)
class Operation:
    """What is called: the service (Controller) and the name (Action) in it."""

    service: str
    name: str

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """What crosses a process boundary with a call or a message."""

    trace: str | None = None
    """The W3C `traceparent`, unchanged."""
    remaining: float | None = None
    """Seconds left until the caller's deadline; None means no deadline."""
    retry_owner: str | None = None
    """Who retries already; a layer that finds an owner makes one attempt."""


class Side(StrEnum):
    """Who saw the outcome."""

    SERVER = "server"
    CLIENT = "client"
    CANARY = "canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened to the requests of one operation on one instance, at one moment."""

    workload: str
    operation: Operation
    zone: Zone
    instance: str
    at: float
    side: Side
    count_2xx: int = 0
    count_3xx: int = 0
    count_4xx: int = 0
    count_5xx: int = 0
    success_seconds: Sequence[float] = ()
    fault_seconds: Sequence[float] = ()
    internal: bool = False
    """Holdfast's own traffic, such as a status poll: kept out of detection, so the watcher does not watch itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStatus:
    """Whether a zone is out, for one workload or (workload None) for all."""

    zone: Zone
    out: bool
    since: float
    by: str
    reason: str
    workload: str | None = None
    expires: float | None = None
    version: int = 0
    """Grows with every write of this key, also when it was removed in between; 0 has never been written."""

    def is_out(self, now: float) -> bool:
        """Whether the zone is out at `now`: a status that has expired no longer says so."""
        return self.out and (self.expires is None or now < self.expires)


class VerdictKind(StrEnum):
    """What is broken: nothing, one instance, one zone, a resource that zones share, everything, or not known."""

    HEALTHY = "healthy"
    INSTANCE = "instance"
    ISOLATED = "isolated"
    SHARED = "shared"
    REGIONAL = "regional"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a detector holds to be true of a workload; keeps one id from opening to closing."""

    id: str
    workload: str
    kind: VerdictKind
    since: float
    at: float
    zone: Zone | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


Event = TypeVar("Event", contravariant=True)
State = TypeVar("State")
Window = TypeVar("Window", contravariant=True)


class Sink(Protocol[Event]):
    """Where telemetry goes."""

    def emit(self, event: Event) -> None:
        """Take one event. Never raises and never blocks: an event that cannot be kept is dropped and counted."""


class ZoneView(Protocol):
    """Which zones are out, as far as this process knows."""

    def out(self, workload: str | None = None) -> frozenset[Zone]:
        """The zones to avoid, from memory: called on every request."""


class StatusStore(Protocol):
    """Where zone statuses are kept. Thread-safe; a key that is absent is in."""

    def read(self) -> Sequence[ZoneStatus]:
        """All statuses that are kept, with everything that was written before. A store may keep only what is out."""

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        """Store `status` if its key still has the `expected` version (0: absent), else raise Conflict.

        Returns it as it was stored, with its new version, which is greater than any before it.
        """

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        """See to it that what has expired at `now` is in, also for readers that know nothing of expiry.

        Returns what was changed, as it is now: in, with a version that is greater than the one it had.
        """


class Detector(Protocol[State, Window]):
    """One way to tell a sick zone from a healthy one; pure."""

    def step(self, state: State, window: Window, out: frozenset[Zone]) -> tuple[State, Verdict]:
        """Look at one window, knowing which zones are out already."""

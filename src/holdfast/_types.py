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

MAX_TENANT_BYTES = 256
"""Longest tenant, in UTF-8 bytes: stores index tenants, and an unbounded key would be a way to hurt them."""


class Tenant(str):
    """Whose work it is: opaque text of 1 to 256 UTF-8 bytes."""

    __slots__ = ()

    def __new__(cls, name: str) -> "Tenant":
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise InvalidValue(f"tenant {name[:32]!r} is not valid Unicode text") from error
        if not 1 <= size <= MAX_TENANT_BYTES:
            raise InvalidValue(f"tenant {name[:32]!r} has {size} UTF-8 bytes: expected 1 to {MAX_TENANT_BYTES}")
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


class ZoneState(StrEnum):
    """Whether a zone takes traffic."""

    IN = "in"
    DRAINING = "draining"
    """Takes no new work; work that it has begun may end there."""
    OUT = "out"
    RETURNING = "returning"
    """Takes a share of its usual traffic, to show whether it is healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStatus:
    """The state of a zone, for one workload or (workload None) for all."""

    zone: Zone
    state: ZoneState
    since: float
    by: str
    reason: str
    workload: str | None = None
    share: float | None = None
    """The share of its usual traffic that a returning zone takes, above 0 and below 1; None in all other states."""
    expires: float | None = None
    """When the zone is in again by itself; None: when somebody brings it in."""
    version: int = 0
    """Grows with every write of this key, also when it was removed in between; 0 has never been written."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "state", ZoneState(self.state))  # also where its plain text was given
        except ValueError as error:
            raise InvalidValue(
                f"state of zone {self.zone} is {self.state!r}: expected {', '.join(ZoneState)}"
            ) from error
        if (self.share is None) != (self.state is not ZoneState.RETURNING):
            raise InvalidValue(
                f"share of zone {self.zone} is {self.share}: only a returning zone has one, and needs it"
            )
        if self.share is not None and not 0 < self.share < 1:
            raise InvalidValue(f"share of zone {self.zone} is {self.share}: expected more than 0 and less than 1")

    @property
    def out(self) -> bool:
        """Whether the zone takes no new traffic, unless the status has expired."""
        return self.state is ZoneState.OUT or self.state is ZoneState.DRAINING

    def is_out(self, now: float) -> bool:
        """Whether the zone takes no new traffic at `now`."""
        return self.out and (self.expires is None or now < self.expires)

    def has_expired(self, now: float) -> bool:
        """Whether the zone is in at `now` although the status says otherwise."""
        return self.state is not ZoneState.IN and self.expires is not None and now >= self.expires

    def state_at(self, now: float) -> ZoneState:
        """Return the state that holds at `now`."""
        return ZoneState.IN if self.has_expired(now) else self.state


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
    """What a detector concludes about a workload. It keeps one id from opening to closing."""

    id: str
    workload: str
    kind: VerdictKind
    since: float
    at: float
    zone: Zone | None = None
    resource: str | None = None
    """The shared resource that fails, for verdicts of that kind."""
    sentence: str = ""
    """What a person should read first."""
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


Event = TypeVar("Event", contravariant=True)


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

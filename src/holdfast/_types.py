"""The values and protocols that every part uses. Pure.

Zone: an AZ-ID such as `use1-az1`, never the account-specific name. Workload: one service that is watched and
evacuated as a whole. Times are seconds since the epoch, durations are seconds, both as float.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType, Protocol, TypeVar

from holdfast._errors import InvalidValue

Zone = NewType("Zone", str)
"""An Availability Zone by its AZ-ID, such as `use1-az1`."""

MAX_TENANT_BYTES = 256
"""Maximum length of a tenant in UTF-8 bytes. Stores index tenants, so an unbounded key could overload them."""


class Tenant(str):
    """The customer that work belongs to: opaque text of 1 to 256 UTF-8 bytes."""

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
    """An operation that clients call: the name of a service, and of a function in it. EMF: Controller and Action."""

    service: str
    name: str

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """The context that crosses a process boundary with a call or a message."""

    trace: str | None = None
    """The W3C `traceparent`, unchanged."""
    remaining: float | None = None
    """Seconds left until the caller's deadline; None means no deadline."""
    retry_owner: str | None = None
    """The layer that already retries. A layer that finds an owner makes one attempt."""


class Side(StrEnum):
    """The observer that measured an outcome: the service itself, its client, or a canary."""

    SERVER = "server"
    CLIENT = "client"
    CANARY = "canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDetail:
    """The details of one request that are written to logs. They are never labels of a metric."""

    status: int
    """The HTTP status, or the status that describes the result best if the request was not HTTP."""
    trace: str = ""
    """Trace id: 32 hexadecimal digits of W3C, or the root of X-Ray, `1-...`. "" means unknown, also below."""
    path: str = ""
    """Path of the URL, without the query."""
    host: str = ""
    """The host that the client asked for."""
    source_ip: str = ""
    """The address of the client."""
    is_cache_refresh: bool = False
    """Whether the request had to refresh a local cache, and so took longer than others."""

    @property
    def status_class(self) -> int:
        """The class that the status counts in, 2 to 5. A status without a class there, such as 101, is a success."""
        return min(max(self.status // 100, 2), 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Counts and latencies of requests to one operation on one instance, measured at the time `at`."""

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
    is_ignored: bool = False
    """Whether detection ignores the request: Holdfast's own traffic, and requests that the middleware refused."""
    detail: RequestDetail | None = None
    """Details of the request, if the outcome is of a single request and they are known."""


class ZoneState(StrEnum):
    """The state of a zone: how much traffic it takes."""

    IN = "in"
    """The zone takes its usual traffic."""
    DRAINING = "draining"
    """The zone takes no new work; work in progress may finish there."""
    OUT = "out"
    """The zone takes no traffic."""
    RETURNING = "returning"
    """The zone takes a part of its usual traffic, to show whether it is healthy."""

    @property
    def is_out(self) -> bool:
        """True if a zone in this state takes no new traffic."""
        return self is ZoneState.OUT or self is ZoneState.DRAINING


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStatus:
    """The state of a zone for one workload, or for all workloads if `workload` is None."""

    zone: Zone
    state: ZoneState
    since: float
    by: str
    reason: str
    workload: str | None = None
    share: float | None = None
    """The share of its usual traffic that a returning zone takes, above 0 and below 1; None in all other states."""
    expires: float | None = None
    """When the status expires, and the zone is in again; None means that it does not expire."""
    version: int = 0
    """Grows with every write of this key, even if the key was removed in between; 0 means never written."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "state", ZoneState(self.state))  # accepts plain text, too
        except ValueError as error:
            raise InvalidValue(
                f"state of zone {self.zone} is {self.state!r}: expected {', '.join(ZoneState)}"
            ) from error
        if (self.share is None) != (self.state is not ZoneState.RETURNING):
            raise InvalidValue(
                f"share of zone {self.zone} is {self.share}: a returning zone needs a share, and no other zone has one"
            )
        if self.share is not None and not 0 < self.share < 1:
            raise InvalidValue(f"share of zone {self.zone} is {self.share}: expected more than 0 and less than 1")

    def is_out(self, now: float) -> bool:
        """Return whether the zone takes no new traffic at `now`."""
        return self.state.is_out and (self.expires is None or now < self.expires)

    def has_expired(self, now: float) -> bool:
        """Return whether the status has expired at `now`: then the zone is in, whatever `state` says."""
        return self.state is not ZoneState.IN and self.expires is not None and now >= self.expires

    def state_at(self, now: float) -> ZoneState:
        """Return the state at `now`: IN if the status has expired."""
        return ZoneState.IN if self.has_expired(now) else self.state


class VerdictKind(StrEnum):
    """The scope of a failure, from none to several zones."""

    HEALTHY = "healthy"
    INSTANCE = "instance"
    """One instance fails, or a few; the rest of their zone is healthy."""
    ISOLATED = "isolated"
    """Exactly one zone fails, the others are healthy. Only this verdict can lead to an evacuation."""
    SHARED = "shared"
    """A resource that the zones share fails, such as a database."""
    REGIONAL = "regional"
    """More than one zone fails, or one fails while another is out."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion of a detector about a workload. Its id stays the same from opening to closing."""

    id: str
    workload: str
    kind: VerdictKind
    since: float
    """When the failure began."""
    at: float
    """End of the latest window for which the verdict holds."""
    zone: Zone | None = None
    resource: str | None = None
    """The failing resource, for verdicts of kind SHARED."""
    summary: str = ""
    """One sentence for people."""
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)
    is_confirmed: bool = True
    """Whether the latest window shows the failure. Without it, a verdict stays open for a while, but moves nothing."""

    def is_about(self, zones: Collection[Zone]) -> bool:
        """Return whether one of these zones fails. A shared resource that fails may be in another zone by now."""
        return self.kind is not VerdictKind.SHARED and self.zone in zones


Event = TypeVar("Event", contravariant=True)


class Sink(Protocol[Event]):
    """A receiver of events, such as telemetry."""

    def emit(self, event: Event) -> None:
        """Accept `event`. Never raises and never blocks: an event that cannot be stored is dropped and counted."""


class ZoneView(Protocol):
    """The zones that are out, as far as this process knows."""

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        """Return the zones to avoid. Called on every request, so it answers from memory."""


class StatusStore(Protocol):
    """A store of zone statuses. Thread-safe. A zone without a stored status is in."""

    def read(self) -> Sequence[ZoneStatus]:
        """Return all stored statuses, including every write that has returned. A store may omit zones that are in."""

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        """Store `status` if its key still has the version `expected` (0 means absent). Otherwise raise Conflict.

        Return the stored status with its new version, which is greater than all earlier versions of the key.
        """

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        """Set every status that has expired at `now` to IN, for readers that do not check the expiry themselves.

        Return the changed statuses: state IN, with a greater version than before.
        """

"""The facts beside measurements that a detector is shown: announced deployments, and shared resources. Pure."""

from dataclasses import dataclass

from holdfast._types import Operation, Zone

DEPLOYMENT_SECONDS = 900.0
"""A window has the deployments of this many seconds before its end: some faults only show after a deployment."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An announced deployment. Failures and slow requests in its zone may be caused by it, also shortly after it."""

    zone: Zone | None
    """None means all zones at the same time."""
    start: float
    end: float
    """When it ended. While it runs, when it will have expired, which is after the end of the window."""


@dataclass(frozen=True, slots=True)
class SharedResource:
    """A resource that has one active instance, in one zone, and that all zones use: a primary database, a cache."""

    name: str
    operations: tuple[Operation, ...]
    """The operations by which consumers use it, as they measure them on the client side."""
    zone: Zone | None = None
    """The zone that it is in, if that is known."""

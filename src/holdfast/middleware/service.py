"""What a service says about itself, and how it treats the requests that come in. Pure."""

import math
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast._names import workload_of, zone_of
from holdfast._types import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who is asked, for how long, and what is done when the zone is out. Durations are seconds."""

    workload: str
    zone: Zone | None = None
    """The AZ-ID that this process runs in; needed to report outcomes and to obey the status of the zone."""
    instance: str | None = None
    """What this process is called in outcomes; None: the host's name."""
    deadline: float | None = 60.0
    """For requests that come without one: balancers close idle connections after a minute, and then nobody waits. It
    interrupts nothing, but calls made past it are refused: None for services that stream for longer than that."""
    longest: float | None = 300.0
    """No request has more, whatever its caller says; None: callers are believed."""
    believe: bool = True
    """Whether the deadline and the retry owner that callers send count. False at the edge, where callers are strangers:
    there the trace is all that is taken over."""
    late_status: int = 504
    """What a request is answered with whose deadline has passed before it began, or before it was answered."""
    health_path: str = "/health"
    """Where the balancer asks, as the application sees it: while the zone is out it is answered with 503, so that the
    balancer sends no more. Never reported as an outcome."""
    refuse: bool = False
    """Whether other requests are refused as well while the zone is out. Off: what still comes is served, because for
    most failures of a zone an answer that may be bad is better than a certain refusal."""
    retry_after: float = 5.0
    """Least seconds that refused callers are asked to stay away; each is told up to twice as much, by chance, so that
    they do not come back together."""
    cut: bool = False
    """Whether a handler that overruns its deadline is cancelled and answered for, with the late status, if it has sent
    nothing yet. ASGI only, on asyncio. Off: code that is not written to be cancelled anywhere may leave work half
    done."""

    def __post_init__(self) -> None:
        workload_of(self.workload)
        if self.zone is not None:
            zone_of(self.zone)
        if self.instance is not None and (not self.instance or not self.instance.isprintable()):
            raise InvalidValue(f"instance {self.instance!r}: expected printable text, or None for the host's name")
        for name in ("deadline", "longest"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidValue(f"{name} of {value} seconds: expected more than 0, or None for no bound")
        if self.longest is not None and self.deadline is not None and self.deadline > self.longest:
            raise InvalidValue(f"deadline of {self.deadline} seconds: expected at most the longest, {self.longest}")
        if not 400 <= self.late_status <= 599:
            raise InvalidValue(f"late_status {self.late_status}: expected the status of an error, 400 to 599")
        if not self.health_path.startswith("/"):
            raise InvalidValue(f"health_path {self.health_path!r}: expected a path that begins with /")
        if not 1 <= self.retry_after < math.inf:
            raise InvalidValue(
                f"retry_after of {self.retry_after} seconds: expected 1 or more, as HTTP counts in whole"
            )

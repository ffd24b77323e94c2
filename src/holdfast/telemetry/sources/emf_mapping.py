"""Names of the members in which records of embedded metric format contain requests. Pure.

Holdfast has names of its own: those that `encode_emf` writes. A mapping names the members of other emitters.
"""

from typing import Annotated

from msgspec import Meta, Struct

from holdfast._errors import InvalidValue
from holdfast._names import WORKLOAD_PATTERN

Member = Annotated[str, Meta(min_length=1, max_length=250)]
"""The name of a member at the root of a record: of a dimension, which has at most 250 characters, or of a metric."""
_CLASSES = frozenset({"2xx", "3xx", "4xx", "5xx"})
_COUNTS = _CLASSES | {"total", "faults"}
_LATENCIES = frozenset({"success", "fault", "all"})


class EmfMapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The workload of a namespace, and the members of its records. Names are exact; a dot in them has no meaning."""

    namespace: Annotated[str, Meta(min_length=1, max_length=1024)]
    workload: Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
    operation: Member
    """The member with the name of the operation."""
    service: Member | None = None
    """The member with the operation's service. Without it, the service is the workload's name."""
    zone: Member = "AZ-ID"
    instance: Member | None = None
    """The member with the instance. Without it, the detector cannot tell a failing instance from a failing zone."""
    status: Member | None = None
    """The member with the HTTP status of all requests in the record, a number or text."""
    counts: dict[str, Member] = {}
    """The metrics that count requests: `2xx` to `5xx`, or a `total` and the `faults` in it. Without any, the number of
    latencies is the number of requests."""
    latency: dict[str, Member] = {}
    """The metrics with latencies: of `success` and `fault`, or of `all` requests. They must declare a unit of time."""

    def __post_init__(self) -> None:
        for name, found, known in (("counts", self.counts, _COUNTS), ("latency", self.latency, _LATENCIES)):
            if unknown := sorted(found.keys() - known):
                raise InvalidValue(f"{name}: expected {', '.join(sorted(known))}, found {unknown[0]!r}")
        if not self.counts and not self.latency:
            raise InvalidValue("counts and latency: expected at least one metric, found none")
        if "faults" in self.counts and "total" not in self.counts:
            raise InvalidValue("counts.faults: expected counts.total, too: the number of requests that contains it")
        if "total" in self.counts and self.counts.keys() & _CLASSES:
            raise InvalidValue("counts: expected either classes of statuses (2xx to 5xx) or a total, found both")
        if "all" in self.latency and len(self.latency) > 1:
            raise InvalidValue("latency: expected either success and fault, or all, found both")
        metrics = self.metrics
        if len(set(metrics)) < len(metrics):
            raise InvalidValue("counts and latency: expected every metric once: a request would be counted twice")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The members that are metrics."""
        return (*self.counts.values(), *self.latency.values())


OWN_NAMES = EmfMapping(
    namespace="",
    workload="",  # the part of the namespace before the first slash
    operation="Action",
    service="Controller",
    zone="AZ-ID",
    instance="InstanceId",
    status="HttpStatusCode",
    counts={"2xx": "2xx", "3xx": "3xx", "4xx": "4xx", "5xx": "5xx"},
    latency={"success": "SuccessLatency", "fault": "FaultLatency"},
)
"""The names that `encode_emf` writes. They apply to namespaces without a mapping."""

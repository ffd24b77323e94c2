"""The summary of a run, computed from the records of its processes. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast._types import VerdictKind, ZoneStatus

if TYPE_CHECKING:
    from holdfast.demo.records import InjectedFault, SentRequest
    from holdfast.watch import RecordedVerdict


class Phase(Struct, frozen=True):
    """The client's requests in one part of the run."""

    requests: int
    failed: int


class Summary(Struct, frozen=True, kw_only=True):
    """The figures of a run. Times are seconds since the epoch; None means that it did not happen."""

    zone: str
    fault_at: float
    verdict_at: float | None
    out_at: float | None
    last_request_at: float | None
    """When the last request was sent to the zone, or None if the zone was not evacuated."""
    seconds_to_verdict: float | None
    seconds_to_out: float | None
    seconds_to_last_request: float | None
    before_fault: Phase
    until_last_request: Phase
    """From the fault to the last request to the zone, or to the end if the zone was not evacuated."""
    after: Phase
    """After the last request to the zone: all of these went to other zones."""
    shifted: Sequence[str]
    """Balancers of the simulated AWS whose traffic was shifted away from the zone."""
    wrong_zones: Sequence[str]
    """Healthy zones that a verdict named, or that were taken out. There should be none."""

    @property
    def found(self) -> bool:
        """True if the failing zone, and no other, was detected and evacuated."""
        is_evacuated = self.seconds_to_last_request is not None and bool(self.shifted)
        return is_evacuated and self.verdict_at is not None and not self.wrong_zones


def summarize(
    zone: str,
    faults: "Sequence[InjectedFault]",
    sent: "Sequence[SentRequest]",
    verdicts: "Sequence[RecordedVerdict]",
    statuses: Sequence[ZoneStatus],
    *,
    shifted: Sequence[str] = (),
) -> Summary:
    """Return the figures of a run in which `zone` failed. The fault starts when its first instance begins to fail."""
    fault_at = min(fault.at for fault in faults)
    isolated = [verdict for verdict in verdicts if verdict.kind is VerdictKind.ISOLATED]
    out = [status for status in statuses if status.state.is_out]
    accusations = [(verdict.zone or "", verdict.opened_at) for verdict in isolated]
    accusations += [(status.zone, status.since) for status in out]
    verdict_at = min((verdict.opened_at for verdict in isolated if verdict.zone == zone), default=None)
    out_at = min((status.since for status in out if status.zone == zone), default=None)
    into_zone = [request.at for request in sent if request.zone == zone]
    last = max(into_zone, default=None) if out_at is not None else None
    border = float("inf") if last is None else last
    return Summary(
        zone=zone,
        fault_at=fault_at,
        verdict_at=verdict_at,
        out_at=out_at,
        last_request_at=last,
        seconds_to_verdict=_since(fault_at, verdict_at),
        seconds_to_out=_since(fault_at, out_at),
        seconds_to_last_request=_since(fault_at, last),
        # A request that was under way when the fault began may fail because of it.
        before_fault=_phase([request for request in sent if request.ended_at < fault_at]),
        until_last_request=_phase([each for each in sent if fault_at <= each.ended_at and each.at <= border]),
        after=_phase([request for request in sent if request.at > max(border, fault_at)]),
        shifted=shifted,
        wrong_zones=sorted({accused for accused, at in accusations if accused != zone or at < fault_at}),
    )


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else round(end - start, 3)


def _phase(sent: "Sequence[SentRequest]") -> Phase:
    return Phase(len(sent), sum(request.failed for request in sent))

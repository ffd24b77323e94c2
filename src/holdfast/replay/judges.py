"""Judge recorded windows with a detector, and note when its verdicts open and close. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.detect.detector import DETECTORS, build_detector
from holdfast.telemetry.window import Window

ALARMS = "alarms"
"""The name of the workload's alarms, beside the names of detectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedVerdict:
    """A verdict of a detector, or an alarm about a zone or resource, from opening to closing."""

    judge: str
    """The name of the detector, or `alarms`."""
    workload: str
    kind: VerdictKind
    since: float
    """When the failure began, as far as the judge can tell."""
    opened: float
    """End of the bin after which it was opened."""
    closed: float | None = None
    """End of the bin after which it was closed; None if it was open at the end of the recording."""
    zone: Zone | None = None
    resource: str | None = None
    instances: tuple[str, ...] = ()
    """The failing instances, if the detector names them."""
    summary: str = ""


@dataclass(slots=True)
class VerdictLog:
    """The verdicts of one judge about one workload. The rules are those of the live loop."""

    judge: str
    found: list[ReplayedVerdict] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)
    """The position in `found` of each open verdict, by id."""

    def note(self, verdict: Verdict, window: Window) -> None:
        """Note the verdict about a window: it may open one, and close others."""
        is_healthy = verdict.kind is VerdictKind.HEALTHY
        if is_healthy and not any(cells.requests.any() for cells in window.cells.values()):
            return  # no measurements: they cannot show that a failure has ended
        is_new = not is_healthy and verdict.id not in self._open
        for known in [known for known in self._open if known != verdict.id]:
            found = self.found[self._open[known]]
            if is_new and (found.kind, found.zone, found.resource) == (verdict.kind, verdict.zone, verdict.resource):
                self._open[verdict.id] = self._open.pop(known)  # it continues under another id
                is_new = False
            elif found.zone not in window.zones_out:
                self.close(known, window.end)
        if is_new:
            self.open(verdict, window.end)

    def open(self, verdict: Verdict, at: float) -> None:
        """Note that a verdict opens."""
        self._open[verdict.id] = len(self.found)
        self.found.append(
            ReplayedVerdict(
                judge=self.judge,
                workload=verdict.workload,
                kind=verdict.kind,
                since=verdict.since,
                opened=at,
                zone=verdict.zone,
                resource=verdict.resource,
                instances=_find_instances(verdict),
                summary=verdict.summary,
            )
        )

    def close(self, known: str, at: float) -> None:
        """Note that the verdict with an id closes, if it is open."""
        position = self._open.pop(known, None)
        if position is not None:
            self.found[position] = replace(self.found[position], closed=at)


class DetectorJudge:
    """Runs a detector over the windows of one workload."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.log = VerdictLog(name)
        self._detector = build_detector(name, options)
        self._state: Any = DETECTORS.get(name).state_type()

    def judge(self, window: Window) -> None:
        """Evaluate one window."""
        self._state, verdict = self._detector.step(self._state, window)
        self.log.note(verdict, window)


def _find_instances(verdict: Verdict) -> tuple[str, ...]:
    """Return the instances that a verdict about instances names in its evidence about their zone."""
    about = verdict.evidence.get(verdict.zone or "")
    if verdict.kind is not VerdictKind.INSTANCE or not isinstance(about, Mapping):
        return ()
    return tuple(map(str, about.get("worst_instances", ())))

"""Run a detector over a scenario, and compare its verdicts with the labels. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.detect.detector import Detector
from holdfast.simulate.zones.scenario import Label
from holdfast.telemetry.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSpan:
    """A verdict, from the window in which it was given first to the last one."""

    kind: VerdictKind
    zone: Zone | None
    resource: str | None
    start: float
    """End of the first window with the verdict."""
    end: float
    """End of the last window with the verdict."""
    summary: str

    def matches(self, label: Label) -> bool:
        """Return whether the verdict is the right one for a label, and was given while the label holds."""
        is_right = self.kind is label.kind and (label.resource is None or self.resource == label.resource)
        is_there = label.zone is None or self.zone is None or self.zone == label.zone
        is_zone_named = label.kind is not VerdictKind.ISOLATED or self.zone == label.zone
        return is_right and is_there and is_zone_named and self.end > label.start and self.start <= label.end


@dataclass(frozen=True, slots=True)
class FoundLabel:
    """A label, and how long the detector took to give the right verdict."""

    label: Label
    delay: float | None
    """Seconds from the start of the failure to the end of the window with the verdict; None if it was never given."""


def run_detector(detector: Detector[Any], state: Any, windows: Iterable[Window]) -> list[VerdictSpan]:
    """Return all verdicts of a detector but "healthy". Verdicts that follow each other and say the same are one."""
    spans: list[VerdictSpan] = []
    first: Verdict | None = None
    last: Verdict | None = None
    for window in windows:
        state, verdict = detector.step(state, window)
        if first is not None and last is not None and _identify(first) != _identify(verdict):
            spans.append(_close(first, last))
            first = None
        first, last = first or verdict, verdict
    if first is not None and last is not None:
        spans.append(_close(first, last))
    return [span for span in spans if span.kind is not VerdictKind.HEALTHY]


def _identify(verdict: Verdict) -> tuple[VerdictKind, Zone | None, str | None]:
    return verdict.kind, verdict.zone, verdict.resource


def _close(first: Verdict, last: Verdict) -> VerdictSpan:
    return VerdictSpan(
        kind=first.kind,
        zone=first.zone,
        resource=first.resource,
        start=first.at,
        end=last.at,
        summary=first.summary,
    )


def find_labels(labels: Iterable[Label], spans: Sequence[VerdictSpan]) -> list[FoundLabel]:
    """Return each label with the delay of the first verdict that is right."""
    return [
        FoundLabel(
            label, min((max(each.start - label.start, 0.0) for each in spans if each.matches(label)), default=None)
        )
        for label in labels
    ]

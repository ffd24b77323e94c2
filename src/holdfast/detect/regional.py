"""Find failures of several zones at once, and of the resources that zones share. Pure.

Consumers see a failing resource first. Its own monitoring may see nothing: that is a gray failure.
"""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from holdfast._types import Operation, Side, Zone
from holdfast.detect import counts, latency
from holdfast.detect.cusum import CONFIRMED, SUSPICIOUS, Array, Mask
from holdfast.detect.findings import MUCH_WORSE
from holdfast.detect.measurements import Measurements, StreamKey
from holdfast.detect.streams import StreamStep
from holdfast.telemetry.window import Window

if TYPE_CHECKING:
    from holdfast.detect.sentences import EvaluatedWindow

AFFECTED_ZONES = 2
"""Zones whose consumers must be affected before the resource, and not a zone, is to blame."""
MISSING_REQUESTS, MISSING_BINS = 10.0, 3
"""Requests to a resource, and usual bins, that must be missing in a zone before its consumers count as affected."""
REGIONAL_SLOWDOWN = math.log(1.5)
"""The latency of all zones drifts together, with the time of the day and with what is asked for."""
SIMILAR_RISE = 0.5
"""Rise of the faults from which they, not latency, say which zones have the same failure."""


class Observability(StrEnum):
    """Who sees a failure of a resource: its own monitoring, or its consumers."""

    HEALTHY = "healthy"
    MASKED = "masked"
    """Only its own monitoring does: consumers are not affected."""
    DETECTED = "detected"
    GRAY = "gray"
    """Only its consumers do."""


class ResourceView(Struct, frozen=True):
    """A shared resource as its consumers and as it sees itself."""

    name: str
    zone: Zone | None
    """The zone that it is in, if that is known."""
    affected: tuple[Zone, ...]
    """Zones whose consumers are affected."""
    silent: tuple[Zone, ...]
    """Affected zones whose consumers get no answer at all."""
    since: float
    state: Observability

    @property
    def is_failing(self) -> bool:
        return len(self.affected) >= AFFECTED_ZONES

    def to_evidence(self) -> dict[str, Any]:
        return {"observability": str(self.state), "affected_zones": list(self.affected)}


class Regional(Struct, frozen=True):
    """The zones that are worse than their own past."""

    zones: tuple[int, ...]
    row: int
    since: float | None

    def describe(self, evaluated: "EvaluatedWindow") -> str:
        """Return the part of a sentence that says what is wrong."""
        if not self.zones:
            return "worse than usual"
        worse = "worse than usual" if len(self.zones) == 1 else "several zones are worse than usual"
        return f"{worse} in {evaluated.name_stream(self.row)}"


def find_regional(step: StreamStep, active: Mask, at: float, seconds: float) -> Regional:
    """Return the stream in which most zones are worse than their own past, and similarly bad.

    If a single zone is `active`, it is regional if that one fails: there is no zone to move traffic to.
    """
    past = get_past_evidence(step, seconds)
    is_above = (past >= step.thresholds[:, None]) & find_similar(step)
    number = is_above.sum(axis=1)
    row = int(np.argmax(number * 1000.0 + past.sum(axis=1)))
    zones = np.flatnonzero(is_above[row])
    if len(zones) < max(min(AFFECTED_ZONES, int(active.sum())), 1):
        return Regional((), row, None)
    bins = float(np.maximum(step.state.counts.past_bins, step.state.latency.past_bins)[row, zones].max())
    return Regional(tuple(zones.tolist()), row, at - max(bins, 1.0) * seconds)


def find_similar(step: StreamStep) -> Mask:
    """Return, by stream and zone, whether it is not much better than the worst zone.

    If the others are much better, only the worst zone fails.
    """
    rises = counts.get_rises(step.state.counts) - 1
    shifts = latency.get_shifts(step.state.latency, is_latest=False)
    is_similar = [each * MUCH_WORSE >= each.max(axis=1, keepdims=True) for each in (rises, shifts)]
    # Latency decides only where there is no rise of faults.
    found: Mask = np.where(rises.max(axis=1, keepdims=True) > SIMILAR_RISE, *is_similar)
    return found


def get_past_evidence(step: StreamStep, seconds: float) -> Array:
    """Return the evidence of each stream and zone against its own past, from faults or latency.

    It counts only where the zone is still worse: evidence about rare requests fades long after a failure.
    """
    found = step.state.counts
    shifts = [latency.get_shifts(step.state.latency, is_latest=fast) for fast in (False, True)]
    is_slower = np.minimum(*shifts) >= REGIONAL_SLOWDOWN
    faults = np.where(counts.find_still_failing(found, seconds), found.against_past.max(axis=0), 0.0)
    slow = np.where(is_slower, step.state.latency.against_past.max(axis=0), 0.0)
    return np.maximum(faults, slow)


def view_resources(step: StreamStep, measurements: Measurements, window: Window) -> list[ResourceView]:
    """Return how consumers in each zone, and its own monitoring, see each declared resource."""
    if not window.resources:
        return []
    past = get_past_evidence(step, window.seconds)
    rows = {key: row for row, key in enumerate(step.state.keys)}
    reporting = measurements.requests.sum(axis=(0, 2)) > 0
    found = []
    for resource in window.resources:
        used = _find_rows(rows, resource.operations, Side.CLIENT)
        own = _find_rows(rows, resource.operations, Side.SERVER)
        is_failing = (
            (past[used] >= step.thresholds[used, None]).any(axis=0) if used else np.zeros(len(reporting), np.bool_)
        )
        least = np.maximum(MISSING_REQUESTS, MISSING_BINS * step.state.usual[used])
        is_silent = (step.state.missing[used] >= least).any(axis=0) & reporting
        affected = np.flatnonzero(is_failing | is_silent)
        seen_by_consumers = bool((past[used].max(axis=0) >= CONFIRMED).any() or is_silent.any()) if used else False
        seen_by_itself = bool((past[own] >= SUSPICIOUS).any()) if own else False
        past_bins = np.maximum(step.state.counts.past_bins, step.state.latency.past_bins)
        bins = float(past_bins[used].max()) if used else 1.0
        found.append(
            ResourceView(
                resource.name,
                resource.zone,
                tuple(window.zones[each] for each in affected.tolist()),
                tuple(window.zones[each] for each in np.flatnonzero(is_silent).tolist()),
                window.end - max(bins, 1.0) * window.seconds,
                _classify(seen_by_consumers=seen_by_consumers, seen_by_itself=seen_by_itself),
            )
        )
    return found


def _classify(*, seen_by_consumers: bool, seen_by_itself: bool) -> Observability:
    if seen_by_consumers:
        return Observability.DETECTED if seen_by_itself else Observability.GRAY
    return Observability.MASKED if seen_by_itself else Observability.HEALTHY


def _find_rows(rows: dict[StreamKey, int], operations: tuple[Operation, ...], side: Side) -> list[int]:
    return [rows[key] for each in operations if (key := StreamKey(side, each)) in rows]

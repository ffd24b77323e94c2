"""Let a detector learn from stored measurements, instead of being without knowledge for its first half hour.

The measurements of the last hour are evaluated window by window, as if they came in now. Their verdicts are neither
recorded nor acted on: the time in which they would have helped is over.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast._clock import Clock
from holdfast._types import VerdictKind, Zone, ZoneState
from holdfast.detect import Detector
from holdfast.telemetry import BinKey, Deployment, SharedResource, Window
from holdfast.telemetry.bins import MEDIUM_TERM
from holdfast.telemetry.store import SeriesStore
from holdfast.telemetry.window import WindowIndex

SLICE_SECONDS = 0.5
"""Seconds of learning after which live work gets its turn."""


class HistoryLearner:
    """Learns the stored measurements of one workload, a part at a time."""

    def __init__(
        self,
        stored: SeriesStore,
        workload: str,
        zones: tuple[Zone, ...],
        seconds: float,
        now: float,
        *,
        states: Mapping[Zone, ZoneState],
        resources: Sequence[SharedResource],
        list_deployments: Callable[[float], Sequence[Deployment]],
    ) -> None:
        """Prepare to learn.

        Zones that are out now count as out in all windows. The time since which a zone is out is not passed in.
        """
        self.windows = 0
        self.end = 0.0
        """End of the last window that was evaluated."""
        self._bins = stored.iterate_zones(workload, now - MEDIUM_TERM)
        self._index: tuple[list[BinKey], WindowIndex] | None = None
        self._zones = zones
        self._list_deployments = list_deployments
        self._empty = Window(
            workload=workload,
            start=0.0,
            seconds=seconds,
            zones=zones,
            states={zone: state for zone, state in states.items() if zone in zones},
            resources=tuple(resources),
        )
        self._state: Any = None
        self._known: Any = None

    def learn(self, detector: Detector[Any], state: Any, clock: Clock) -> Any | None:
        """Evaluate windows for SLICE_SECONDS. Return None while windows remain; after the last one, the learned state.

        `state` is used by the first call. A failure that has not ended is left out of the learned state: the live
        windows must show it again before anyone acts on it.
        """
        if self._state is None:
            self._state = self._known = state
        until = clock.monotonic() + SLICE_SECONDS
        for window in self._windows():
            self._state, verdict = detector.step(self._state, window)
            if verdict.kind in (VerdictKind.HEALTHY, VerdictKind.UNKNOWN):
                self._known = self._state
            self.windows += 1
            self.end = window.end
            if clock.monotonic() >= until:
                return None
        return self._known

    def _windows(self) -> Iterator[Window]:
        for start, keys, block in self._bins:
            if self._index is None or self._index[0] != keys:
                self._index = keys, WindowIndex(self._zones, keys)
            window = replace(self._empty, start=start)
            window = replace(window, deployments=tuple(self._list_deployments(window.end)))
            yield self._index[1].fill(window, block)

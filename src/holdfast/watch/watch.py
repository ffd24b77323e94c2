"""Run the loop: count what arrives, let detectors look at complete bins, record verdicts and act on them."""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock, SystemClock
from holdfast._errors import Conflict, NotFound
from holdfast._types import Side, Sink, Verdict, VerdictKind, Zone
from holdfast.detect import DETECTORS, Detector, build_detector
from holdfast.detect.detector import DEFAULT_DETECTOR
from holdfast.evacuate import Evacuator
from holdfast.telemetry import BIN_SECONDS, Bin, BinDelta, BinKey, Bins, Deployment, build_window
from holdfast.telemetry.bins import GRACE_SECONDS
from holdfast.watch.store import WatchStore

logger = logging.getLogger("holdfast.watch")

TICK_SECONDS = 0.25
"""How often the loop looks for bins that have become complete."""
TRAFFIC_SECONDS = 1.0
"""How often listeners are told what arrived: a person can follow that."""
KEPT_TRAFFIC_SAMPLES = 120
"""Two minutes, for a page that is opened later."""
STALE_BINS = 3
"""Bins after which a window that could not be looked at is given up: by then newer ones say more."""
STALE_STATE_BINS = 6
"""Bins after which a saved detector state is not used any more: its counts in a row are over."""
MAX_HELD_DELTAS = 200_000
"""Deltas that may wait for the loop; past that the oldest are dropped: fresh ones say more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWorkload:
    """One workload: its zones, and the detector that looks at them."""

    name: str
    zones: tuple[Zone, ...]
    detector: str = DEFAULT_DETECTOR
    """The name under which a detector registered itself."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The detector's own settings."""


class TrafficSample(msgspec.Struct, frozen=True):
    """What arrived in about one second: for each workload and zone the requests, faults and latency."""

    at: float
    workloads: Mapping[str, Mapping[str, Mapping[str, float | int | None]]]


class VerdictChange(msgspec.Struct, frozen=True):
    """A verdict that opened or closed."""

    verdict: Verdict
    at: float
    closed: bool


WatchEvent: TypeAlias = TrafficSample | VerdictChange


@dataclass(slots=True)
class _WatchedState:
    """One workload at run time."""

    name: str
    zones: tuple[Zone, ...]
    detector_name: str
    detector: Detector[Any]
    state: Any
    open: dict[str, Verdict] = field(default_factory=dict)
    """The verdicts that are recorded as open, by id."""
    deployments: list[Deployment] = field(default_factory=list)
    due: deque[tuple[float, Mapping[BinKey, Bin]]] = field(default_factory=deque)
    """Complete bins that the detector has not looked at yet, each with its start."""


class WorkloadWatcher:
    """Watches workloads. `ingest` from any thread; everything else happens in one background thread.

    Use as a context manager, or call `start` and `close`. Without an `evacuator` it only reaches verdicts.
    """

    def __init__(
        self,
        workloads: Sequence[WatchedWorkload],
        store: WatchStore,
        *,
        evacuator: Evacuator | None = None,
        events: Sink[WatchEvent] | None = None,
        bin_seconds: float = BIN_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._store = store
        self._evacuator = evacuator
        self._events = events
        self._bins = Bins(bin_seconds)
        self._watched = {workload.name: self._start_workload(workload) for workload in workloads}
        for recorded in store.open_verdicts():
            if recorded.workload in self._watched:
                # From before a restart: it closes with the first window, unless its zone is out or it is reached again.
                self._watched[recorded.workload].open[recorded.id] = recorded.to_verdict()
        self._arrived: deque[BinDelta] = deque(maxlen=MAX_HELD_DELTAS)
        self._traffic: dict[tuple[str, Zone], Bin] = {}
        self._traffic_sent_at = self._clock.wall()
        self._recent_traffic: deque[TrafficSample] = deque(maxlen=KEPT_TRAFFIC_SAMPLES)
        self._loop = BackgroundLoop(
            "holdfast-watch",
            self._step,
            action="watch the workloads",
            logger=logger,
            backoff=constant_backoff(TICK_SECONDS),
        )

    @property
    def bin_seconds(self) -> float:
        """The length of a bin."""
        return self._bins.seconds

    def is_watched(self, workload: str, zone: str) -> bool:
        """Whether the zone of that workload is watched."""
        watched = self._watched.get(workload)
        return watched is not None and zone in watched.zones

    def ingest(self, deltas: Iterable[BinDelta]) -> None:
        """Take measurements; return at once. Raise InvalidValue for one that covers more than a bin."""
        taken = list(deltas)
        for delta in taken:
            self._bins.check_fits(delta)
        self._arrived.extend(taken)

    def announce_deployment(self, workload: str, deployment: Deployment) -> None:
        """Let the workload's detector know of a deployment. Raise NotFound if the workload is not watched."""
        if workload not in self._watched:
            raise NotFound(f"no workload {workload} is watched: {', '.join(self._watched)}")
        self._watched[workload].deployments.append(deployment)

    def recent_traffic(self) -> Sequence[TrafficSample]:
        """Return what arrived lately, second by second."""
        return list(self._recent_traffic)

    def start(self) -> "WorkloadWatcher":
        """Begin to watch, in a background thread. May be repeated."""
        self._loop.start()
        return self

    def close(self) -> None:
        """Stop watching, after the current look. May be repeated."""
        self._loop.stop(timeout=None)

    def __enter__(self) -> "WorkloadWatcher":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tick(self) -> None:
        """Count what arrived, and look at every bin that has become complete. The background thread calls it."""
        now = self._clock.wall()
        while self._arrived:
            delta = self._arrived.popleft()
            self._bins.add(delta, now)
            if delta.key.side is Side.SERVER:
                self._traffic.setdefault((delta.key.workload, delta.key.zone), Bin()).merge(delta.measured)
        if not 0 <= now - self._traffic_sent_at < TRAFFIC_SECONDS:
            self._send_traffic(now)
        for start, complete in self._bins.pop_complete(now):
            for watched in self._watched.values():
                watched.due.append((start, complete))
        failures = [error for watched in self._watched.values() if (error := self._catch_up(watched, now)) is not None]
        if failures:
            raise failures[0]

    def _catch_up(self, watched: _WatchedState, now: float) -> Exception | None:
        """Look at what is due of one workload; return the error that stopped it. Other workloads are not held up."""
        while watched.due:
            start, bins = watched.due[0]
            end = start + self._bins.seconds
            if now - end > STALE_BINS * self._bins.seconds + GRACE_SECONDS:
                # It could not be looked at in time, because a store was away: what it shows may long be over.
                logger.warning("the window of %s that ended at %.0f is too old to act on", watched.name, end)
            else:
                try:
                    self._run_detector(watched, start, bins)
                except Exception as error:  # noqa: BLE001 - a detector or a store; reported when all have been looked at
                    return error
            watched.due.popleft()  # only now: a window whose verdict could not be stored is looked at again
        return None

    def _start_workload(self, workload: WatchedWorkload) -> _WatchedState:
        detector = build_detector(workload.detector, workload.options)
        kind = DETECTORS.get(workload.detector).state_type
        saved = self._store.load_state(workload.name, workload.detector, kind)
        is_fresh = saved is not None and 0 <= self._clock.wall() - saved[1] <= STALE_STATE_BINS * self._bins.seconds
        state = saved[0] if saved is not None and is_fresh else kind()
        return _WatchedState(workload.name, workload.zones, workload.detector, detector, state)

    def _step(self) -> float:
        self.tick()
        return TICK_SECONDS

    def _run_detector(self, watched: _WatchedState, start: float, bins: Mapping[BinKey, Bin]) -> None:
        """Let the detector look at a window, record what it concludes, and act on it."""
        states = {} if self._evacuator is None else self._evacuator.read_states(watched.name)
        end = start + self._bins.seconds
        for deployment in [deployment for deployment in watched.deployments if deployment.end <= start]:
            watched.deployments.remove(deployment)  # not a new list: another thread may announce one at the same moment
        window = build_window(
            watched.name,
            watched.zones,
            start,
            self._bins.seconds,
            bins,
            states={zone: state for zone, state in states.items() if zone in watched.zones},
            deployments=[deployment for deployment in watched.deployments if deployment.start < end],
        )
        state, verdict = watched.detector.step(watched.state, window)
        now = self._clock.wall()
        closed = [
            known for known in watched.open.values() if known.id != verdict.id and known.zone not in window.zones_out
        ]
        is_new = verdict.kind is not VerdictKind.HEALTHY and verdict.id not in watched.open
        self._store.record(
            watched.name,
            watched.detector_name,
            state,
            now,
            opened=verdict if is_new else None,
            closed=[known.id for known in closed],
        )
        for known in closed:
            self._report(known, now, closed=True)
            del watched.open[known.id]
        if is_new:
            self._report(verdict, now, closed=False)
            watched.open[verdict.id] = verdict
        if verdict.kind is not VerdictKind.HEALTHY and self._evacuator is not None:
            try:
                self._evacuator.act(verdict, frozenset(watched.zones))
            except Conflict as error:  # another zone is out, or somebody was quicker: the next window decides anew
                logger.info("zone %s is not taken out for %s: %s", verdict.zone, watched.name, error)
        watched.state = state

    def _report(self, verdict: Verdict, at: float, *, closed: bool) -> None:
        logger.warning(
            "verdict %s: %s %s: %s", verdict.id, verdict.kind, "closed" if closed else "opened", verdict.sentence
        )
        self._emit(VerdictChange(verdict, at, closed))

    def _send_traffic(self, now: float) -> None:
        sample = TrafficSample(
            now,
            {
                name: {zone: _summarize(self._traffic.get((name, zone))) for zone in watched.zones}
                for name, watched in self._watched.items()
            },
        )
        self._traffic.clear()
        self._traffic_sent_at = now
        self._recent_traffic.append(sample)
        self._emit(sample)

    def _emit(self, event: WatchEvent) -> None:
        if self._events is not None:
            self._events.emit(event)


def _summarize(counted: Bin | None) -> dict[str, float | int | None]:
    if counted is None:
        return {"requests": 0, "faults": 0, "latency": None}
    return {"requests": counted.requests, "faults": counted.faults, "latency": counted.success_seconds.quantile(0.9)}

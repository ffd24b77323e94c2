"""Run the detection loop: count measurements, evaluate complete bins, record verdicts and act on them."""

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
"""How often the loop checks for complete bins."""
TRAFFIC_SECONDS = 1.0
"""How often listeners get a traffic sample: slow enough for a person to follow."""
KEPT_TRAFFIC_SAMPLES = 120
"""Two minutes, for a page that is opened later."""
STALE_BINS = 3
"""Bins after which a window that could not be evaluated is skipped: newer ones say more."""
STALE_STATE_BINS = 6
"""Bins after which a saved detector state is discarded: its counts of consecutive windows no longer apply."""
MAX_HELD_DELTAS = 200_000
"""Deltas that may wait for the loop. Above that the oldest are dropped: fresh ones matter more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWorkload:
    """A workload, its zones, and its detector."""

    name: str
    zones: tuple[Zone, ...]
    detector: str = DEFAULT_DETECTOR
    """The registered name of the detector."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The detector's own settings."""


class TrafficSample(msgspec.Struct, frozen=True):
    """The traffic of about one second: requests, faults and latency by workload and zone."""

    at: float
    workloads: Mapping[str, Mapping[str, Mapping[str, float | int | None]]]


class VerdictChange(msgspec.Struct, frozen=True):
    """A verdict that opened or closed."""

    verdict: Verdict
    at: float
    is_closed: bool


WatchEvent: TypeAlias = TrafficSample | VerdictChange
"""All events of a WorkloadWatcher, for its sink `events`."""


@dataclass(slots=True)
class _WatchedState:
    """The run-time state of one workload."""

    name: str
    zones: tuple[Zone, ...]
    detector_name: str
    detector: Detector[Any]
    state: Any
    open: dict[str, Verdict] = field(default_factory=dict)
    """The recorded open verdicts, by id."""
    deployments: list[Deployment] = field(default_factory=list)
    pending: deque[tuple[float, Mapping[BinKey, Bin]]] = field(default_factory=deque)
    """Complete bins that the detector has not evaluated yet, each with its start."""


class WorkloadWatcher:
    """The detection loop. `ingest` may be called from any thread; the rest happens in one background thread.

    Use as a context manager, or call `start` and `close`. Without an `evacuator` it only reports verdicts.
    `events` is the sink for traffic samples and changes of verdicts.
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
        for recorded in store.list_open_verdicts():
            if recorded.workload in self._watched:
                # Opened before a restart. The first window closes it, unless its zone is out or the verdict repeats.
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
        return self._bins.seconds

    def is_watched(self, workload: str, zone: str) -> bool:
        """Return whether this zone of the workload is watched."""
        watched = self._watched.get(workload)
        return watched is not None and zone in watched.zones

    def ingest(self, deltas: Iterable[BinDelta]) -> None:
        """Queue measurements; returns immediately. Raise InvalidValue if one covers more than a bin."""
        taken = list(deltas)
        for delta in taken:
            self._bins.check_fits(delta)
        self._arrived.extend(taken)

    def announce_deployment(self, workload: str, deployment: Deployment) -> None:
        """Announce a deployment to the workload's detector. Raise NotFound if the workload is not watched."""
        if workload not in self._watched:
            raise NotFound(f"workload {workload} is not watched: expected one of {', '.join(self._watched)}")
        self._watched[workload].deployments.append(deployment)

    def recent_traffic(self) -> Sequence[TrafficSample]:
        """Return the traffic samples of the last two minutes, oldest first."""
        return list(self._recent_traffic)

    def start(self) -> "WorkloadWatcher":
        """Start watching, in a background thread. May be repeated."""
        self._loop.start()
        return self

    def close(self) -> None:
        """Stop after the current window has been evaluated. May be repeated."""
        self._loop.stop(timeout=None)

    def __enter__(self) -> "WorkloadWatcher":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tick(self) -> None:
        """Count queued measurements, and evaluate every complete bin. The background thread calls it."""
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
                watched.pending.append((start, complete))
        failures = [error for watched in self._watched.values() if (error := self._catch_up(watched, now)) is not None]
        if failures:
            raise failures[0]

    def _catch_up(self, watched: _WatchedState, now: float) -> Exception | None:
        """Evaluate the pending bins of one workload; return the error that stopped it, if any."""
        while watched.pending:
            start, bins = watched.pending[0]
            end = start + self._bins.seconds
            if now - end > STALE_BINS * self._bins.seconds + GRACE_SECONDS:
                # It could not be evaluated in time, because a store was unavailable: its data may be outdated.
                logger.warning(
                    "workload %s: skipped the window that ended %.0f s ago, because it could not be evaluated in time; "
                    "there is no verdict for it",
                    watched.name,
                    now - end,
                )
            else:
                try:
                    self._run_detector(watched, start, bins)
                except Exception as error:  # noqa: BLE001 - raised when all workloads were evaluated
                    return error
            watched.pending.popleft()  # only now: a window whose verdict could not be stored is evaluated again
        return None

    def _start_workload(self, workload: WatchedWorkload) -> _WatchedState:
        detector = build_detector(workload.detector, workload.options)
        kind = DETECTORS.get(workload.detector).state_type
        state, saved_at = self._store.load_state(workload.name, workload.detector, kind) or (kind(), None)
        if saved_at is None or not 0 <= self._clock.wall() - saved_at <= STALE_STATE_BINS * self._bins.seconds:
            state = kind()
        return _WatchedState(workload.name, workload.zones, workload.detector, detector, state)

    def _step(self) -> float:
        self.tick()
        return TICK_SECONDS

    def _run_detector(self, watched: _WatchedState, start: float, bins: Mapping[BinKey, Bin]) -> None:
        """Evaluate a window, record the verdict, and act on it."""
        states = {} if self._evacuator is None else self._evacuator.read_states(watched.name)
        end = start + self._bins.seconds
        for deployment in [deployment for deployment in watched.deployments if deployment.end <= start]:
            watched.deployments.remove(deployment)  # not a new list: another thread may append one concurrently
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
            self._report(known, now, is_closed=True)
            del watched.open[known.id]
        if is_new:
            self._report(verdict, now, is_closed=False)
            watched.open[verdict.id] = verdict
        if verdict.kind is not VerdictKind.HEALTHY and self._evacuator is not None:
            try:
                self._evacuator.evacuate(verdict, frozenset(watched.zones))
            except Conflict as error:  # another zone is out, or was taken out: the next window decides again
                logger.info("not evacuating zone %s for %s: %s", verdict.zone, watched.name, error)
        watched.state = state

    def _report(self, verdict: Verdict, at: float, *, is_closed: bool) -> None:
        logger.warning(
            "%s verdict %s (%s): %s", "closed" if is_closed else "opened", verdict.id, verdict.kind, verdict.summary
        )
        self._emit(VerdictChange(verdict, at, is_closed))

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

"""The loop: telemetry in, bins, a detector for each workload, verdicts, evacuation, and events out."""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from holdfast._clock import Clock
from holdfast._types import Outcome, Side, Verdict, VerdictKind, Zone
from holdfast.config import WorkloadSettings
from holdfast.detect import ThresholdDetector, ThresholdOptions, ThresholdState
from holdfast.evacuate import Evacuator
from holdfast.server.push import Hub
from holdfast.server.verdict_log import VerdictLog
from holdfast.telemetry import Bin, Bins, Window, window_of
from holdfast.telemetry.bins import GRACE_SECONDS

logger = logging.getLogger("holdfast.watch")

TICK_SECONDS = 0.25
"""How often the loop looks for bins that have become complete."""
PULSE_SECONDS = 1.0
"""How often what happened is told to whoever listens: what a person can follow."""
KEPT_PULSES = 120
"""Two minutes, for a page that is opened later."""
STALE_BINS = 3
"""Bins after which a window that could not be looked at is given up: by then newer ones tell."""
HELD_OUTCOMES = 1_000_000
"""Outcomes that may wait for the loop; past that the oldest are dropped: fresh ones say more."""


@dataclass(slots=True)
class _Watched:
    """One workload, its detector and what that remembers."""

    settings: WorkloadSettings
    zones: tuple[Zone, ...]
    detector: ThresholdDetector
    state: ThresholdState = field(default_factory=ThresholdState)
    shown: dict[str, Verdict] = field(default_factory=dict)
    """The verdicts that are recorded as open, by id."""


class Watch:
    """Watches the configured workloads. `ingest` from any thread; everything else happens in one thread of its own."""

    def __init__(
        self,
        workloads: Sequence[WorkloadSettings],
        *,
        bin_seconds: float,
        evacuator: Evacuator,
        verdicts: VerdictLog,
        hub: Hub,
        clock: Clock,
    ) -> None:
        self._watched = {
            settings.name: _Watched(
                settings,
                tuple(Zone(zone) for zone in settings.zones),
                ThresholdDetector(
                    ThresholdOptions(
                        fault_share=settings.thresholds.fault_share,
                        latency=settings.thresholds.latency,
                        minimum_requests=settings.thresholds.minimum_requests,
                        minimum_instances=settings.thresholds.minimum_instances,
                        windows=settings.thresholds.windows,
                    )
                ),
            )
            for settings in workloads
        }
        for recorded in verdicts.open_ones():
            if recorded.workload in self._watched:
                # From before a restart: it closes with the first window, unless its zone is out or it is reached again.
                self._watched[recorded.workload].shown[recorded.id] = recorded.verdict()
        self._bins = Bins(bin_seconds)
        self._evacuator = evacuator
        self._verdicts = verdicts
        self._hub = hub
        self._clock = clock
        self._arrived: deque[Outcome] = deque(maxlen=HELD_OUTCOMES)
        self._due: deque[tuple[_Watched, Window]] = deque()
        self._pulse: dict[tuple[str, Zone], Bin] = {}
        self._pulsed = clock.wall()
        self._pulses: deque[dict[str, Any]] = deque(maxlen=KEPT_PULSES)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)

    def knows(self, outcome: Outcome) -> bool:
        """Whether the outcome belongs to a workload and a zone that are configured."""
        watched = self._watched.get(outcome.workload)
        return watched is not None and outcome.zone in watched.zones

    def ingest(self, outcomes: Iterable[Outcome]) -> None:
        """Take outcomes; returns at once."""
        self._arrived.extend(outcomes)

    def pulses(self) -> list[dict[str, Any]]:
        """What happened lately, second by second."""
        return list(self._pulses)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching. May be repeated."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        held_up = False
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self.tick()
            except Exception:
                # Most likely a store that is away: what is due stays due, and the next tick tries again.
                if not held_up:
                    logger.exception("watching is held up")
                held_up = True
            else:
                if held_up:
                    logger.warning("watching goes on")
                held_up = False

    def tick(self) -> None:
        """Count what arrived, and look at every bin that has become complete."""
        now = self._clock.wall()
        while self._arrived:
            outcome = self._arrived.popleft()
            self._bins.add(outcome, now)
            if outcome.side is Side.SERVER:
                self._pulse.setdefault((outcome.workload, outcome.zone), Bin()).add(outcome)
        if not 0 <= now - self._pulsed < PULSE_SECONDS:
            self._send_pulse(now)
        for start, bins in self._bins.complete(now):
            self._due.extend(
                (watched, window_of(watched.settings.name, watched.zones, start, self._bins.seconds, bins))
                for watched in self._watched.values()
            )
        while self._due:
            watched, window = self._due[0]
            if now - window.end > STALE_BINS * self._bins.seconds + GRACE_SECONDS:
                # It could not be looked at in time (a store was away): what it shows may long be over.
                logger.warning("a window of %s that ended at %.0f is too old to act on", window.workload, window.end)
                watched.state = replace(watched.state, rows={})
            else:
                self._look(watched, window)
            self._due.popleft()  # only now: a window whose verdict could not be stored is looked at again

    def _look(self, watched: _Watched, window: Window) -> None:
        """Let the detector look at a window, record what it says, and act on it."""
        out = self._evacuator.out(watched.settings.name) & frozenset(watched.zones)
        state, verdict = watched.detector.step(watched.state, window, out)
        now = self._clock.wall()
        for shown in [shown for shown in watched.shown.values() if shown.id != verdict.id and shown.zone not in out]:
            self._verdicts.close(shown.id, now)
            self._tell_verdict(shown, now, closed=True)
            del watched.shown[shown.id]
        if verdict.kind is not VerdictKind.HEALTHY:
            if verdict.id not in watched.shown:
                self._verdicts.open(verdict, now)
                self._tell_verdict(verdict, now, closed=False)
                watched.shown[verdict.id] = verdict
            self._evacuator.act(verdict, frozenset(watched.zones))
        watched.state = state

    def _tell_verdict(self, verdict: Verdict, at: float, *, closed: bool) -> None:
        logger.warning("verdict %s: %s %s", verdict.id, verdict.kind, "closed" if closed else "opened")
        self._tell("verdict", {"verdict": verdict, "at": at, "closed": closed})

    def _send_pulse(self, now: float) -> None:
        pulse = {
            "at": now,
            "workloads": {
                name: {zone: _reading(self._pulse.get((name, zone))) for zone in watched.zones}
                for name, watched in self._watched.items()
            },
        }
        self._pulse.clear()
        self._pulsed = now
        self._pulses.append(pulse)
        self._tell("pulse", pulse)

    def _tell(self, name: str, value: Any) -> None:
        self._hub.publish_threadsafe(name, msgspec.json.encode(value))


def _reading(counted: Bin | None) -> dict[str, float | int | None]:
    if counted is None:
        return {"requests": 0, "faults": 0, "latency": None}
    return {"requests": counted.requests, "faults": counted.faults, "latency": counted.successes.quantile(0.9)}

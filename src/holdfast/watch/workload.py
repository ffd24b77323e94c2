"""A workload that is watched: its zones, its detector, and what is known about it while the loop runs."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect import DETECTORS, Detector, build_detector
from holdfast.detect.detector import DEFAULT_DETECTOR, require_bin_seconds
from holdfast.telemetry import Bin, BinKey, SharedResource
from holdfast.watch.store import WatchStore

if TYPE_CHECKING:
    from holdfast.alarms.declaration import AlarmDeclaration
    from holdfast.watch.learning import HistoryLearner

STALE_STATE_BINS = 6
"""Bins after which a saved detector state is discarded, unless its class has a `max_age`: most states count consecutive
windows."""
NO_WHOLE_BIN = "there is no whole bin of measurements since the start of detection"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWorkload:
    """A workload, its zones, and its detector."""

    name: str
    zones: tuple[Zone, ...]
    detector: str = DEFAULT_DETECTOR
    """The registered name of the detector."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The detector's own settings."""
    may_evacuate: bool | None = None
    """Whether its verdicts take a zone out. Otherwise they advise. None means only those of the default detector."""
    alarms: "AlarmDeclaration | None" = None
    """The alarms that are evaluated, if the watcher keeps measurements. They only advise."""


class VerdictHandler(Protocol):
    """Knows the states of zones, and acts on verdicts: an EvacuationService, or the process that has one."""

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        """Return the state of each zone that is not in. Raise EngineUnavailable if the states are unknown."""

    def evacuate(self, verdict: Verdict, zones: frozenset[Zone]) -> object:
        """Act on a verdict about these zones of a workload. Raise Conflict if another zone is taken out meanwhile."""


@dataclass(slots=True)
class WatchedState:
    """The run-time state of one workload."""

    name: str
    zones: tuple[Zone, ...]
    detector_name: str
    detector: Detector[Any]
    state: Any
    watched_since: float
    """A bin that began before is incomplete: it cannot show that the workload is healthy."""
    current: Verdict
    """The verdict of the latest window."""
    may_evacuate: bool = False
    resources: Sequence[SharedResource] = ()
    open: dict[str, Verdict] = field(default_factory=dict)
    """The recorded open verdicts, by id."""
    zones_out: frozenset[Zone] | None = None
    """The zones without new traffic in the latest window; None before the first one."""
    evaluated_until: float | None = None
    """The end of the latest window that was evaluated."""
    pending: deque[tuple[float, Mapping[BinKey, Bin]]] = field(default_factory=deque)
    """Complete bins that the detector has not evaluated yet, each with its start."""
    learns: bool = False
    """Whether the detector needs to learn, and there was no saved state to continue with."""
    learned_seconds: float = 0.0
    """Seconds of stored measurements from before the start that it has learned from."""
    learner: "HistoryLearner | None" = None
    """Set while it learns from stored measurements. Live windows wait meanwhile."""


def start_workload(workload: WatchedWorkload, store: WatchStore, bin_seconds: float, now: float) -> WatchedState:
    """Return the state of a workload at the start of the loop. Its detector continues with a saved state if it can."""
    require_bin_seconds(workload.detector, bin_seconds)
    detector = build_detector(workload.detector, workload.options)
    kind = DETECTORS.get(workload.detector).state_type
    state, saved_at = store.load_state(workload.name, workload.detector, kind) or (kind(), None)
    max_age = getattr(kind, "max_age", STALE_STATE_BINS * bin_seconds)
    is_new = saved_at is None or not 0 <= now - saved_at <= max_age
    if not is_new and hasattr(state, "fits"):
        is_new = not state.fits(workload.zones, bin_seconds)
    if is_new:
        state = kind()
    return WatchedState(
        workload.name,
        workload.zones,
        workload.detector,
        detector,
        state,
        watched_since=now,
        current=build_unknown_verdict(workload.name, now, NO_WHOLE_BIN),
        may_evacuate=(
            workload.detector == DEFAULT_DETECTOR if workload.may_evacuate is None else workload.may_evacuate
        ),
        resources=() if workload.alarms is None else workload.alarms.list_resources(),
        learns=is_new and hasattr(kind, "max_age"),
    )


def build_unknown_verdict(workload: str, at: float, reason: str) -> Verdict:
    """Return the verdict for a time without enough measurements. It is not recorded."""
    return Verdict(
        id=f"{workload}/unknown/{at:.12g}", workload=workload, kind=VerdictKind.UNKNOWN, since=at, at=at, summary=reason
    )

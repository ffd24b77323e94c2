"""Explain the current verdict of a workload from the stores, beside the detection process that reaches it."""

from collections.abc import Sequence

from holdfast._errors import NotFound
from holdfast._types import StatusStore, Zone
from holdfast.config import WorkloadSettings
from holdfast.config.evacuation import EvacuationSettings
from holdfast.evacuate import EvacuationMode
from holdfast.evacuate.journal import RecordedRuns
from holdfast.status.writer import find_states
from holdfast.watch import WatchStore
from holdfast.watch.explanation import VerdictExplanation, explain_verdict


def explain_workload(
    wanted: str | None,
    *,
    workloads: Sequence[WorkloadSettings],
    evacuation: EvacuationSettings,
    store: WatchStore,
    statuses: StatusStore,
    runs: RecordedRuns,
    now: float,
) -> VerdictExplanation:
    """Return the explanation of the verdict of the latest window. `runs` are those of the journal.

    Raise NotFound for an unknown workload, if several are configured and none is named, or before the first verdict.
    """
    from holdfast.watch.alarm_report import choose_workload  # imports NumPy

    name = choose_workload([each.name for each in workloads], wanted)
    zones = next(each.zones for each in workloads if each.name == name)
    found = store.load_current(name)
    if found is None:
        raise NotFound(f"there is no verdict about {name} yet: wait until the server has evaluated its first window")
    detector, verdict = found
    return explain_verdict(
        verdict,
        detector=detector,
        zones=[Zone(zone) for zone in zones],
        states=find_states(statuses.read(), name, now),
        may_evacuate=detector in evacuation.detectors,
        mode=EvacuationMode(evacuation.mode),
        runs=runs,
        now=now,
    )

"""The result of a replay, and its form as plain values for JSON. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast._types import Zone
from holdfast.replay.judges import ReplayedVerdict
from holdfast.replay.score import JudgeScore
from holdfast.replay.tables import Label


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """The verdicts of a run, and the recording that they are about."""

    verdicts: list[ReplayedVerdict]
    judges: tuple[str, ...]
    zones: Mapping[str, tuple[Zone, ...]]
    """The zones of each workload."""
    start: float
    end: float
    seconds: float
    """Length of a bin."""
    bins: int
    bins_without_data: int
    arrivals: Mapping[float, float]
    """When the rows of a bin had arrived, by its start, where that was after its end."""
    rows: int
    bad_rows: int
    lost_requests: int
    notes: list[str]
    reading_seconds: float
    alarm_seconds: float
    detection_seconds: float
    elapsed_seconds: float


def build_report(result: ReplayResult, scores: Sequence[JudgeScore], *, has_labels: bool) -> dict[str, Any]:
    """Return one document. `docs/how-to/replay.md` lists its fields."""
    return {
        "start": result.start,
        "end": result.end,
        "bin_seconds": result.seconds,
        "bins": result.bins,
        "bins_without_data": result.bins_without_data,
        "rows": result.rows,
        "bad_rows": result.bad_rows,
        "lost_requests": result.lost_requests,
        "zones": result.zones,
        "notes": result.notes,
        "seconds": {
            "total": round(result.elapsed_seconds, 3),
            "reading": round(result.reading_seconds, 3),
            "alarms": round(result.alarm_seconds, 3),
            "detection": round(result.detection_seconds, 3),
        },
        "verdicts": [_show_verdict(each) for each in result.verdicts],
        "judges": [_show_score(each, has_labels=has_labels) for each in scores],
    }


def _show_verdict(verdict: ReplayedVerdict) -> dict[str, Any]:
    names = "judge", "workload", "kind", "zone", "resource", "instances", "since", "opened", "closed", "summary"
    return {name: getattr(verdict, name) for name in names}


def _show_score(score: JudgeScore, *, has_labels: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "judge": score.judge,
        "isolations": score.isolations,
        "false": len(score.false),
        "false_per_week": round(score.false_per_week, 3),
    }
    if has_labels:
        shown |= {
            **score.counts,
            "wrong_isolations": score.wrong,
            "median_delay": score.median_delay,
            "median_delay_from_arrival": score.median_delay_from_arrival,
            "labels": [
                {
                    **_show_label(each.label),
                    "result": each.result,
                    "delay": each.delay,
                    "delay_from_arrival": each.delay_from_arrival,
                }
                for each in score.labels
            ],
        }
    return shown


def _show_label(label: Label) -> Mapping[str, Any]:
    return {
        "start": label.start,
        "end": None if label.end == math.inf else label.end,
        "kind": label.kind,
        "zone": label.zone,
        "resource": label.resource,
        "instance": label.instance,
    }

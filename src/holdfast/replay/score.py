"""Score the verdicts of a replay against labels of known failures. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from holdfast._types import VerdictKind, Zone
from holdfast.replay.judges import ReplayedVerdict
from holdfast.replay.tables import EXPECTED, Label

WEEK = 604_800.0
RIGHT, WRONG, MISSED, NONE_EXPECTED = "right", "wrong", "missed", "none expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelScore:
    """The result of one judge for one label."""

    label: Label
    result: str
    """right, wrong (another zone was isolated, and the right one was not), missed, or none expected."""
    delay: float | None = None
    """Seconds from the start of the failure to the right verdict."""
    delay_from_arrival: float | None = None
    """Seconds from the arrival of the first measurements of the failure to the right verdict."""
    wrong: Sequence[ReplayedVerdict] = ()
    """Isolations of another zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeScore:
    """The result of one judge."""

    judge: str
    labels: Sequence[LabelScore]
    false: Sequence[ReplayedVerdict]
    """Isolations without a label of a failing zone at their time."""
    isolations: int
    weeks: float

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of labels by result."""
        found = Counter(each.result for each in self.labels)
        return {name: found[name] for name in (RIGHT, WRONG, MISSED)}

    @property
    def wrong(self) -> int:
        """Isolations of a wrong zone, also beside a right one."""
        return sum(len(each.wrong) for each in self.labels)

    @property
    def false_per_week(self) -> float:
        return len(self.false) / self.weeks if self.weeks else 0.0

    @property
    def median_delay(self) -> float | None:
        return self._find_median([each.delay for each in self.labels])

    @property
    def median_delay_from_arrival(self) -> float | None:
        return self._find_median([each.delay_from_arrival for each in self.labels])

    def _find_median(self, delays: Sequence[float | None]) -> float | None:
        known = [each for each in delays if each is not None]
        return median(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The time that was replayed."""

    start: float
    end: float
    seconds: float
    """Length of a bin."""
    arrivals: Mapping[float, float]
    """When the rows of a bin had arrived, by its start, where that was after its end."""

    def find_arrival(self, at: float) -> float:
        """Return when the measurements of the time `at` had arrived."""
        start = at // self.seconds * self.seconds
        return max(start + self.seconds, self.arrivals.get(start, start + self.seconds))


def find_label_notes(labels: Sequence[Label], zones: Mapping[str, Sequence[Zone]]) -> list[str]:
    """Return notes about labels that expect no verdict, and labels of zones that were not replayed."""
    known = sorted({zone for each in zones.values() for zone in each})
    unknown = sorted({label.zone for label in labels if label.zone is not None and label.zone not in known})
    others = sorted({label.kind for label in labels if label.kind not in EXPECTED})
    notes = [f"labels of the kind {each} expect no verdict" for each in others]
    return [*notes, *(f"labels name the zone {each}, which was not replayed: {', '.join(known)}" for each in unknown)]


def score_judge(
    judge: str, verdicts: Sequence[ReplayedVerdict], labels: Sequence[Label], recording: Recording
) -> JudgeScore:
    """Compare the verdicts of one judge with labels. Verdicts of other judges are ignored."""
    own = [each for each in verdicts if each.judge == judge]
    scores = [_score_label(label, own, recording) for label in labels]
    zonal = [label for label in labels if label.kind in ("isolated", "unknown")]
    isolations = [each for each in own if each.kind is VerdictKind.ISOLATED]
    false = [each for each in isolations if not any(_is_about(each, label) for label in zonal)]
    weeks = (recording.end - recording.start) / WEEK
    return JudgeScore(judge=judge, labels=scores, false=false, isolations=len(isolations), weeks=weeks)


def _score_label(label: Label, verdicts: Sequence[ReplayedVerdict], recording: Recording) -> LabelScore:
    if label.kind not in EXPECTED:
        return LabelScore(label=label, result=NONE_EXPECTED)
    about = [each for each in verdicts if _is_about(each, label)]
    right = next((each for each in about if _is_right(each, label)), None)
    wrong: list[ReplayedVerdict] = []
    if label.zone is not None and label.kind in ("isolated", "unknown"):
        wrong = [each for each in about if each.kind is VerdictKind.ISOLATED and each.zone != label.zone]
    if right is None:
        return LabelScore(label=label, result=WRONG if wrong else MISSED, wrong=wrong)
    opened = max(right.opened, label.start)
    arrival = recording.find_arrival(label.start)
    return LabelScore(
        label=label,
        result=RIGHT,
        delay=opened - label.start,
        delay_from_arrival=max(0.0, opened - arrival),
        wrong=wrong,
    )


def _is_about(verdict: ReplayedVerdict, label: Label) -> bool:
    """Return whether a label may be the cause of a verdict: it opens after its start, about a failure before its end.

    An isolation of the zone that was open before continues, if its zone fails again.
    """
    if verdict.opened <= label.start:
        is_open = verdict.closed is None or verdict.closed > label.start
        return is_open and verdict.kind is VerdictKind.ISOLATED and verdict.zone == label.zone
    return min(verdict.since, verdict.opened) <= label.end


def _is_right(verdict: ReplayedVerdict, label: Label) -> bool:
    if verdict.kind is VerdictKind.ISOLATED:
        # A second path may show that a silent zone is lost.
        return label.kind in ("isolated", "unknown") and verdict.zone == label.zone
    if verdict.kind != label.kind:
        return False
    if label.kind == "shared":
        return label.resource is None or verdict.resource is None or verdict.resource == label.resource
    if label.kind == "instance" and label.instance is not None and verdict.instances:
        return label.instance in verdict.instances
    return label.zone is None or verdict.zone is None or verdict.zone == label.zone

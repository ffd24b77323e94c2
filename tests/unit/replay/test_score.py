"""A run is scored against labels: right, wrong, missed and false."""

from typing import Any

from holdfast._types import VerdictKind, Zone
from holdfast.replay.judges import ReplayedVerdict
from holdfast.replay.report import ReplayResult, build_report
from holdfast.replay.score import WEEK, Recording, find_label_notes, score_judge
from holdfast.replay.tables import Label
from tests.table import rows

ONE, TWO = Zone("z1"), Zone("z2")
RECORDING = Recording(start=0, end=2 * WEEK, seconds=10, arrivals={100: 112.0})


def verdict(opened: float, closed: float | None = None, kind: str = "isolated", **more: Any) -> ReplayedVerdict:
    fields: dict[str, Any] = {"zone": ONE, "since": opened - 15, **more}
    return ReplayedVerdict(judge="d", workload="shop", kind=VerdictKind(kind), opened=opened, closed=closed, **fields)


def label(start: float, end: float, kind: str = "isolated", **more: Any) -> Label:
    return Label(start=start, end=end, kind=kind, **({"zone": ONE} | more))


@rows(
    ("found", "expected", "result"),
    [
        ([verdict(130)], label(100, 200), "right"),
        ([], label(100, 200), "missed"),
        ([verdict(130, zone=TWO)], label(100, 200), "wrong"),
        ([verdict(90, 95)], label(100, 200), "missed"),
        ([verdict(90, 150)], label(100, 200), "right"),  # it fails again before the verdict closes
        ([verdict(90)], label(100, 200), "right"),
        ([verdict(90, zone=TWO)], label(100, 200), "missed"),
        ([verdict(230, since=215)], label(100, 200), "missed"),
        ([verdict(210, since=195)], label(100, 200), "right"),
        ([verdict(130, kind="regional", zone=None)], label(100, 200), "missed"),
        ([verdict(130, kind="regional", zone=None)], label(100, 200, "regional", zone=None), "right"),
        ([verdict(130)], label(100, 200, "regional", zone=None), "missed"),
        ([verdict(130, kind="unknown", zone=ONE)], label(100, 200, "unknown"), "right"),
        ([verdict(130, kind="unknown", zone=TWO)], label(100, 200, "unknown"), "missed"),
        ([verdict(130)], label(100, 200, "unknown"), "right"),
        ([verdict(130, zone=TWO)], label(100, 200, "unknown"), "wrong"),
        ([verdict(130, kind="shared", resource="db")], label(100, 200, "shared", resource="db"), "right"),
        ([verdict(130, kind="shared", resource="db")], label(100, 200, "shared", resource="q"), "missed"),
        ([verdict(130, kind="instance", instances=("i",))], label(100, 200, "instance", instance="i"), "right"),
        ([verdict(130, kind="instance", instances=("i",))], label(100, 200, "instance", instance="j"), "missed"),
        ([verdict(130, kind="instance")], label(100, 200, "instance", instance="j"), "right"),
        ([verdict(130)], label(100, 200, "deploy"), "none expected"),
    ],
)
def test_a_label_has_a_result(found: list[ReplayedVerdict], expected: Label, result: str) -> None:
    score = score_judge("d", found, [expected], RECORDING)
    assert score.labels[0].result == result


def test_delays_count_from_the_start_and_from_the_arrival_of_the_data() -> None:
    found = [verdict(130, 400), verdict(1045), verdict(2000, zone=TWO)]
    labels = [label(100, 200), label(1000, 1100), label(2000 - 5, 2100, zone=TWO)]
    score = score_judge("d", found, labels, RECORDING)
    assert [each.delay for each in score.labels] == [30, 45, 5]
    assert [each.delay_from_arrival for each in score.labels] == [18, 35, 0]
    assert (score.median_delay, score.median_delay_from_arrival) == (30, 18)
    assert score_judge("other", found, labels, RECORDING).median_delay is None


def test_isolations_outside_of_failing_zones_are_false() -> None:
    found = [verdict(130), verdict(140, zone=TWO), verdict(500), verdict(900), verdict(950, kind="regional")]
    labels = [label(100, 200), label(880, 920, "regional", zone=None), label(490, 510, "deploy")]
    score = score_judge("d", found, labels, RECORDING)
    assert [each.opened for each in score.false] == [500, 900]
    assert (score.wrong, score.isolations, score.false_per_week) == (1, 4, 1.0)
    assert score.counts == {"right": 1, "wrong": 0, "missed": 1}
    nothing = Recording(start=0, end=0, seconds=10, arrivals={})
    assert score_judge("d", found, labels, nothing).false_per_week == 0


def test_the_report_is_plain_and_has_scores_only_with_labels() -> None:
    result = ReplayResult(
        verdicts=[verdict(130)],
        judges=("d",),
        zones={"shop": (ONE, TWO)},
        start=0,
        end=WEEK,
        seconds=10,
        bins=3,
        bins_without_data=1,
        arrivals={},
        rows=5,
        bad_rows=0,
        lost_requests=0,
        notes=["note"],
        reading_seconds=1,
        alarm_seconds=1,
        detection_seconds=1,
        elapsed_seconds=2,
    )
    scores = [score_judge("d", result.verdicts, [label(100, float("inf"))], RECORDING)]
    report = build_report(result, scores, has_labels=True)
    assert report["verdicts"][0]["zone"] == "z1"
    assert (
        report["judges"][0]["labels"][0] | {"start": 100, "end": None, "result": "right", "delay": 30}
        == (report["judges"][0]["labels"][0])
    )
    assert report["judges"][0]["right"] == 1
    assert build_report(result, scores, has_labels=False)["judges"] == [
        {"judge": "d", "isolations": 1, "false": 0, "false_per_week": 0.0}
    ]


def test_notes_name_labels_that_expect_nothing_and_zones_that_were_not_replayed() -> None:
    zones = {"shop": (ONE,), "other": (TWO,)}
    assert find_label_notes([label(100, 200), label(100, 200, "regional", zone=None)], zones) == []
    found = find_label_notes([label(100, 200, "deploy"), label(100, 200, zone=Zone("z9"))], zones)
    assert found == [
        "labels of the kind deploy expect no verdict",
        "labels name the zone z9, which was not replayed: z1, z2",
    ]

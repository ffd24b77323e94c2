"""Verdicts of a replay open and close as in the live loop, and alarms beside them."""

from collections.abc import Sequence

import pytest

from holdfast._errors import InvalidValue
from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.alarms.declaration import AlarmDeclaration, AlarmOptions
from holdfast.replay.alarm_judge import AlarmJudge
from holdfast.replay.judges import DetectorJudge, VerdictLog
from holdfast.replay.timeline import Timeline
from holdfast.replay.windows import WindowBuilder
from holdfast.telemetry.window import Window
from tests.unit.replay import recorded
from tests.unit.replay.recorded import START, read, write_lines

ZONES = tuple(map(Zone, recorded.ZONES))


def build_windows(lines: Sequence[str]) -> list[Window]:
    _, rows, labels = read("\n".join(lines))
    timeline, builder = Timeline(10.0), WindowBuilder("shop", ZONES)
    list(timeline.add(rows, 0.0))
    return [builder.build(each, labels.keys) for each in timeline.finish()]


def test_a_detector_judges_every_window() -> None:
    judge = DetectorJudge("threshold", {})
    for window in build_windows(list(write_lines(12, failing=range(4, 9)))):
        judge.judge(window)
    (found,) = judge.log.found
    assert (found.judge, found.kind, found.zone, found.workload) == ("threshold", "isolated", ZONES[1], "shop")
    assert found.opened - START in (50, 60, 70)
    assert found.closed is not None
    assert found.closed - START in (100, 110, 120)


def verdict(
    number: int, kind: VerdictKind = VerdictKind.ISOLATED, zone: Zone | None = ZONES[0], **more: object
) -> Verdict:
    return Verdict(id=str(number), workload="shop", kind=kind, since=0, at=0, zone=zone, **more)  # type: ignore[arg-type]


def test_verdicts_close_when_another_one_or_health_follows() -> None:
    full = build_windows(list(write_lines(1)))[0]
    empty = Window(workload="shop", start=START, seconds=10.0, zones=ZONES)
    out = Window(workload="shop", start=START, seconds=10.0, zones=ZONES, states={ZONES[0]: ZoneState.OUT})
    healthy, log = verdict(0, VerdictKind.HEALTHY, None), VerdictLog("toy")
    log.note(verdict(1), full)
    log.note(healthy, empty)  # without data, nothing is known to have ended
    assert [each.closed for each in log.found] == [None]
    log.note(verdict(2), full)  # the same failure under another id
    assert len(log.found) == 1
    log.note(verdict(3, zone=ZONES[1]), out)  # its zone is out: it stays open
    assert [each.closed for each in log.found] == [None, None]
    log.note(verdict(3, zone=ZONES[1]), full)
    assert [each.closed for each in log.found] == [START + 10, None]
    log.note(healthy, full)
    assert [each.closed for each in log.found] == [START + 10, START + 10]
    log.close("never opened", 5.0)


def test_a_verdict_about_instances_names_them() -> None:
    window, log = build_windows(list(write_lines(1)))[0], VerdictLog("toy")
    log.note(verdict(1, VerdictKind.INSTANCE, evidence={ZONES[0]: {"worst_instances": ["i-1"]}}), window)
    log.note(verdict(2, VerdictKind.INSTANCE, ZONES[1], evidence={}), window)
    log.note(verdict(3, evidence={ZONES[0]: {"worst_instances": ["i-1"]}}), window)
    assert [each.instances for each in log.found] == [("i-1",), (), ()]


def judge_alarms(lines: Sequence[str], *, period: int = 60, has_instances: bool = True) -> VerdictLog:
    _, rows, labels = read("\n".join(lines))
    timeline, builder = Timeline(10.0), WindowBuilder("shop", ZONES)
    list(timeline.add(rows, 0.0))
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, options=AlarmOptions(period=period))
    judge = AlarmJudge(declaration, builder, 10.0, has_instances=has_instances)
    for each in timeline.finish():
        judge.judge(each, labels.keys, frozenset())
    return judge.log


def test_an_alarm_about_an_isolated_zone_counts_as_its_verdict() -> None:
    lines = list(write_lines(84, failing=range(18, 48), instances=("a", "b", "c"), operations=1, requests=200))
    (found,) = judge_alarms(lines).found
    assert (found.judge, found.kind, found.zone) == ("alarms", "isolated", ZONES[1])
    assert found.opened == START + 180 + 180
    assert found.since == found.opened - 180
    assert found.closed is not None


def test_without_instances_the_alarm_below_counts() -> None:
    lines = list(write_lines(30, failing=range(6, 26), operations=1, requests=200))
    assert judge_alarms(lines).found == []
    (found,) = judge_alarms(lines, has_instances=False).found
    assert found.summary == "the alarm use1-az2-aggregate-alarm is in ALARM"
    assert found.closed is None


def test_a_gap_without_data_leaves_alarms_as_they_are() -> None:
    lines = list(write_lines(36, failing=range(6, 26), operations=1, requests=200))
    gap = range(START + 250, START + 290)
    (found,) = judge_alarms(
        [line for line in lines if line[0] == "t" or int(line[:10]) not in gap], has_instances=False
    ).found
    assert found.zone == ZONES[1]


def test_alarms_may_have_the_period_of_a_bin() -> None:
    lines = list(write_lines(12, failing=range(4, 9), operations=1, requests=200))
    (found,) = judge_alarms(lines, period=10, has_instances=False).found
    assert found.opened == START + 70


def test_late_rows_count_for_alarms_once_they_have_arrived() -> None:
    def delay(line: str) -> str:
        at, _, rest = line.partition(",")
        if at == "time":
            return f"time,arrived,{rest}"
        second = int(at) - START
        is_late = "use1-az2" in line and second % 60 >= 30
        return f"{at},{int(at) + (50 if is_late else 11)},{rest}"

    lines = list(write_lines(30, failing=range(6, 26), operations=1, requests=200))
    on_time = judge_alarms(lines, has_instances=False).found
    late = judge_alarms([delay(line) for line in lines], has_instances=False).found
    assert [each.zone for each in late] == [each.zone for each in on_time] == [ZONES[1]]


def test_bins_that_do_not_fit_the_period_of_alarms_are_refused() -> None:
    declaration = AlarmDeclaration(workload="shop", zones=ZONES)
    with pytest.raises(InvalidValue, match="period"):
        AlarmJudge(declaration, WindowBuilder("shop", ZONES), 300.0)

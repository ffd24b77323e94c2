"""Verdicts of a detector are compared with the labels of a scenario."""

from collections.abc import Iterator
from typing import Any

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.simulate.zones.outcome import VerdictSpan, find_labels, run_detector
from holdfast.simulate.zones.scenario import Label
from holdfast.telemetry.window import Window
from tests.table import rows

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")
HEALTHY, ISOLATED, SHARED = VerdictKind.HEALTHY, VerdictKind.ISOLATED, VerdictKind.SHARED


class Scripted:
    """A detector that gives verdicts in a fixed order. Its state is the number of windows."""

    def __init__(self, *script: tuple[VerdictKind, Zone | None]) -> None:
        self.script = script

    def step(self, state: int, window: Window) -> tuple[int, Verdict]:
        kind, zone = self.script[state]
        summary = f"verdict {state}"
        return state + 1, Verdict(
            id=str(state), workload="shop", kind=kind, zone=zone, since=window.start, at=window.end, summary=summary
        )


def windows(count: int) -> Iterator[Window]:
    return (Window(workload="shop", start=10.0 * number, seconds=10.0, zones=(ONE, TWO)) for number in range(count))


def test_equal_verdicts_that_follow_each_other_are_one_and_healthy_ones_are_left_out() -> None:
    script = [(HEALTHY, None), (ISOLATED, ONE), (ISOLATED, ONE), (ISOLATED, TWO), (HEALTHY, None), (ISOLATED, TWO)]
    spans = run_detector(Scripted(*script), 0, windows(6))
    assert [(each.zone, each.start, each.end, each.summary) for each in spans] == [
        (ONE, 20, 30, "verdict 1"),
        (TWO, 40, 40, "verdict 3"),
        (TWO, 60, 60, "verdict 5"),
    ]


def test_no_windows_give_no_verdicts() -> None:
    assert run_detector(Scripted(), 0, windows(0)) == []


def span(
    kind: VerdictKind = ISOLATED, zone: Zone | None = ONE, start: float = 120, end: float = 130, **more: Any
) -> VerdictSpan:
    return VerdictSpan(kind=kind, zone=zone, resource=more.get("resource"), start=start, end=end, summary="")


ZONE_LABEL = Label(start=100, end=200, kind=ISOLATED, zone=ONE)
REGIONAL_LABEL = Label(start=100, end=200, kind=VerdictKind.REGIONAL)
SHARED_LABEL = Label(start=100, end=200, kind=SHARED, zone=ONE, resource="database")
INSTANCE_LABEL = Label(start=100, end=200, kind=VerdictKind.INSTANCE, zone=ONE, instance="one")
SILENT_LABEL = Label(start=100, end=200, kind=VerdictKind.UNKNOWN, zone=ONE)


@rows(
    ("label", "spans", "delay"),
    [
        (ZONE_LABEL, [], None),
        (ZONE_LABEL, [span()], 20),
        (ZONE_LABEL, [span(start=150), span(start=120)], 20),
        (ZONE_LABEL, [span(start=80, end=150)], 0),
        (ZONE_LABEL, [span(zone=TWO)], None),
        (ZONE_LABEL, [span(zone=None)], None),
        (ZONE_LABEL, [span(kind=VerdictKind.INSTANCE)], None),
        (ZONE_LABEL, [span(start=50, end=100)], None),
        (ZONE_LABEL, [span(start=200, end=300)], 100),
        (ZONE_LABEL, [span(start=210, end=300)], None),
        (REGIONAL_LABEL, [span(kind=VerdictKind.REGIONAL, zone=None)], 20),
        (SHARED_LABEL, [span(kind=SHARED, zone=None, resource="database")], 20),
        (SHARED_LABEL, [span(kind=SHARED, zone=None, resource="cache")], None),
        (SHARED_LABEL, [span(kind=SHARED, zone=TWO, resource="database")], None),
        (INSTANCE_LABEL, [span(kind=VerdictKind.INSTANCE)], 20),
        (INSTANCE_LABEL, [span(kind=VerdictKind.INSTANCE, zone=TWO)], None),
        (SILENT_LABEL, [span(kind=VerdictKind.UNKNOWN, zone=None)], 20),
    ],
)
def test_a_label_is_found_by_the_first_right_verdict_in_its_time(
    label: Label, spans: list[VerdictSpan], delay: float | None
) -> None:
    [found] = find_labels([label], spans)
    assert (found.label, found.delay) == (label, delay)

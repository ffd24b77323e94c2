"""The picture of a run has a row for each instance, and a box for each state, and says more than colours do."""

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.simulate.aurora import OLD_CLASS, TARGET_CLASS, Scenario, SimulatedRun
from holdfast.simulate.aws.lifecycle import InstanceState, PublishedMessage, Snapshot, StateVisit
from holdfast.simulate.run_picture import draw_run

SVG = "{http://www.w3.org/2000/svg}"
PATH = [
    *((0.0, "ValidateInput"), (0.0, "CheckInput"), (0.0, "GetClusterState"), (0.0, "ScaleDedicatedReader")),
    *((0.0, "WaitForDedicatedReader"), (600.0, "ChooseDedicatedReaderStep"), (600.0, "ScaleDedicatedReader")),
    *((1200.0, "RememberOldWriter"), (1200.0, "IsFailoverNeeded"), (1300.0, "ScaleDedicatedReader")),
    *((1800.0, "OverallRetryError"), (1800.0, "ReleaseLockAfterError")),
]


def make_run(*, seconds: float = 1800.0, is_notified: bool = True) -> SimulatedRun:
    writer, reader = InstanceState(OLD_CLASS, "available", True), InstanceState(OLD_CLASS, "available", False)
    changed = InstanceState(TARGET_CLASS, "available", False)
    return SimulatedRun(
        scenario=Scenario(),
        status="FAILED",
        seconds=seconds,
        path=tuple(StateVisit(min(at, seconds), name) for at, name in PATH),
        notifications=(PublishedMessage(seconds, "scaling <failed>", ""),) if is_notified else (),
        snapshots=(
            Snapshot(0.0, "available", {"w": writer, "d": reader}),
            Snapshot(20.0, "available", {"w": writer, "d": InstanceState(OLD_CLASS, "modifying", False)}),
            Snapshot(700.0, "available", {"w": writer, "d": changed}),
            Snapshot(700.0, "available", {"w": writer, "d": changed, "a": reader}),
            Snapshot(2000.0, "available", {"w": reader}),
        ),
        calls=(),
        event_count=9,
        is_locked=False,
    )


def test_a_run_has_rows_of_instances_and_boxes_of_all_states_with_their_visits() -> None:
    drawn = ElementTree.fromstring(draw_run(make_run()))
    words = [each.text or "" for each in drawn.iter(f"{SVG}text")]
    assert words[0] == "FAILED after 30 minutes: scaling <failed>"
    assert {"w", "d", "a", "step of the run"} <= set(words)
    assert {f"{OLD_CLASS} writer", f"{TARGET_CLASS} reader", "modifying"} <= set(words)
    definition = build_machine(Resources(functions={each: each for each in Function}, lock_table=""))
    inner = definition["States"]["ProcessAutoScalingReaders"]["ItemProcessor"]["States"]
    shown = {word.rpartition(". ")[2].partition(" x")[0] for word in words}
    assert shown >= {*definition["States"], *inner}
    assert {"1. ValidateInput", "4. ScaleDedicatedReader x3", "ScalingSucceeded"} <= set(words)
    kinds = [each.get("class", "") for each in drawn.iter(f"{SVG}rect")]
    assert {"writer old", "busy", "", "seen", "unseen old"} <= set(kinds)
    edges = [each for each in drawn.iter(f"{SVG}path") if each.get("class") == "edge"]
    assert len(edges) == len(set(pairwise(PATH)))
    hints = [each.text for each in drawn.iter(f"{SVG}title")]
    assert "modifying, 0.3 to 11.7 min" in hints
    assert "20 s db.r6g.large reader modifying" in (drawn.findtext(f"{SVG}desc") or "")


def test_a_long_id_is_shortened_and_a_run_of_no_time_has_one_label_on_its_axis() -> None:
    reader = InstanceState(OLD_CLASS, "available", True)
    name = "application-autoscaling-00000001-0000-4000-8000-000000000000"
    run = replace(make_run(seconds=0.0), snapshots=(Snapshot(0.0, "available", {name: reader}),))
    words = [each.text for each in ElementTree.fromstring(draw_run(run)).iter(f"{SVG}text")]
    assert "autoscaling-00000001..00" in words
    assert words.count("0 min") == 1


def test_a_run_that_ends_at_once_is_drawn_too() -> None:
    drawn = draw_run(make_run(seconds=0.0, is_notified=False))
    assert "FAILED after 0 minutes: no notification" in drawn
    ElementTree.fromstring(drawn)

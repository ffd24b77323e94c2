"""Why a zone is isolated, or not yet."""

from dataclasses import replace
from typing import Any

from holdfast import Operation, Side, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect import DETECTORS, build_detector
from holdfast.detect.findings import Guard, Signal
from holdfast.evacuate import EvacuationMode
from holdfast.evacuate.journal import RecordedRuns, Run, RunState
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey, SharedResource, build_window
from holdfast.watch.explanation import VerdictExplanation, explain_verdict
from tests.table import every_row

ZONES = (Zone("az1"), Zone("az2"), Zone("az3"))
HOME = Operation("Home", "Index")
QUERY = Operation("db", "query")


def follow(detector: str, faults: list[int], *, learning: int = 190) -> list[Verdict]:
    """Return the verdicts of windows with these numbers of faults of 100 requests in az2, after some without any."""
    state: Any = DETECTORS.get(detector).state_type()
    found = []
    for number, failed in enumerate([0] * learning + faults):
        bins = {}
        for zone in ZONES:
            for operation, side in ((HOME, Side.SERVER), (QUERY, Side.CLIENT)):
                count = failed if zone == "az2" and side is Side.SERVER else 0
                latencies = Histogram.of([0.01 + each / 9000 for each in range(100 - count)])
                measured = Bin(count_2xx=100 - count, count_5xx=count, faults=count, success_seconds=latencies)
                bins[BinKey("shop", operation, zone, "i-1", side)] = measured
        resources = [SharedResource("orders", (QUERY,), Zone("az1"))]
        window = build_window("shop", ZONES, 10.0 * number, 10.0, bins, resources=resources)
        state, verdict = build_detector(detector, {}).step(state, window)
        found.append(verdict)
    return found


def explain(verdict: Verdict, detector: str = "calibrated", **changes: Any) -> VerdictExplanation:
    options: dict[str, Any] = {
        "zones": ZONES,
        "states": {},
        "may_evacuate": True,
        "mode": EvacuationMode.AUTOMATIC,
        "runs": RecordedRuns(0, ()),
        "now": verdict.at,
        **changes,
    }
    return explain_verdict(verdict, detector=detector, **options)


def test_evidence_of_real_windows_is_explained_by_zone_and_signal() -> None:
    waiting, *_, isolating = follow("calibrated", [7, 40, 40, 40])[190:]
    found = explain(waiting)
    assert [zone.zone for zone in found.zones] == list(ZONES)
    assert [signal.signal for signal in found.zones[1].signals] == [str(each) for each in Signal]
    faults = found.zones[1].signals[0]
    assert 0 < faults.evidence < faults.needed
    assert faults.share == round(faults.evidence / faults.needed, 3)
    assert (faults.operation, faults.held_back) == ("Home/Index", str(Guard.EVIDENCE))
    assert faults.since is not None
    assert 1890 <= faults.since <= 1910
    assert "nats (" in faults.sentence
    assert ", since 00:31:" in faults.sentence
    assert faults.sentence.endswith(
        "; held back: there is too little evidence; needs: more affected requests, or the same for longer"
    )
    assert found.zones[1].sentence == f"az2: {faults.sentence}"
    assert found.zones[0].signals[0].sentence == "faults: no evidence"
    assert found.zones[0].signals[0].since is None
    assert found.zones[1].measured["requests"] == 200
    [resource] = found.resources
    assert (resource.resource, resource.observability, resource.affected_zones) == ("orders", "healthy", [])
    assert resource.meaning == "neither its consumers nor its own monitoring see a failure"
    assert isolating.kind is VerdictKind.ISOLATED
    certain = explain(isolating).zones[1].signals[0]
    assert (certain.held_back, certain.lifted_by) == (None, None)
    assert certain.share >= 1
    assert certain.sentence.endswith("; isolates the zone")


def test_signals_that_are_not_evaluated_say_why() -> None:
    """A zone that is out has no traffic, and a detector that still learns has nothing to compare with."""
    learning = explain(follow("calibrated", [], learning=3)[-1])
    assert learning.zones[0].signals[0].sentence == f"faults: not evaluated: {Guard.LEARNING}"
    needed = {"needed": 7.0, "operation": "a/b", "held_back": str(Guard.EVIDENCE)}
    evidence = {"az2": {"faults": {"evidence": 0.0, **needed}, "throughput": {"evidence": 3.0, **needed}}}
    verdict = Verdict(id="v", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=10.0, evidence=evidence)
    for state in (ZoneState.OUT, ZoneState.DRAINING):
        found = explain(verdict, states={Zone("az2"): state}).zones[1]
        assert [each.sentence for each in found.signals] == [
            f"{name}: not evaluated while the zone is {state}" for name in ("faults", "throughput")
        ]
    returning = explain(verdict, states={Zone("az2"): ZoneState.RETURNING}).zones[1]
    assert returning.signals[0].sentence == "faults: no evidence"


def test_a_detector_without_evidence_is_explained_by_its_measurements() -> None:
    *_, verdict = follow("threshold", [40, 40], learning=1)
    found = explain(verdict, "threshold")
    assert found.resources == []
    assert found.zones[1].signals == []
    assert found.zones[1].sentence.startswith("az2: requests 100, ")
    assert "fault rate 0.4" in found.zones[1].sentence


def test_the_evacuation_or_the_reason_against_it_is_told() -> None:
    isolated = Verdict(id="v", workload="shop", kind=VerdictKind.ISOLATED, zone=Zone("az2"), since=0.0, at=10.0)
    healthy = Verdict(id="v", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=10.0)
    run = Run(id="hf-1", zone=Zone("az2"), by="me", reason="test", started=5.0, state=RunState.RESTORED)
    rows: list[tuple[Verdict, dict[str, Any], str]] = [
        (healthy, {}, "not evacuated: only a verdict of kind isolated evacuates a zone"),
        (isolated, {}, "evacuation next: the server evacuates az2"),
        (isolated, {"states": {Zone("az2"): ZoneState.OUT}}, "evacuation done: az2 is out"),
        (isolated, {"states": {Zone("az2"): ZoneState.DRAINING}}, "evacuation begun: az2 is draining"),
        (isolated, {"states": {Zone("az2"): ZoneState.OUT}, "may_evacuate": False}, "evacuation done: az2 is out"),
        (
            isolated,
            {"states": {Zone("az3"): ZoneState.OUT}},
            "not evacuated: other-zone: az3 is out: a second zone must not",
        ),
        (replace(isolated, is_confirmed=False), {}, "not evacuated: the latest window does not show the failure"),
        (isolated, {"runs": RecordedRuns(1, (run,))}, "not evacuated: pause: the last evacuation began 0 minutes ago"),
        (isolated, {"now": 900.0}, "not evacuated: verdict: the verdict is 890 s old"),
        (isolated, {"mode": EvacuationMode.ADVISE}, "not evacuated: the server only advises, by evacuation.mode; eva"),
        (
            isolated,
            {"mode": EvacuationMode.CONFIRM},
            "not evacuated: the server waits for approval; approve with `holdfast zone evacuate az2 --workload shop",
        ),
        (isolated, {"may_evacuate": False}, "not evacuated: verdicts of detector calibrated only advise, because"),
    ]

    def check(row: tuple[Verdict, dict[str, Any], str]) -> None:
        verdict, changes, expected = row
        assert explain(verdict, **changes).evacuation.startswith(expected)

    every_row(rows, check)


def test_every_guard_says_what_lifts_it_and_every_state_of_a_resource_what_it_means() -> None:
    for guard in Guard:
        signal = {"evidence": 9.0, "needed": 7.0, "operation": "a/b", "held_back": str(guard)}
        verdict = Verdict(
            id="v", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=10.0, evidence={"az1": {"latency": signal}}
        )
        [found] = explain(verdict).zones[0].signals
        assert found.lifted_by, guard
        assert found.sentence == f"latency of a/b 9.0 of 7.0 nats (129%); held back: {guard}; needs: {found.lifted_by}"


def test_evidence_of_any_other_form_is_left_out() -> None:
    """A plug-in may put anything into it."""
    evidence: dict[str, Any] = {
        "az1": {
            "evidence": 3,
            "worst_instances": "i-1",
            "list": [1],
            "faults": {"evidence": 1},
            "text": "x",
            "n": None,
        },
        "az2": 7,
        "az3": {"worst_instances": ["i-3"], "odd": {"evidence": 1.0, "needed": 0.0, "operation": "a/b"}},
        "orders": {"observability": "strange"},
        "other": {"observability": 3},
    }
    verdict = Verdict(id="v", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=10.0, evidence=evidence)
    found = explain(verdict)
    assert found.zones[0].sentence == "az1: evidence 3, worst instances i-1, text x, n none"
    assert found.zones[0].worst_instances == []
    assert found.zones[1].sentence == "az2: the verdict has no measurements of it"
    assert (found.zones[2].worst_instances, found.zones[2].signals[0].share) == (["i-3"], 0.0)
    assert [(each.resource, each.meaning) for each in found.resources] == [("orders", "")]

"""How long it takes to find a failing zone: by the default detector, and by other methods on the same data.

Every fleet is learned for 90 minutes, at any time of the day. Then it fails several times, each time from the same
state with other noise. A delay is the time from the start of the failure to the end of the bin with the right verdict,
so 10 s is the shortest delay that is possible.
"""

import copy
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks import _detect_peers as peers
from benchmarks._detect_fleets import (
    ANNOUNCED,
    DAY,
    LEARNING,
    PROOF,
    SECONDS,
    START,
    UNANNOUNCED,
    WARM_UP,
    ZONES,
    Arranger,
    build_detectors,
    build_state,
    seed_random,
)
from benchmarks._detect_scenarios import Scenario, list_scenarios
from benchmarks._harness import Goal
from benchmarks._report import Report
from holdfast import Zone
from holdfast._types import Verdict, VerdictKind
from holdfast.detect.detector import Detector
from holdfast.simulate.zones.traffic import SimulatedBin, TrafficSimulation, pack_histograms

PROCESSES = 2
AFTERMATH = 900.0
"""Seconds after the last effect in which a zone may still be isolated wrongly."""
LARGE_FLEETS = 4
"""A large scenario has a fleet where others have this number."""
SHOWN = 3
"""Wrong verdicts of a scenario that are printed."""
Task = tuple[int, int, int, int]
"""Number of the scenario, number of the fleet, failures, and TUNING or PROOF."""


@dataclass(slots=True)
class Outcome:
    """All runs of a scenario with one method."""

    delays: list[float] = field(default_factory=list)
    """Seconds; infinite where the failure was not found."""
    wrong: list[str] = field(default_factory=list)
    """Of each run in which another zone was isolated, or a zone that must not be: when, and why."""
    false: int = 0
    """Isolations before the failure."""
    calm_days: float = 0.0
    """Days without failure that `false` was counted in."""
    held_back: Counter[str] = field(default_factory=Counter)
    """Bins before the verdict, by signal and guard that held the best evidence back."""

    def add(self, other: "Outcome") -> None:
        self.delays += other.delays
        self.wrong += other.wrong
        self.false += other.false
        self.calm_days += other.calm_days
        self.held_back += other.held_back

    @property
    def median(self) -> float:
        return statistics.median(self.delays)

    @property
    def slow(self) -> float:
        """Return the 95th percentile."""
        return sorted(self.delays)[math.ceil(0.95 * len(self.delays)) - 1]

    @property
    def missed(self) -> int:
        return sum(not math.isfinite(each) for each in self.delays)


def run_fleet(scenario: Scenario, number: int, failures: int, split: int = PROOF) -> dict[str, Outcome]:
    """Learn one fleet, let it fail several times, and return the outcome by method."""
    random = seed_random(split, scenario.name, number)
    fleet = scenario.build_fleet(random)
    arranger = Arranger(fleet, scenario.sides)
    origin = START + 600.0 * int(random.integers(144))  # any time of the day
    # The failure has the traffic that the scenario names, whatever the time of the day.
    level = 1 + fleet.daily * math.sin(2 * math.pi * (origin + WARM_UP) / DAY)
    fleet = replace(fleet, requests=fleet.requests / level)
    simulation = TrafficSimulation(fleet, random)
    detectors = {name: each for name, each in build_detectors().items() if name in (UNANNOUNCED, *scenario.goals)}
    states: dict[str, Any] = {name: build_state() for name in detectors}
    compared = peers.METHODS if scenario.wanted is VerdictKind.ISOLATED else ()
    outcomes = {name: Outcome(calm_days=(WARM_UP - LEARNING) / DAY) for name in (*detectors, *compared)}
    learned: list[SimulatedBin] = []
    isolated = dict.fromkeys(detectors, "")
    for measured in simulation.run(origin, origin + WARM_UP):
        window = arranger.arrange(measured)
        learned.append(_without_latencies(measured))
        for name, detector in detectors.items():
            states[name], verdict = detector.step(states[name], window)
            now_isolated = verdict.id if verdict.kind is VerdictKind.ISOLATED else ""
            outcomes[name].false += bool(now_isolated and now_isolated != isolated[name])
            isolated[name] = now_isolated
    for failure in range(failures):
        own = seed_random(split, scenario.name, number, failure)
        failing = copy.copy(simulation)
        failing.random = own
        start = origin + WARM_UP
        zone = int(own.integers(fleet.requests.shape[1]))
        failing.effects = scenario.build_effects(own, fleet, zone, start)
        found = _run_failure(scenario, failing, arranger, detectors, states, start, zone, outcomes)
        if compared:
            _run_peers(learned, found, zone, outcomes, count_false=failure == 0)
    return outcomes


def _run_failure(
    scenario: Scenario,
    simulation: TrafficSimulation,
    arranger: Arranger,
    detectors: Mapping[str, Detector[Any]],
    states: Mapping[str, Any],
    start: float,
    zone: int,
    outcomes: Mapping[str, Outcome],
) -> list[SimulatedBin]:
    current = dict(states)
    waiting = set(detectors)
    delays = dict.fromkeys(waiting, math.inf)
    bins = []
    end = min(start + scenario.limit, max(each.end for each in simulation.effects) + AFTERMATH)
    for measured in simulation.run(start, end):
        bins.append(_without_latencies(measured))
        window = arranger.arrange(measured)
        for name in sorted(waiting):
            current[name], verdict = detectors[name].step(current[name], window)
            is_here = verdict.zone == ZONES[zone]
            if verdict.kind is VerdictKind.ISOLATED and not (scenario.may_isolate and is_here):
                outcomes[name].wrong.append(f"{window.end - start:.0f} s: {verdict.summary}")
                waiting.discard(name)
            elif verdict.kind is scenario.wanted and (is_here or verdict.kind is VerdictKind.REGIONAL):
                delays[name] = min(delays[name], window.end - start)
                if scenario.may_isolate:  # else go on, and see that it is not isolated later
                    waiting.discard(name)
            if not math.isfinite(delays[name]):
                outcomes[name].held_back[_explain(verdict, ZONES[zone])] += 1
    for name, delay in delays.items():
        outcomes[name].delays.append(delay)
    return bins


def _explain(verdict: Verdict, zone: Zone) -> str:
    """Return the signal that is nearest to a verdict, and the guard that holds it back."""
    found = [
        (each["evidence"] / each["needed"], f"{signal}: {each['held_back']}")
        for signal, each in dict(verdict.evidence.get(zone, {})).items()
        if isinstance(each, dict) and each.get("needed")
    ]
    return max(found, default=(0.0, "no evidence"))[1]


def _run_peers(
    learned: Sequence[SimulatedBin],
    failing: Sequence[SimulatedBin],
    zone: int,
    outcomes: Mapping[str, Outcome],
    *,
    count_false: bool,
) -> None:
    first, calm = len(learned), round(LEARNING / SECONDS)
    requests = np.stack([each.requests.sum(axis=2) for each in (*learned, *failing)])
    faults = np.stack([each.faults.sum(axis=2) for each in (*learned, *failing)])
    for name, method in peers.METHODS.items():
        zones = method(requests, faults)
        outcome = outcomes[name]
        if count_false:
            outcome.false += peers.count_alarms(zones[calm:first])
        hits = np.flatnonzero(zones[first:] >= 0)
        wrong = np.flatnonzero((zones[first:] >= 0) & (zones[first:] != zone))
        right = np.flatnonzero(zones[first:] == zone)
        outcome.delays.append(float(right[0] + 1) * SECONDS if len(right) else math.inf)
        if len(wrong) and wrong[0] == hits[0]:
            outcome.wrong.append("")


def _without_latencies(measured: SimulatedBin) -> SimulatedBin:
    none = np.zeros(0, np.int64)
    return replace(measured, latencies=pack_histograms(none, none, none, 0))


def measure(report: Report, *, fleets: int, failures: int, names: Sequence[str], split: int) -> None:
    """Run the scenarios whose names contain one of `names`, or all."""
    scenarios = list_scenarios()
    chosen = [index for index, each in enumerate(scenarios) if not names or any(name in each.name for name in names)]
    numbers = {index: math.ceil(fleets / LARGE_FLEETS) if scenarios[index].is_large else fleets for index in chosen}
    tasks: list[Task] = [(index, fleet, failures, split) for index in chosen for fleet in range(numbers[index])]
    totals: dict[str, Outcome] = {}
    report.say("seconds until the right verdict, median/95th percentile; - means not found in 20 minutes")
    report.say("delays are measured to the end of the bin with the verdict: 10 is the shortest that is possible")
    head = "".join(f" {name:>12}" for name in peers.METHODS)
    report.say(f"{'scenario':<46} {'runs':>4} {'goal':>5} {'holdfast':>9} {'missed':>6} {'wrong':>5}{head}")
    with get_context("spawn").Pool(PROCESSES) as pool:
        results = pool.imap(_run, tasks)
        for index in chosen:
            found: dict[str, Outcome] = {}
            for fleet in range(numbers[index]):
                report.progress(f"{scenarios[index].name}: fleet {fleet + 1} of {numbers[index]}")
                for name, outcome in next(results).items():
                    found.setdefault(name, Outcome()).add(outcome)
                    totals.setdefault(name, Outcome()).add(outcome)
            _show_scenario(report, scenarios[index], found)
    _show_totals(report, totals)


def _run(task: Task) -> dict[str, Outcome]:
    index, fleet, failures, split = task
    return run_fleet(list_scenarios()[index], fleet, failures, split)


def _show_scenario(report: Report, scenario: Scenario, found: Mapping[str, Outcome]) -> None:
    for number, mode in enumerate((ANNOUNCED, UNANNOUNCED)):
        if mode not in found:
            continue
        own = found[mode]
        goal = scenario.goals.get(mode)
        suffix = f", {mode}" if ANNOUNCED in scenario.goals else ""
        others = "".join(f" {_pair(found[name]):>12}" for name in peers.METHODS if name in found) if number else ""
        missed = "" if scenario.wanted is None else own.missed
        report.say(
            f"{scenario.name + suffix:<46} {len(own.delays):>4} {goal or '':>5} {_pair(own):>9}"
            f" {missed:>6} {len(own.wrong):>5}{others}"
        )
        if goal is not None and own.median > goal:
            waits = ", ".join(f"{bins} x {reason}" for reason, bins in own.held_back.most_common(2))
            report.say(f"    waited for: {waits}")
        for reason in own.wrong[:SHOWN]:
            report.say(f"    isolated after {reason}")
        name = f"{scenario.name}{suffix}"
        if goal is not None:
            report.hold(Goal(f"{name}, median seconds", min(own.median, 1e9), goal, "lower"))
        if not scenario.may_isolate:
            report.hold(Goal(f"{name}, isolated", len(own.wrong), 0, "lower"))
        if scenario.wanted is VerdictKind.INSTANCE:
            share = sum(map(math.isfinite, own.delays)) / len(own.delays)
            report.hold(Goal(f"{name}, share of runs with this verdict", share, 1.0, "higher"))
        if math.isfinite(own.median):
            report.keep(f"{name}, median seconds", own.median)


def _pair(outcome: Outcome) -> str:
    if not any(map(math.isfinite, outcome.delays)):
        return "-"
    return "/".join(f"{each:.0f}" if math.isfinite(each) else "-" for each in (outcome.median, outcome.slow))


def _show_totals(report: Report, totals: Mapping[str, Outcome]) -> None:
    report.say(f"{'method':<46} {'detections':>10} {'wrong':>10} {'false in calm time, a day':>26}")
    for name, total in totals.items():
        found = len(total.delays) - total.missed
        label = name if name in peers.METHODS else f"holdfast, {name}"
        report.say(f"{label:<46} {found:>10,} {len(total.wrong):>10} {total.false / total.calm_days:>26.1f}")
    own = [total for name, total in totals.items() if name not in peers.METHODS]
    report.keep("detections", sum(len(each.delays) - each.missed for each in own))
    report.hold(Goal("wrong verdicts", sum(len(each.wrong) for each in own), 0, "lower"))
    report.hold(Goal("false isolations in calm time", sum(each.false for each in own), 0, "lower"))

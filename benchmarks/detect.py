"""How fast a failing zone is found, how often one is isolated that has not failed, and the CPU time of one tick.

- `delays` (`_detect_scenarios.py`): the default detector beside static thresholds, the share of the faults, chi-squared
  and an exact test (`_detect_peers.py`), on the same data.
- `tick` (`_detect_tick.py`): one window and one step with 30,000 series.
- `year` (`_detect_year.py`): a sample, or with `--whole` 180 days in which no zone fails alone.

Scenarios for tuning and those for the figures here have different seeds: see TUNING and PROOF. `--quick` has fewer
scenarios and runs. `--tuning` runs the delays with the seeds for tuning. The last line is JSON.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

import argparse
import math
from collections.abc import Mapping, Sequence
from multiprocessing import get_context

from benchmarks import _detect_tick as tick
from benchmarks import _detect_year as year
from benchmarks._detect_peers import METHODS
from benchmarks._detect_scenarios import (
    ANNOUNCED,
    PROOF,
    TUNING,
    UNANNOUNCED,
    Outcome,
    Scenario,
    list_scenarios,
    run_fleet,
)
from benchmarks._harness import Goal
from benchmarks._report import Report
from holdfast._types import VerdictKind

PARTS = ("delays", "tick", "year")
QUICK = (
    "40 % fail, base 0.50%",
    "x4 to 48 faults/min",
    "latency x2, sigma 0.6",
    "55/98/100 % available",
    "silent zone",
    "telemetry stalls",
    "1 of 3 instances bad",
)
"""The scenarios of a quick run."""
PROCESSES = 2
Task = tuple[int, int, int, int]
"""Number of the scenario, number of the fleet, failures, and TUNING or PROOF."""


def measure_delays(report: Report, *, fleets: int, failures: int, names: Sequence[str], split: int) -> None:
    """Run the scenarios called `names`, or all."""
    scenarios = list_scenarios()
    chosen = [index for index, each in enumerate(scenarios) if not names or each.name in names]
    tasks: list[Task] = [(index, fleet, failures, split) for index in chosen for fleet in range(fleets)]
    totals: dict[str, Outcome] = {}
    report.say("seconds until the right verdict, median/95th percentile; - means not found in 20 minutes")
    report.say("delays are measured to the end of the bin with the verdict: 10 is the shortest that is possible")
    head = "".join(f" {name:>12}" for name in METHODS)
    report.say(f"{'scenario':<34} {'runs':>4} {'goal':>5} {'holdfast':>9} {'missed':>6} {'wrong':>5}{head}")
    with get_context("spawn").Pool(PROCESSES) as pool:
        results = pool.imap(_run, tasks)
        for index in chosen:
            found: dict[str, Outcome] = {}
            for fleet in range(fleets):
                report.progress(f"{scenarios[index].name}: fleet {fleet + 1} of {fleets}")
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
        others = "".join(f" {_pair(found[name]):>12}" for name in METHODS) if number else ""
        report.say(
            f"{scenario.name + suffix:<34} {len(own.delays):>4} {goal or '':>5} {_pair(own):>9}"
            f" {own.missed:>6} {own.wrong:>5}{others}"
        )
        if goal is not None and own.median > goal:
            waits = ", ".join(f"{bins} x {reason}" for reason, bins in own.held_back.most_common(2))
            report.say(f"    waited for: {waits}")
        name = f"{scenario.name}{suffix}"
        if goal is not None:
            report.hold(Goal(f"{name}, median seconds", min(own.median, 1e9), goal, "lower"))
        if not scenario.may_isolate:
            report.hold(Goal(f"{name}, isolated", own.wrong, 0, "lower"))
        if scenario.wanted is VerdictKind.INSTANCE:
            share = sum(map(math.isfinite, own.delays)) / len(own.delays)
            report.hold(Goal(f"{name}, share of runs with this verdict", share, 1.0, "higher"))
        if math.isfinite(own.median):
            report.keep(f"{name}, median seconds", own.median)


def _pair(outcome: Outcome) -> str:
    if not outcome.delays:
        return ""
    return "/".join(f"{each:.0f}" if math.isfinite(each) else "-" for each in (outcome.median, outcome.slow))


def _show_totals(report: Report, totals: Mapping[str, Outcome]) -> None:
    report.say(f"{'method':<34} {'detections':>10} {'wrong zone':>10} {'false in calm time, a day':>26}")
    for name in (UNANNOUNCED, ANNOUNCED, *METHODS):
        total = totals[name]
        found = len(total.delays) - total.missed
        label = f"holdfast, {name}" if name in (UNANNOUNCED, ANNOUNCED) else name
        report.say(f"{label:<34} {found:>10,} {total.wrong:>10} {total.false / total.calm_days:>26.1f}")
    own = totals[UNANNOUNCED]
    report.keep("detections", len(own.delays) - own.missed)
    report.hold(Goal("wrong verdicts", own.wrong + totals[ANNOUNCED].wrong, 0, "lower"))
    report.hold(Goal("false isolations in calm time", own.false + totals[ANNOUNCED].false, 0, "lower"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/detect.py")
    parser.add_argument("--quick", action="store_true", help="fewer scenarios and runs, for a look in under a minute")
    parser.add_argument("--part", choices=PARTS, action="append", help="this part alone; may be repeated")
    parser.add_argument("--whole", action="store_true", help="all 180 days of the year: about an hour on two cores")
    parser.add_argument("--tuning", action="store_true", help="delays with the seeds for tuning, not those for figures")
    parser.add_argument("--scenario", action="append", default=[], help="delays of this scenario; may be repeated")
    parser.add_argument("--fleets", type=int, help="fleets for each scenario")
    chosen = parser.parse_args(arguments)
    report = Report("detect")
    for name in chosen.part or PARTS:
        report.say(f"{name}:")
        if name == "delays":
            fleets, failures = (2, 2) if chosen.quick else (24, 8)
            measure_delays(
                report,
                fleets=chosen.fleets or fleets,
                failures=failures,
                names=chosen.scenario or (QUICK if chosen.quick else ()),
                split=TUNING if chosen.tuning else PROOF,
            )
        elif name == "tick":
            tick.measure(report)
        else:
            days = year.WHOLE_DAYS if chosen.whole else 0.11 if chosen.quick else 2.0
            year.measure(report, days, is_whole=chosen.whole)
        report.say("")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())

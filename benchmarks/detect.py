"""How fast a failing zone is found, how often one is isolated that has not failed, and the CPU time of one tick.

- `delays` (`_detect_delays.py`): the default detector beside static thresholds, the share of the faults, chi-squared
  and an exact test (`_detect_peers.py`), on the same data.
- `tick` (`_detect_tick.py`): one window and one step with 30,000 series.
- `year` (`_detect_year.py`): a sample, or with `--whole` 200 days in which no zone fails alone.

Scenarios for tuning and those for the figures here have different seeds: see TUNING and PROOF. `--quick` has fewer
scenarios and runs. `--tuning` uses the seeds for tuning. The last line is JSON.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

import argparse
from collections.abc import Sequence

from benchmarks import _detect_delays as delays
from benchmarks import _detect_tick as tick
from benchmarks import _detect_year as year
from benchmarks._detect_fleets import PROOF, TUNING
from benchmarks._report import Report

PARTS = ("delays", "tick", "year")
WHOLE_DAYS = 200.0
"""Days of the whole year: enough for 500 regional and shared incidents."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/detect.py")
    parser.add_argument("--quick", action="store_true", help="fewer scenarios and runs, for a look in under a minute")
    parser.add_argument("--part", choices=PARTS, action="append", help="this part alone; may be repeated")
    parser.add_argument("--whole", action="store_true", help="all 200 days of the year: about 80 minutes on two cores")
    parser.add_argument("--tuning", action="store_true", help="use the seeds for tuning, not those for figures")
    parser.add_argument("--scenario", action="append", default=[], help="delays of scenarios with this in their name")
    parser.add_argument("--fleets", type=int, help="fleets for each scenario")
    chosen = parser.parse_args(arguments)
    report, split = Report("detect"), TUNING if chosen.tuning else PROOF
    for name in chosen.part or PARTS:
        report.say(f"{name}:")
        if name == "delays":
            fleets, failures = (2, 2) if chosen.quick else (24, 8)
            delays.measure(
                report,
                fleets=chosen.fleets or fleets,
                failures=failures,
                names=chosen.scenario or (QUICK if chosen.quick else ()),
                split=split,
            )
        elif name == "tick":
            tick.measure(report)
        else:
            days = WHOLE_DAYS if chosen.whole else 0.08 if chosen.quick else 2.0
            year.measure(report, days, is_whole=chosen.whole, split=split)
        report.say("")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())

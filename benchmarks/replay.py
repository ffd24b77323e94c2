"""How long a replay of a day takes.

The recording has 200 operations in three zones, a row for each in every bin of ten seconds, with percentiles: 5.2
million rows in a day. A unit is one bin. It is read, parsed and judged by the calibrated detector, and by the alarms
unless the name says otherwise. The goal is a day in less than a minute, with two processes on two cores. `--quick`
replays two hours and multiplies.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

import numpy as np

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main
from holdfast.replay.files import ReadingOptions
from holdfast.replay.run import ReplayOptions, replay

START = 1_767_225_600
OPERATIONS, ZONES = 200, 3
DAY_BINS, QUICK_BINS = 8640, 720
BUDGET = 60.0
HEADER = "time,arrived,workload,operation,zone,instance,requests,faults,p50_ms,p90_ms,p99_ms\n"


def write_recording(path: Path, bins: int) -> None:
    """Write a recording in which one zone fails for ten minutes, after two thirds of the time."""
    random = np.random.default_rng(1)
    rates = np.exp(random.normal(np.log(10), 1.0, OPERATIONS))[:, None] * np.ones(ZONES)
    fault_rates = np.exp(random.uniform(np.log(1e-5), np.log(5e-2), OPERATIONS))[:, None] * np.ones(ZONES)
    medians = np.exp(random.normal(np.log(50), 0.5, OPERATIONS))[:, None]
    labels = [
        f"shop,svc{each % 10}/op{each:03},use1-az{zone + 1},," for each in range(OPERATIONS) for zone in range(ZONES)
    ]
    failing = range(bins * 2 // 3, bins * 2 // 3 + 60)
    with path.open("w") as file:
        file.write(HEADER)
        for number in range(bins):
            chances = fault_rates.copy()
            if number in failing:
                chances[:, 1] = 0.4
            requests = random.poisson(rates)
            faults = random.binomial(requests, chances)
            noise = np.exp(random.normal(0, 0.1, (3, OPERATIONS, ZONES)))
            columns = [medians * noise[0], medians * noise[1] * 2.2, medians * noise[2] * 4.2]
            at = START + 10 * number
            values = zip(labels, requests.flat, faults.flat, *(np.sort(columns, axis=0).reshape(3, -1)), strict=True)
            file.writelines(
                f"{at},{at + 11},{label}{count},{failed},{p50:.1f},{p90:.1f},{p99:.1f}\n"
                for label, count, failed, p50, p90, p99 in values
            )


@contextmanager
def run(path: Path, *, with_alarms: bool) -> Iterator[Work]:
    """Replay a recording."""
    options = ReplayOptions(
        reading=ReadingOptions(paths=(path,)), default_detector="calibrated", with_alarms=with_alarms
    )

    def work(_: int) -> int:
        result = replay(options)
        isolated = {each.zone for each in result.verdicts if each.kind == "isolated" and each.judge != "alarms"}
        if isolated != {"use1-az2"}:
            raise ValueError(f"isolated {isolated}: expected the failing zone")
        return result.bins

    yield work


def build(quick: bool) -> Benchmark:
    folder = tempfile.TemporaryDirectory()
    path, bins = Path(folder.name) / "bins.csv", QUICK_BINS if quick else DAY_BINS
    write_recording(path, bins)

    def goals(results: Results) -> list[Goal]:
        folder.cleanup()
        day = median(results.seconds("detector and alarms")) * DAY_BINS
        return [Goal("seconds_of_a_day", day, BUDGET, "lower")]

    contenders = [
        Contender("detector and alarms", lambda: run(path, with_alarms=True), bins),
        Contender("detector", lambda: run(path, with_alarms=False), bins),
    ]
    return Benchmark(contenders=contenders, goals=goals, rounds=1, show="seconds")


if __name__ == "__main__":
    sys.exit(main("replay", build))

"""How long it takes until Holdfast is there: imported, and as a command."""

import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).parents[1])  # finds `benchmarks`, and no file of it instead of a standard module

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_difference

BARE, IMPORT, VERSION = "python -c pass", "python -c 'import holdfast'", "holdfast --version"


def launch(*command: str) -> Work:
    """Start a command as often as asked, one after the other, and wait for its end."""

    def work(count: int) -> int:
        for _ in range(count):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return count

    return work


def goals(results: Results) -> list[Goal]:
    # What the interpreter takes for itself is not ours to fix; a command has to feel immediate as a whole.
    imported = paired_difference(results.seconds(IMPORT), results.seconds(BARE))
    return [
        Goal("import_seconds", imported, 0.100, "lower"),
        Goal("version_seconds", median(results.seconds(VERSION)), 0.200, "lower"),
    ]


def build(quick: bool) -> Benchmark:
    units = 2 if quick else 5
    python = sys.executable
    return Benchmark(
        contenders=[
            Contender.plain(BARE, launch(python, "-c", "pass"), units),
            Contender.plain(IMPORT, launch(python, "-c", "import holdfast"), units),
            Contender.plain(VERSION, launch(str(Path(python).with_name("holdfast")), "--version"), units),
        ],
        goals=goals,
        rounds=5 if quick else 11,
        base=BARE,
        show="seconds",
    )


if __name__ == "__main__":
    sys.exit(main("startup", build))

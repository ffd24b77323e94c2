"""Report what a benchmark of several parts finds: lines for people, numbers for machines, and goals."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks._harness import Goal


class Report:
    """Collects what is found, and prints it as it comes."""

    def __init__(self, name: str, picture: Path | None = None) -> None:
        self.name = name
        self.picture = picture
        """Where to draw it, if somewhere."""
        self.goals: list[Goal] = []
        self.numbers: dict[str, float] = {}

    def progress(self, text: str) -> None:
        """For whoever waits in front of a terminal."""
        if sys.stderr.isatty():
            print(f"{self.name}: {text}", file=sys.stderr)

    def say(self, line: str) -> None:
        print(line, flush=True)

    def keep(self, name: str, value: float) -> None:
        """A number that is held to nothing."""
        self.numbers[name] = value

    def hold(self, goal: Goal) -> None:
        """A number that is held to something."""
        self.goals.append(goal)
        sign, verdict = (">=" if goal.better == "higher" else "<="), ("met" if goal.met else "MISSED")
        self.say(f"goal {goal.name}: {goal.value:,.4g} {sign} {goal.goal:,.4g} {verdict}")

    def end(self) -> int:
        """The last line, and the exit status."""
        fields = ("name", "value", "goal", "better", "met")
        goals = [{field: getattr(goal, field) for field in fields} for goal in self.goals]
        numbers = {name: float(f"{value:.6g}") for name, value in self.numbers.items()}
        print(json.dumps({"benchmark": self.name, "goals": goals, "numbers": numbers}, allow_nan=False), flush=True)
        return 0 if all(goal.met for goal in self.goals) else 1


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that so large a share is not above; of 50, the 99th percentile is the largest."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"

"""How benchmarks are run, compared and reported.

A benchmark is a file here with a `build(quick)` that returns a `Benchmark`, and `main(name, build)` at its end. Its
contenders run in turn, in one process run, in an order that rotates from round to round; what is compared is compared
within a round, before the median is taken, so that a machine that grows slower or busier does not favour anybody.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias

Work: TypeAlias = Callable[[int], int]
"""Does about as many units of work as it is asked for and returns how many it did."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work. `prepare` is entered and left once in every round, outside of what is measured."""

    name: str
    prepare: Callable[[], AbstractContextManager[Work]]
    units: int

    @classmethod
    def plain(cls, name: str, work: Work, units: int) -> "Contender":
        """A contender that has nothing to set up or to tear down."""
        return cls(name, lambda: nullcontext(work), units)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a number is held to."""

    name: str
    value: float
    goal: float
    better: Literal["higher", "lower"]

    @property
    def met(self) -> bool:
        """Whether the value is at least as good as the goal."""
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run of one contender."""

    units: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Results:
    """The samples of every contender, in the order of the rounds."""

    samples: Mapping[str, Sequence[Sample]]

    def rates(self, name: str) -> list[float]:
        """Units per second, round by round."""
        return [sample.units / sample.seconds for sample in self.samples[name]]

    def seconds(self, name: str) -> list[float]:
        """Seconds per unit, round by round."""
        return [sample.seconds / sample.units for sample in self.samples[name]]


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios of each round."""
    return statistics.median(value / other for value, other in zip(values, base, strict=True))


def paired_difference(values: Sequence[float], base: Sequence[float]) -> float:
    """The median of the differences of each round."""
    return statistics.median(value - other for value, other in zip(values, base, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What is run, what is measured, and what must come out."""

    contenders: Sequence[Contender]
    goals: Callable[[Results], Sequence[Goal]]
    rounds: int = 7  # an odd number has a median that was measured; seven leave one bad round on either side harmless
    base: str | None = None
    """The contender that the table compares the others with."""
    show: Literal["rate", "seconds"] = "rate"
    timer: Callable[[], float] = time.perf_counter
    """`time.perf_counter` for wall time, `time.process_time` or `time.thread_time` for CPU time."""

    def __post_init__(self) -> None:
        names = [contender.name for contender in self.contenders]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"contenders {names}: expected at least one, and every name once")
        if self.base is not None and self.base not in names:
            raise ValueError(f"base {self.base!r}: expected one of {names}")
        if self.rounds < 1:
            raise ValueError(f"rounds {self.rounds}: expected at least 1")


def run(benchmark: Benchmark, progress: Callable[[str], None] = lambda _: None) -> Results:
    """Run all contenders in turn: a round that does not count, to warm up, and then those that do."""
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in benchmark.contenders}
    for number in range(benchmark.rounds + 1):
        progress(f"round {number} of {benchmark.rounds}" if number else "warming up")
        first = number % len(benchmark.contenders)
        for contender in (*benchmark.contenders[first:], *benchmark.contenders[:first]):
            sample = _measure(contender, benchmark.timer)
            if number:
                samples[contender.name].append(sample)
    return Results(samples)


def _measure(contender: Contender, timer: Callable[[], float]) -> Sample:
    with contender.prepare() as work:
        gc.collect()  # nobody pays for the garbage of whoever came before
        start = timer()
        units = work(contender.units)
        seconds = timer() - start
    if units <= 0 or seconds <= 0:
        raise ValueError(f"{contender.name}: {units} units in {seconds} seconds is too little to measure")
    return Sample(units, seconds)


def table(benchmark: Benchmark, results: Results) -> Iterator[str]:
    """The results for people, line by line."""
    measured, unit = (results.rates, "units/s") if benchmark.show == "rate" else (results.seconds, "seconds/unit")
    yield f"{'contender':<32} {'rounds':>6} {'median':>12} {'min':>12} {'max':>12}  {unit}"
    for contender in benchmark.contenders:
        values = measured(contender.name)
        row = "".join(f" {_number(value):>12}" for value in (statistics.median(values), min(values), max(values)))
        ratio = ""
        if benchmark.base not in {None, contender.name}:
            ratio = f"  {paired_ratio(values, measured(str(benchmark.base))):.2f} x {benchmark.base}"
        yield f"{contender.name:<32} {len(values):>6}{row}{ratio}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def main(name: str, build: Callable[[bool], Benchmark], arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that `build` returns and print what came out; returns the exit status: 1 if a goal is missed.

    The last line is JSON, for machines.
    """
    parser = argparse.ArgumentParser(prog=f"benchmarks/{name}.py")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds, for a look in under a minute")
    benchmark = build(parser.parse_args(arguments).quick)

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"{name}: {text}", file=sys.stderr)

    results = run(benchmark, progress)
    goals = benchmark.goals(results)
    for line in table(benchmark, results):
        print(line)
    for goal in goals:
        sign, verdict = (">=" if goal.better == "higher" else "<="), ("met" if goal.met else "MISSED")
        print(f"goal {goal.name}: {_number(goal.value)} {sign} {_number(goal.goal)} {verdict}")
    fields = ("name", "value", "goal", "better", "met")
    listed = [{field: getattr(goal, field) for field in fields} for goal in goals]
    print(json.dumps({"benchmark": name, "goals": listed}, allow_nan=False), flush=True)
    return 0 if all(goal.met for goal in goals) else 1

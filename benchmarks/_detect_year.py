"""How often the default detector isolates a zone that has not failed.

200 operations in 3 zones, with the noise of `_detect_fleets.py`, and no failure of a single zone. Traffic is
log-normal (median 60 requests/min, sigma 1.3), fault rates log-uniform from 1e-5 to 5e-2, shares of the zones even,
50/30/20 or 70/20/10. Nothing of the following is announced or declared:

- deploys, 25 minutes apart or more, roll through the zones: each takes 60 to 180 s, adds 0.2 to 5 % faults and makes
  30 to 100 % of the operations slower, by 1.05 to 1.6;
- regional incidents (all operations) and shared ones (5 to 40 % of them) add 1 to 60 % faults in all zones, unevenly
  (sigma 0.25), with starts up to 10 s apart, for 2 to 30 minutes, ten times as often as the 2 a week of a real year;
- bursts of one operation in one zone, 5 to 50 % faults for 10 to 30 s, 60 a day;
- the traffic of a zone is scaled by 0.6 to 1.5, 4 times a day, and telemetry stalls for 30 to 50 s, 6 times a day, of
  one zone or of all.

The time is divided into parts, each with its own service and seed. Parts that were run with the same code are kept in
`.cache/detect-year`, so a run that was interrupted continues.
"""

import hashlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

import holdfast.detect
import holdfast.simulate.zones
from benchmarks._detect_fleets import (
    DAY,
    LARGE,
    PROOF,
    SECONDS,
    SHARES,
    START,
    UNANNOUNCED,
    WARM_UP,
    Arranger,
    Happening,
    break_all_zones,
    build_detectors,
    build_large_fleet,
    build_state,
    deploy,
    fill,
    seed_random,
    stall_telemetry,
)
from benchmarks._harness import Goal
from benchmarks._report import Report
from holdfast._types import VerdictKind
from holdfast.simulate.zones.traffic import Effect, Fleet, TrafficSimulation

DEPLOYS_A_DAY, INCIDENTS_A_WEEK = 12.0, 20.0
REAL_DEPLOYS_A_DAY, REAL_INCIDENTS_A_WEEK = 5.0, 2.0
BURSTS_A_DAY, SCALINGS_A_DAY, STALLS_A_DAY = 60, 4, 6
YEAR_DAYS, WEEKS = 365.0, 365.0 / 7
PART_DAYS = 5.0
ONE_EPISODE = 1800.0
"""Seconds after a false isolation in which another one counts as the same."""
CACHE = Path(".cache/detect-year")
RESULT = Path("benchmarks/results/detect_year.json")
UNRELATED = {"sentences", "detector", "encoding", "threshold", "outlier"}
"""Modules that do not decide when the default detector isolates a zone."""
AFTER = {"regional": 900.0, "shared": 900.0, "deploy": 600.0, "stall": 120.0}
"""Seconds after the end of an event in which a false isolation is blamed on it. The first that applies is blamed."""


@dataclass(slots=True)
class Part:
    """The result of one part."""

    number: int
    days: float
    happenings: dict[str, int] = field(default_factory=dict)
    false: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    """Bins by kind of verdict."""
    seconds: float = 0.0
    """CPU time."""


def plan(random: Generator, fleet: Fleet, start: float, end: float) -> tuple[list[Effect], list[Happening]]:
    """Return all effects between two times, in order, and what they stand for."""
    effects: list[Effect] = []
    happenings: list[Happening] = []
    at = start
    while (at := at + 1500.0 + random.exponential(DAY / DEPLOYS_A_DAY - 1500.0)) < end:
        happenings.append(deploy(random, fleet, at, effects))
    at = start
    while (at := at + random.exponential(7 * DAY / INCIDENTS_A_WEEK)) < end:
        happenings.append(break_all_zones(random, fleet, at, effects))
    days = (end - start) / DAY
    operations, zones = fleet.requests.shape
    for at in random.uniform(start, end, round(BURSTS_A_DAY * days)):
        added = np.zeros(fleet.requests.shape)
        added[random.integers(operations), random.integers(zones)] = random.uniform(0.05, 0.5)
        effects.append(Effect(start=at, end=at + random.uniform(10.0, 30.0), added=added))
    for at in random.uniform(start, end, round(SCALINGS_A_DAY * days)):
        traffic = fill(fleet, 1.0, random.uniform(0.6, 1.5), int(random.integers(zones)))
        effects.append(Effect(start=at, end=at + random.uniform(600.0, 7200.0), traffic=traffic))
    stalls = random.uniform(start, end, round(STALLS_A_DAY * days)) // SECONDS * SECONDS
    happenings += [stall_telemetry(random, fleet, at, effects) for at in stalls.tolist()]
    return sorted(effects, key=lambda each: each.start), sorted(happenings, key=lambda each: each.start)


def plan_sample(random: Generator, fleet: Fleet, start: float) -> tuple[list[Effect], list[Happening]]:
    """Return one deploy, one stall and one incident, for a quick look."""
    effects: list[Effect] = []
    happenings = [
        deploy(random, fleet, start + 300.0, effects),
        stall_telemetry(random, fleet, start + 1500.0, effects),
    ]
    happenings.append(break_all_zones(random, fleet, start + 2100.0, effects))
    return sorted(effects, key=lambda each: each.start), happenings


def run_part(number: int, days: float, split: int = PROOF) -> Part:
    """Run one part, and return the zones that were isolated in it. A part of less than a day is a sample."""
    began = time.process_time()
    random = seed_random(split, "year", number)
    fleet = build_large_fleet(random, SHARES[number % len(SHARES)])
    begin = START + WARM_UP
    end = begin + days * DAY
    effects, happenings = plan_sample(random, fleet, begin) if days < 1 else plan(random, fleet, begin, end)
    arranger, detector = Arranger(fleet), build_detectors()[UNANNOUNCED]
    simulation = TrafficSimulation(fleet, random)
    state: Any = build_state()
    part = Part(number, days)
    verdicts: Counter[str] = Counter()
    active: list[Effect] = []
    next_effect, isolated, counted_at = 0, "", -math.inf
    at = START
    while at < end:
        while next_effect < len(effects) and effects[next_effect].start < at + SECONDS:
            active.append(effects[next_effect])
            next_effect += 1
        active = [each for each in active if each.end > at]
        simulation.effects = active
        state, verdict = detector.step(state, arranger.arrange(simulation.step(at)))
        at += SECONDS
        verdicts[str(verdict.kind)] += 1
        now_isolated = verdict.id if verdict.kind is VerdictKind.ISOLATED else ""
        if now_isolated and now_isolated != isolated and at - counted_at > ONE_EPISODE:
            counted_at = at
            cause, since = blame(happenings, at)
            part.false.append({"at": at, "cause": cause, "after": since, "summary": verdict.summary})
        isolated = now_isolated
    part.happenings = dict(Counter(each.kind for each in happenings))
    part.verdicts = dict(verdicts)
    part.seconds = time.process_time() - began
    return part


def blame(happenings: Sequence[Happening], at: float) -> tuple[str, float]:
    """Return the cause of a false isolation, and the seconds since it began."""
    for kinds in (("regional", "shared"), ("deploy",), ("stall",)):
        for each in reversed(happenings):
            if each.kind in kinds and each.start < at <= each.end + AFTER[each.kind]:
                return each.kind, round(at - each.start, 1)
    return "quiet", 0.0


def find_upper_bound(count: int) -> float:
    """Return the upper bound, at 95 %, of the expected number of rare events after `count` of them."""
    low, high = 0.0, 20.0 + 3.0 * count
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = sum(math.exp(-middle + i * math.log(middle) - math.lgamma(i + 1)) for i in range(count + 1))
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Rate:
    """False isolations of one cause."""

    cause: str
    false: int
    exposure: float
    """Events, or days for quiet time."""
    a_year: float
    """Events, or days, in a real year."""

    @property
    def rate(self) -> float:
        """Return the false isolations in a real year."""
        return self.false / self.exposure * self.a_year if self.exposure else math.nan

    @property
    def bound(self) -> float:
        return find_upper_bound(self.false) / self.exposure * self.a_year if self.exposure else math.nan


def sum_up(parts: Sequence[Part]) -> list[Rate]:
    """Return the rates by cause, and those of all incidents together as the last."""
    days = sum(part.days for part in parts)
    seen: Counter[str] = Counter()
    false = Counter(each["cause"] for part in parts for each in part.false)
    for part in parts:
        seen.update(part.happenings)
    incidents = REAL_INCIDENTS_A_WEEK * WEEKS
    rates = [
        Rate("quiet", false["quiet"], days, YEAR_DAYS),
        Rate("deploy", false["deploy"], seen["deploy"], REAL_DEPLOYS_A_DAY * YEAR_DAYS),
        Rate("stall", false["stall"], seen["stall"], STALLS_A_DAY * YEAR_DAYS),
        Rate("regional", false["regional"], seen["regional"], incidents / 2),
        Rate("shared", false["shared"], seen["shared"], incidents / 2),
    ]
    both = Rate("regional or shared", false["regional"] + false["shared"], seen["regional"] + seen["shared"], incidents)
    return [*rates, both]


def measure(report: Report, days: float, *, is_whole: bool, split: int = PROOF, processes: int = 2) -> None:
    """Run all parts and report. Only a whole year is kept in the cache, and written to RESULT if it is for PROOF."""
    part_days = PART_DAYS if is_whole else days / processes
    number = math.ceil(days / part_days)
    folder = CACHE / f"{fingerprint()}-{split}"
    found: dict[int, Part] = {}
    if is_whole:
        folder.mkdir(parents=True, exist_ok=True)
        found = {part.number: part for part in _load(folder) if part.number < number}
    waiting = [(each, part_days, split) for each in range(number) if each not in found]
    began = time.monotonic()
    with get_context("spawn").Pool(processes) as pool:
        for done, part in enumerate(pool.imap_unordered(_run, waiting), 1):
            found[part.number] = part
            if is_whole:
                (folder / f"{part.number}.json").write_text(json.dumps(asdict(part)))
                left = (time.monotonic() - began) / done * (len(waiting) - done) / 60
                false = sum(len(each.false) for each in found.values())
                text = f"part {len(found)} of {number}, {false} false isolations, about {left:.0f} minutes remain"
                print(f"{report.name}: {text}", file=sys.stderr, flush=True)
    parts = [found[each] for each in sorted(found)]
    rates = sum_up(parts)
    _show(report, parts, rates)
    if is_whole:
        hold_goals(report, rates)
        if split == PROOF:
            write_result(RESULT, parts, rates)
    else:
        report.hold(
            Goal("false isolations in a sample of the year", sum(len(part.false) for part in parts), 0, "lower")
        )


def _run(task: tuple[int, float, int]) -> Part:
    return run_part(*task)


def _load(folder: Path) -> list[Part]:
    return [Part(**json.loads(each.read_text())) for each in folder.glob("*.json")]


def fingerprint() -> str:
    """Return a name for the code that decides the result."""
    digest = hashlib.sha256()
    folders = [Path(each) for package in (holdfast.detect, holdfast.simulate.zones) for each in package.__path__]
    files = [
        *Path(__file__).parent.glob("_detect_*.py"),
        *(each for folder in folders for each in folder.rglob("*.py") if each.stem not in UNRELATED),
    ]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _show(report: Report, parts: Sequence[Part], rates: Sequence[Rate]) -> None:
    days = sum(part.days for part in parts)
    report.say(f"{days:,.2f} days, {LARGE} operations x 3 zones; a year has 2 incidents a week and 5 deploys a day")
    report.say(f"{'cause':<20} {'false':>5} {'of':>10} {'a year':>8} {'upper 95 %':>11}")
    for rate in rates:
        text = f"{rate.exposure:,.4g}{' days' if rate.cause == 'quiet' else ''}"
        # The few events of a sample say nothing about a year.
        converted = f" {rate.rate:>8.2f} {rate.bound:>11.2f}" if days >= PART_DAYS else ""
        report.say(f"{rate.cause:<20} {rate.false:>5} {text:>10}{converted}")
    for part in parts:
        for each in part.false:
            report.say(f"part {part.number}, {each['cause']}, {each['after']:.0f} s after its start: {each['summary']}")


def hold_goals(report: Report, rates: Sequence[Rate]) -> None:
    """Hold the result of a whole year to its goals."""
    by_cause: Mapping[str, Rate] = {each.cause: each for each in rates}
    both = by_cause["regional or shared"]
    for cause in ("quiet", "deploy", "stall"):
        report.hold(Goal(f"false isolations, {cause}", by_cause[cause].false, 0, "lower"))
    report.hold(Goal("false isolations a year in incidents, upper 95 % bound", both.bound, 3.0, "lower"))
    report.hold(Goal("regional and shared incidents", both.exposure, 500, "higher"))
    report.hold(Goal("deploys", by_cause["deploy"].exposure, 2000, "higher"))


def write_result(path: Path, parts: Sequence[Part], rates: Sequence[Rate]) -> None:
    """Write the result of a whole year, with the seeds of its parts."""
    content = {
        "code": fingerprint(),
        "days": sum(part.days for part in parts),
        "seeds": [f"{PROOF}, year, {part.number}" for part in parts],
        "cpu_minutes": round(sum(part.seconds for part in parts) / 60),
        "rates": [asdict(each) | {"rate": round(each.rate, 3), "upper_95": round(each.bound, 3)} for each in rates],
        "false": [each | {"part": part.number} for part in parts for each in part.false],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")

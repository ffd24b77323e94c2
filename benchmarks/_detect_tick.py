"""How much CPU time one tick of detection takes: the window from stored rows, and one step of the default detector.

200 operations in 3 zones with 50 instances each: 30,000 series, each with a histogram of latencies. The bins come in
turn from a few that were simulated. In the second half one zone fails, so that the evidence passes its threshold and
the instances are compared in every tick. The goal is 1 % of a tick of 10 s, for the slowest.
"""

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._detect_fleets import (
    LARGE,
    PROOF,
    SECONDS,
    START,
    UNANNOUNCED,
    ZONES,
    Arranger,
    build_detectors,
    build_fleet,
    build_state,
    fill,
    seed_random,
)
from benchmarks._harness import Goal
from benchmarks._report import Report, milliseconds
from holdfast import Side
from holdfast.simulate.zones.traffic import Effect, TrafficSimulation
from holdfast.telemetry.bins import BinKey
from holdfast.telemetry.block import COUNTS, Block
from holdfast.telemetry.window import Window, WindowIndex

INSTANCES = 50
LEARNED_BINS, DISTINCT, TICKS = 240, 3, 40
BUDGET = 0.1
"""Seconds: 1 % of ten."""


def measure(report: Report) -> None:
    random = seed_random(PROOF, "tick")
    requests = np.exp(random.normal(np.log(600.0), 1.0, LARGE))  # in a zone: 12/min and instance
    whole = build_fleet(random, requests, 0.005, operations=LARGE)
    fleet = replace(whole, instances=INSTANCES)
    detector = build_detectors()[UNANNOUNCED]
    state: Any = build_state()
    simulation, arranger = TrafficSimulation(whole, random), Arranger(whole)
    for number in range(LEARNED_BINS):  # the usual behaviour is known by operation and zone, so one instance suffices
        state, _ = detector.step(state, arranger.arrange(simulation.step(START + number * SECONDS)))
    arranger = Arranger(fleet)
    windows = {}
    for is_failing in (False, True):
        effects = [Effect(start=0.0, end=2 * START, added=fill(fleet, 0.0, 0.3, 1))] if is_failing else []
        simulation = TrafficSimulation(fleet, random, effects)
        at = START + LEARNED_BINS * SECONDS
        windows[is_failing] = [arranger.arrange(simulation.step(at)) for _ in range(DISTINCT)]
    calm = windows[False][0]
    keys = [
        BinKey(calm.workload, operation, zone, instance, Side.SERVER)
        for operation in calm.operations
        for zone, names in zip(calm.zones, calm.instances, strict=True)
        for instance in names
    ]
    index = WindowIndex(ZONES[:3], keys)
    blocks = {is_failing: [_to_block(each) for each in found] for is_failing, found in windows.items()}
    fills, steps, verdict = [], [], None
    for tick in range(TICKS):
        is_failing = tick >= TICKS // 2
        empty = Window(
            workload=calm.workload,
            start=START + (LEARNED_BINS + tick) * SECONDS,
            seconds=SECONDS,
            zones=ZONES[:3],
        )
        began = time.process_time()
        window = index.fill(empty, blocks[is_failing][tick % DISTINCT])
        filled = time.process_time()
        state, verdict = detector.step(state, window)
        fills.append(filled - began)
        steps.append(time.process_time() - filled)
    ticks = [a + b for a, b in zip(fills, steps, strict=True)]
    if verdict is None or verdict.zone != ZONES[1]:
        raise RuntimeError(f"the failing zone was not found: {verdict}")
    calm_ticks, failing_ticks = ticks[: TICKS // 2], ticks[TICKS // 2 :]
    report.say(f"{LARGE} operations x 3 zones x {INSTANCES} instances, {TICKS} ticks: CPU time of each")
    for name, values in (
        ("window", fills),
        ("detector", steps),
        ("both, all is well", calm_ticks),
        ("both, a zone fails", failing_ticks),
    ):
        report.say(
            f"{name:<20} median {milliseconds(statistics.median(values)):>8}, slowest {milliseconds(max(values)):>8}"
        )
    report.keep("tick_median_seconds", statistics.median(ticks))
    report.hold(Goal("slowest tick, seconds", max(ticks), BUDGET, "lower"))


def _to_block(window: Window) -> Block:
    """Return the rows from which a window is built, in the order of its cells."""
    cells = window.cells[Side.SERVER]
    rows = cells.requests.size
    counts = np.zeros((rows, len(COUNTS)), np.int64)
    faults = cells.faults.ravel()
    counts[:, 0], counts[:, 3], counts[:, 4] = cells.requests.ravel() - faults, faults, faults
    return Block(
        np.arange(rows),
        counts,
        np.zeros(rows, np.int64),
        np.zeros(rows, np.bool_),
        cells.success_seconds,
        cells.fault_seconds,
    )

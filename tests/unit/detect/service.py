"""A simulated service in three zones: its windows, and a detector that has learned it for half an hour."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast import Operation, Side, Verdict, Zone
from holdfast.detect.calibration import CalibratedState
from holdfast.detect.detectors.calibrated import CalibratedDetector, CalibratedOptions
from holdfast.detect.measurements import StreamKey
from holdfast.simulate.zones.traffic import Effect, Fleet, SimulatedBin, TrafficSimulation
from holdfast.telemetry import SharedResource, Window
from holdfast.telemetry.block import Histograms
from holdfast.telemetry.window import Cells

ZONES = ONE, TWO, THREE = tuple(Zone(f"use1-az{number}") for number in range(1, 4))
HOME, CART, QUERY = Operation("Home", "Index"), Operation("Cart", "Add"), Operation("db", "Query")
ROWS = (
    StreamKey(Side.SERVER, CART),
    StreamKey(Side.SERVER, HOME),
    StreamKey(Side.CLIENT, QUERY),
    StreamKey(Side.SERVER, QUERY),
)
"""The operations of the service. Consumers measure `db/Query` as clients, and the database measures it itself."""
DATABASE = SharedResource("primary-database", (QUERY,), TWO)
START = 1_700_000_400.0
SECONDS = 10.0
WARM = 1800.0
"""Seconds that the detector learns before a scenario begins."""

Change = Callable[[Window], Window]


def build_fleet(instances: int = 3, scale: float = 1.0) -> Fleet:
    requests = scale * np.array([300.0, 150.0, 300.0, 300.0])[:, None] * np.ones(len(ZONES))
    requests[3, [0, 2]] = 0.0  # the database is in one zone
    return Fleet(
        requests=requests,
        fault_rates=np.full(requests.shape, 0.005),
        latency=np.array([0.05, 0.1, 0.01, 0.01]),
        spread=np.full(4, 0.6),
        instances=instances,
    )


def by_cell(row: int | slice, zone: int | slice, value: float, otherwise: float = 0.0) -> NDArray[np.float64]:
    """Return the size of an effect that concerns only some rows and zones."""
    found = np.full((len(ROWS), len(ZONES)), otherwise)
    found[row, zone] = value
    return found


def failing(row: int | slice, zone: int | slice, share: float = 0.4, **more: Any) -> Effect:
    """Return the effect that makes a share of the requests fail from the end of the warm-up on."""
    given: dict[str, Any] = {"start": START + WARM, "end": np.inf, "added": by_cell(row, zone, share)}
    return Effect(**(given | more))


def build_window(found: SimulatedBin, rows: Sequence[StreamKey] = ROWS, **more: Any) -> Window:
    """Return the window of a simulated bin."""
    operations = tuple(sorted({key.operation for key in rows}, key=str))
    cells = {}
    for side in dict.fromkeys(key.side for key in rows):
        own = {operations.index(key.operation): row for row, key in enumerate(rows) if key.side is side}
        requests, faults = (
            np.stack([each[own[row]] if row in own else np.zeros_like(each[0]) for row in range(len(operations))])
            for each in (found.requests, found.faults)
        )
        latencies = move_histograms(found, own, requests.size)
        cells[side] = Cells(requests, faults, np.zeros_like(requests), latencies, EMPTY)
    names = tuple(tuple(f"{zone}-i{number}" for number in range(found.requests.shape[2])) for zone in ZONES)
    return Window(
        workload="shop",
        start=found.start,
        seconds=more.pop("seconds", SECONDS),
        zones=ZONES,
        operations=operations,
        instances=names,
        cells=cells,
        resources=(DATABASE,),
        **more,
    )


def move_histograms(found: SimulatedBin, rows: dict[int, int], size: int) -> Histograms:
    """Return the latencies of some rows at other ones, and empty histograms elsewhere."""
    width = int(np.prod(found.requests.shape[1:]))
    targets = sorted(rows)
    sources, positions = (
        (np.array(each)[:, None] * width + np.arange(width)).reshape(-1)
        for each in ([rows[target] for target in targets], targets)
    )
    return found.latencies.spread(sources, positions, size)


EMPTY = Histograms.of([])


def simulate(
    effects: Sequence[Effect] = (), *, start: float = START + WARM, length: float = 300.0, seed: int = 1, **more: Any
) -> Iterator[Window]:
    """Yield the windows of the service from the end of the warm-up on."""
    fleet = more.pop("fleet", None) or build_fleet(more.pop("instances", 3))
    simulation = TrafficSimulation(fleet, np.random.default_rng(seed), effects)
    for found in simulation.run(start, start + length):
        yield build_window(found, **more)


@cache
def warm_up(instances: int = 3, scale: float = 1.0) -> CalibratedState:
    """Return the state of the detector after half an hour without failures. No test may change it."""
    windows = simulate(start=START, length=WARM, seed=7, fleet=build_fleet(instances, scale=scale))
    return watch(windows)[1]


def watch(
    windows: Iterator[Window] | Sequence[Window],
    state: CalibratedState | None = None,
    change: Change | None = None,
    **options: Any,
) -> tuple[list[Verdict], CalibratedState]:
    """Return the verdict of each window, and the state after the last one."""
    detector, verdicts = CalibratedDetector(CalibratedOptions(**options)), []
    state = state or CalibratedState()
    for window in windows:
        state, verdict = detector.step(state, change(window) if change else window)
        verdicts.append(verdict)
    return verdicts, state


def without_cells(window: Window, side: Side, operation: Operation, zone: int) -> Window:
    """Return the window without the measurements of an operation in a zone."""
    cells = window.cells[side]
    row = window.operations.index(operation)
    requests, faults = cells.requests.copy(), cells.faults.copy()
    requests[row, zone] = faults[row, zone] = 0
    return replace(window, cells={**window.cells, side: replace(cells, requests=requests, faults=faults)})


def silence(window: Window, zone: int) -> Window:
    """Return the window without any measurements of a zone."""
    for side in window.cells:
        for operation in window.operations:
            window = without_cells(window, side, operation, zone)
    return window


def find_first(verdicts: Sequence[Verdict], kind: str) -> Verdict:
    return next(each for each in verdicts if each.kind == kind)


def kinds(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the kinds of verdicts in order, each once."""
    found: list[str] = []
    for each in verdicts:
        if not found or found[-1] != str(each.kind):
            found.append(str(each.kind))
    return found
